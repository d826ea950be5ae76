"""A phase is used once, in order, and leaves no secrets behind."""

import pytest

from oracles.rounds import cohort
from oracles.transcript import transcript
from skellam.entropy import SystemEntropy
from skellam.errors import (
    DomainError,
    InfeasibleError,
    KindError,
    PhaseError,
    ShapeError,
    TamperError,
)
from skellam.secagg import History, Identity, Round, client
from skellam.secagg.bus import Stage
from skellam.vectors import Residues

HONEST = transcript(cohort(4, 3, dropouts=1, removable=True))
FIRST = HONEST.members.numbers[0]


@pytest.mark.parametrize("stage", Stage)
def test_a_phase_used_twice_raises(stage):
    from oracles.transcript import step

    phase = HONEST.client(stage, FIRST)
    letter = HONEST.letters[stage, FIRST]
    step(HONEST.members, phase, stage, FIRST, letter)
    with pytest.raises(PhaseError, match="used once"):
        step(HONEST.members, phase, stage, FIRST, letter)
    with pytest.raises(PhaseError, match="was left"):
        phase.to_bytes()
    desk = HONEST.server(stage)
    desk.step(HONEST.sent[stage].values())
    with pytest.raises(PhaseError):
        desk.step(HONEST.sent[stage].values())


@pytest.mark.parametrize("stage", [Stage.SHARE, Stage.MASK, Stage.AGREE, Stage.UNMASK])
def test_a_step_that_raised_cannot_be_tried_again(stage):
    from oracles.transcript import step

    phase = HONEST.client(stage, FIRST)
    with pytest.raises(Exception):  # noqa: B017
        step(HONEST.members, phase, stage, FIRST, b"nonsense")
    with pytest.raises(PhaseError):
        step(HONEST.members, phase, stage, FIRST, HONEST.letters[stage, FIRST])


def test_a_round_from_restored_phases_is_the_same_round():
    again = transcript(cohort(4, 3, dropouts=1, removable=True))
    assert again.sent == HONEST.sent
    for stage in Stage:
        for number in HONEST.members.numbers:
            _, data = HONEST.step(stage, number)
            assert data == HONEST.sent[stage][number]


def test_nothing_secret_is_left_when_the_client_is_done():
    done, _ = HONEST.step(Stage.UNMASK, FIRST)
    assert isinstance(done, client.Done)
    assert done.to_bytes() == bytes([2, client.Done.TAG]) + HONEST.members.round.digest


def test_a_clients_own_secrets_leave_its_state_with_the_masked_vector():
    share = HONEST.client(Stage.SHARE, FIRST)
    mask = HONEST.client(Stage.MASK, FIRST)
    secrets = {share.channel, share.mask, *mask.secrets, *(near.channel for near in mask.near)}
    for stage in (Stage.AGREE, Stage.UNMASK):
        state = HONEST.states[stage, FIRST]
        assert not any(secret in state for secret in secrets)


def test_no_state_and_no_representation_shows_the_identity_key():
    party = HONEST.party(FIRST)
    assert all(party.identity.key not in state for state in HONEST.states.values())
    assert party.identity.key.hex() not in repr(party)
    assert repr(party.identity.key) not in repr(party)


def test_each_client_counts_the_participants_itself():
    assert HONEST.client(Stage.MASK, FIRST).participants == 4


def test_noise_seeds_are_the_clients_own_and_as_many_as_the_rule_says():
    seen = [
        seed for n in HONEST.members.numbers for seed in HONEST.client(Stage.MASK, n).noise_seeds
    ]
    assert len(seen) == len(set(seen)) == 4 * HONEST.members.round.seed_count(4)


def test_a_round_that_was_begun_is_never_begun_again():
    party = HONEST.party(FIRST)
    entropy = SystemEntropy()
    _, _, history = client.Advertise(party).step(history=History(), entropy=entropy)
    kept = History.from_bytes(history.to_bytes())
    with pytest.raises(TamperError, match="replayed"):
        client.Advertise(party).step(history=kept, entropy=entropy)


def test_a_vector_of_another_round_is_refused():
    honest = HONEST.members.vectors[FIRST]
    others = [
        Residues(honest.values[:-1], honest.bits, honest.label),
        Residues(honest.values, honest.bits, b"another label"),
    ]
    for vector in others:
        with pytest.raises(ShapeError, match="vector must have"):
            HONEST.step(Stage.MASK, FIRST, vector=vector)


def test_the_replayable_mark_travels_with_the_sum():
    assert not HONEST.outcome.total.replayable
    marked = Residues(HONEST.members.vectors[FIRST].values, 16, b"a label", replayable=True)
    _, data = HONEST.step(Stage.MASK, FIRST, vector=marked)
    confirm, _ = HONEST.serve(Stage.MASK, {FIRST: data})
    assert confirm.gathered.replayable


ROUND = {
    "round_id": bytes(32),
    "plan": bytes(32),
    "model": bytes(32),
    "bits": 16,
    "length": 3,
    "dropouts": 1,
    "colluders": 0,
    "least": 3,
}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"round_id": bytes(31)}, ShapeError),
        ({"plan": "plan"}, KindError),
        ({"bits": 33}, DomainError),
        ({"length": 0}, DomainError),
        ({"dropouts": -1}, DomainError),
        ({"dropouts": 2}, InfeasibleError),
        ({"colluders": 1}, InfeasibleError),
        ({"least": 1, "dropouts": 0}, DomainError),
        ({"removable": 1}, KindError),
        ({"label": bytes(256)}, ShapeError),
    ],
)
def test_a_round_outside_its_domain_is_refused(changes, error):
    Round(**ROUND)
    with pytest.raises(error):
        Round(**{**ROUND, **changes})


def test_the_digest_of_a_round_covers_every_field():
    base = Round(**ROUND)
    other = {
        "round_id": b"1" * 32,
        "plan": b"1" * 32,
        "model": b"1" * 32,
        "bits": 12,
        "length": 4,
        "dropouts": 0,
        "colluders": 1,
        "least": 4,
        "removable": True,
        "label": b"x",
    }
    digests = {base.digest}
    for name, value in other.items():
        more = {"least": 9} if name == "colluders" else {}
        digests.add(Round(**{**ROUND, name: value, **more}).digest)
    assert len(digests) == len(other) + 1


def test_an_identity_outside_its_domain_is_refused():
    with pytest.raises(DomainError):
        Identity(-1, bytes(32))
    with pytest.raises(DomainError):
        Identity(1, bytes(31))
