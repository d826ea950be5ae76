"""A phase is used once, in order, and leaves no secrets behind."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.rounds import cohort
from oracles.transcript import transcript
from skellam.cohorts import Tolerance
from skellam.entropy import SystemEntropy
from skellam.errors import (
    DomainError,
    InfeasibleError,
    KindError,
    MessageError,
    PhaseError,
    ShapeError,
    TamperError,
)
from skellam.protocol import wire
from skellam.secagg import Identity, RoundParameters, SeenRounds, client
from skellam.secagg.parameters import ToleranceField
from skellam.secagg.simulation import Stage
from skellam.vectors import Residues

HONEST = transcript(cohort(4, 3, dropouts=1, removable=True))
FIRST = HONEST.members.numbers[0]


@pytest.mark.parametrize("stage", Stage)
def test_a_phase_used_twice_raises(stage):
    from oracles.transcript import step

    phase = HONEST.client(stage, FIRST)
    message = HONEST.received[stage, FIRST]
    step(HONEST.members, phase, stage, FIRST, message)
    with pytest.raises(PhaseError, match="used once"):
        step(HONEST.members, phase, stage, FIRST, message)
    with pytest.raises(PhaseError, match="was left"):
        phase.to_bytes()
    phase_of_server = HONEST.server(stage)
    phase_of_server.step(HONEST.sent[stage].values())
    with pytest.raises(PhaseError):
        phase_of_server.step(HONEST.sent[stage].values())


@pytest.mark.parametrize(
    "stage", [Stage.SHARE_KEYS, Stage.MASKED_INPUT, Stage.CONSISTENCY_CHECK, Stage.UNMASK]
)
def test_a_step_that_raised_cannot_be_tried_again(stage):
    from oracles.transcript import step

    phase = HONEST.client(stage, FIRST)
    with pytest.raises(Exception):  # noqa: B017
        step(HONEST.members, phase, stage, FIRST, b"nonsense")
    with pytest.raises(PhaseError):
        step(HONEST.members, phase, stage, FIRST, HONEST.received[stage, FIRST])


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
    assert done.to_bytes() == bytes([wire.VERSION, client.Done.TAG]) + HONEST.members.round.digest


def test_a_clients_own_secrets_leave_its_state_with_the_masked_vector():
    share = HONEST.client(Stage.SHARE_KEYS, FIRST)
    mask = HONEST.client(Stage.MASKED_INPUT, FIRST)
    secrets = {share.channel, share.mask, *mask.secrets, *(near.channel for near in mask.near)}
    for stage in (Stage.CONSISTENCY_CHECK, Stage.UNMASK):
        state = HONEST.states[stage, FIRST]
        assert not any(secret in state for secret in secrets)


def test_no_state_and_no_representation_shows_the_identity_key():
    party = HONEST.party(FIRST)
    assert all(party.identity.key not in state for state in HONEST.states.values())
    assert party.identity.key.hex() not in repr(party)
    assert repr(party.identity.key) not in repr(party)


def test_each_client_counts_the_participants_itself():
    assert HONEST.client(Stage.MASKED_INPUT, FIRST).participants == 4


def test_noise_seeds_are_the_clients_own_and_there_only_if_noise_may_be_removed():
    seen = {HONEST.client(Stage.MASKED_INPUT, n).noise_seed for n in HONEST.members.numbers}
    assert len(seen) == 4
    assert all(len(seed) == 32 for seed in seen)
    for without in (cohort(4, 3, dropouts=1), cohort(4, 3, removable=True)):
        done = transcript(without)
        assert done.client(Stage.MASKED_INPUT, FIRST).noise_seed is None
        assert len(done.client(Stage.MASKED_INPUT, FIRST).secrets) == 2
        assert done.outcome.noise_seeds == {}


def test_a_round_that_was_begun_is_never_begun_again():
    party = HONEST.party(FIRST)
    entropy = SystemEntropy()
    _, _, seen = client.AdvertiseKeys(party).step(seen=SeenRounds(), entropy=entropy)
    kept = SeenRounds.from_bytes(seen.to_bytes())
    with pytest.raises(TamperError, match="replayed"):
        client.AdvertiseKeys(party).step(seen=kept, entropy=entropy)


def test_a_vector_of_another_round_is_refused():
    honest = HONEST.members.vectors[FIRST]
    others = [
        Residues(honest.values[:-1], honest.bits, honest.label),
        Residues(honest.values, honest.bits, b"another label"),
        replace(honest, messages=2),
    ]
    for vector in others:
        with pytest.raises(ShapeError, match="vector must be one message"):
            HONEST.step(Stage.MASKED_INPUT, FIRST, vector=vector)


def test_the_replayable_mark_travels_with_the_sum():
    assert not HONEST.outcome.total.replayable
    marked = Residues(HONEST.members.vectors[FIRST].values, 16, b"a label", replayable=True)
    _, data = HONEST.step(Stage.MASKED_INPUT, FIRST, vector=marked)
    following, _ = HONEST.serve(Stage.MASKED_INPUT, {FIRST: data})
    assert following.summed.replayable


ROUND = {
    "round_id": bytes(32),
    "plan": bytes(32),
    "model": bytes(32),
    "bits": 16,
    "length": 3,
    "tolerance": Tolerance(Fraction(1, 3)),
    "min_participants": 3,
}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"round_id": bytes(31)}, ShapeError),
        ({"plan": "plan"}, KindError),
        ({"bits": 33}, DomainError),
        ({"length": 0}, DomainError),
        ({"tolerance": 1}, KindError),
        ({"tolerance": Tolerance(Fraction(2, 3))}, InfeasibleError),
        ({"tolerance": Tolerance(Fraction(1, 3), Fraction(1, 3), 3)}, InfeasibleError),
        ({"tolerance": Tolerance(Fraction(1, 2**64 + 1))}, DomainError),
        ({"tolerance": Tolerance(population=2**32)}, DomainError),
        ({"min_participants": 1}, DomainError),
        ({"removable": 1}, KindError),
        ({"label": bytes(256)}, ShapeError),
    ],
)
def test_a_round_outside_its_domain_is_refused(changes, error):
    RoundParameters(**ROUND)
    with pytest.raises(error):
        RoundParameters(**{**ROUND, **changes})


def test_the_digest_of_a_round_covers_every_field():
    base = RoundParameters(**ROUND)
    other = {
        "round_id": b"1" * 32,
        "plan": b"1" * 32,
        "model": b"1" * 32,
        "bits": 12,
        "length": 4,
        "min_participants": 4,
        "removable": True,
        "label": b"x",
    }
    digests = {base.digest}
    for name, value in other.items():
        digests.add(RoundParameters(**{**ROUND, name: value}).digest)
    tolerances = [
        Tolerance(Fraction(1, 4)),
        Tolerance(Fraction(1, 3), Fraction(1, 100), 100),
        Tolerance(Fraction(1, 3), population=100),
        Tolerance(Fraction(1, 3), tail_bits=41),
    ]
    for tolerance in tolerances:
        digests.add(
            RoundParameters(**{**ROUND, "tolerance": tolerance, "min_participants": 9}).digest
        )
    assert len(digests) == len(other) + len(tolerances) + 1


@given(
    st.integers(0, 50),
    st.integers(0, 40),
    st.none() | st.integers(1, 2**32 - 1),
    st.integers(1, 1024),
)
def test_a_tolerance_has_one_encoding(dropout, colluding, population, tail_bits):
    tolerance = Tolerance(Fraction(dropout, 101), Fraction(colluding, 100), population, tail_bits)
    data = ToleranceField().write(tolerance)
    assert len(data) == 38
    assert ToleranceField().read(wire.Reader(data)) == tolerance


@pytest.mark.parametrize(
    ("dropout", "tail_bits"),
    [((2, 6), 40), ((1, 0), 40), ((3, 2), 40), ((1, 3), 0), ((1, 3), 1025)],
)
def test_a_tolerance_that_is_none_or_not_in_lowest_terms_is_refused(dropout, tail_bits):
    numbers = [*dropout, 0, 1]
    data = b"".join(n.to_bytes(8, "big") for n in numbers) + bytes(4) + tail_bits.to_bytes(2, "big")
    with pytest.raises(MessageError, match="a tolerance on the wire"):
        ToleranceField().read(wire.Reader(data))


def test_an_identity_outside_its_domain_is_refused():
    with pytest.raises(DomainError):
        Identity(-1, bytes(32))
    with pytest.raises(DomainError):
        Identity(1, bytes(31))
