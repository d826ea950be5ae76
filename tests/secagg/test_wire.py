"""Parsing is strict and bounded: whatever bytes come, a message of this version or our error."""

from dataclasses import fields, replace
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.rounds import cohort
from oracles.transcript import CLIENT, SERVER, transcript
from skellam.errors import MessageError, PhaseError, ProtocolError
from skellam.protocol import wire
from skellam.secagg import Fault, SeenRounds, Setting, messages
from skellam.secagg.messages import Message
from skellam.secagg.simulation import Stage

HONEST = transcript(cohort(4, 3, dropouts=1, removable=True))
FIRST = HONEST.members.numbers[0]
KINDS = [kind for kind in vars(messages).values() if hasattr(kind, "TAG")]


def examples() -> dict[type[Message], bytes]:
    found = {
        messages.Advertisement: HONEST.sent[Stage.ADVERTISE_KEYS][FIRST],
        messages.ParticipantList: HONEST.received[Stage.SHARE_KEYS, FIRST],
        messages.KeyShares: HONEST.sent[Stage.SHARE_KEYS][FIRST],
        messages.Delivery: HONEST.received[Stage.MASKED_INPUT, FIRST],
        messages.MaskedVector: HONEST.sent[Stage.MASKED_INPUT][FIRST],
        messages.Survivors: HONEST.received[Stage.CONSISTENCY_CHECK, FIRST],
        messages.Agreement: HONEST.sent[Stage.CONSISTENCY_CHECK][FIRST],
        messages.Agreements: HONEST.received[Stage.UNMASK, FIRST],
        messages.Opening: HONEST.sent[Stage.UNMASK][FIRST],
    }
    found[messages.Receipt] = messages.MaskedVector.decode(found[messages.MaskedVector]).receipt
    return found


EXAMPLES = examples()


def test_the_examples_cover_every_kind_of_message():
    assert set(EXAMPLES) == set(KINDS)
    assert len({kind.TAG for kind in KINDS}) == len(KINDS)


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_a_message_has_one_encoding(kind):
    data = EXAMPLES[kind]
    assert kind.decode(data).encode() == data


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_unknown_versions_other_kinds_and_trailing_bytes_are_refused(kind):
    data = EXAMPLES[kind]
    with pytest.raises(MessageError, match="got version 2 of the protocol, need version 3"):
        kind.decode(b"\x02" + data[1:])
    with pytest.raises(MessageError, match="of kind"):
        kind.decode(data[:1] + b"\xff" + data[2:])
    with pytest.raises(MessageError, match="1 bytes trail"):
        kind.decode(data + b"\x00")


@pytest.mark.parametrize(("removable", "secrets"), [(False, 2), (True, 3)])
def test_the_sizes_are_those_of_the_reference(removable, secrets):
    """docs/reference/protocol.md, for 4 participants of whom 3 survive and residues of 2 bytes."""
    members = cohort(4, 3, dropouts=1, removable=removable)
    done = transcript(members, dropouts={Stage.MASKED_INPUT: members.numbers[:1]})
    n, m, last = 4, 3, members.numbers[-1]
    envelope, proof = 60 + 66 * secrets, 64 + 32 * 2
    sent = {stage: len(done.sent[stage][last]) for stage in Stage}
    assert sent == {
        Stage.ADVERTISE_KEYS: 170,
        Stage.SHARE_KEYS: 54 + 64 * secrets + (n - 1) * envelope,
        Stage.MASKED_INPUT: 117 + 2 * 3,
        Stage.CONSISTENCY_CHECK: 74,
        Stage.UNMASK: 78 + 75 * n,
    }
    received = {stage: len(done.received[stage, last]) for stage in Stage}
    assert received == {
        Stage.ADVERTISE_KEYS: 0,
        Stage.SHARE_KEYS: 6 + 170 * n,
        Stage.MASKED_INPUT: 10 + 2 * n + (n - 1) * (envelope + proof),
        Stage.CONSISTENCY_CHECK: 6 + 107 * m,
        Stage.UNMASK: 6 + 74 * m,
    }


@pytest.mark.parametrize(("clients", "removable"), [(2, False), (3, False), (4, True), (7, True)])
def test_key_shares_are_signed_as_the_reference_says(clients, removable):
    """docs/reference/protocol.md, read by itself: cut, hash and verify without this package."""
    done = transcript(cohort(clients, 1, dropouts=clients // 4, removable=removable))
    secrets, listed = 3 if removable else 2, done.received[Stage.SHARE_KEYS, FIRST]
    context = hashed("participants/", done.members.round.digest, sha256(listed).digest())
    for number, data in done.sent[Stage.SHARE_KEYS].items():
        own = 14 + 32 * (secrets - 1) + 4
        envelopes = data[own + 32 * secrets + 4 : -64]
        size = 60 + 66 * secrets
        level = [hashed("commitments", data[10 : own - 4], data[own : own + 32 * secrets])]
        level += [
            hashed("envelope", envelopes[at : at + size]) for at in range(0, len(envelopes), size)
        ]
        assert len(level) == clients
        while len(level) > 1:
            level += [bytes(32)] * (len(level) % 2)
            level = [hashed("node", *pair) for pair in zip(level[::2], level[1::2], strict=True)]
        statement = b"\x03\x04" + number.to_bytes(8, "big") + clients.to_bytes(4, "big") + level[0]
        key = Ed25519PublicKey.from_public_bytes(done.roster.keys[number])
        key.verify(data[-64:], b"skellam/secagg/signature/" + context + statement)


def test_a_receipt_says_what_the_reference_says():
    """Behind 18 bytes of a delivery to 4: envelopes of 258 bytes, each with 128 that prove it."""
    delivery = HONEST.received[Stage.MASKED_INPUT, FIRST][18:]
    envelopes = b"".join(delivery[at : at + 258] for at in range(0, len(delivery), 258 + 128))
    assert len(envelopes) == 3 * 258
    masked = HONEST.sent[Stage.MASKED_INPUT][FIRST]
    assert masked[16:48] == hashed("given", sha256(envelopes).digest(), masked[-6:])


def hashed(name: str, *parts: bytes) -> bytes:
    return sha256(b"skellam/secagg/" + name.encode() + b"".join(parts)).digest()


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_every_truncation_is_refused(kind):
    data = EXAMPLES[kind]
    for end in range(len(data)):
        with pytest.raises(MessageError):
            kind.decode(data[:end])


def test_lengths_above_their_limits_are_refused_without_reading_on():
    head = EXAMPLES[messages.ParticipantList][:2]
    with pytest.raises(MessageError, match="must lie in"):
        messages.ParticipantList.decode(head + b"\x00\x01\x00\x00")
    head = EXAMPLES[messages.MaskedVector][:2]
    with pytest.raises(MessageError, match="must lie in"):
        messages.MaskedVector.decode(head + b"\x00\xff\xff\xff")


def test_a_list_of_another_kind_or_version_has_no_senders():
    honest = messages.ParticipantList.decode(EXAMPLES[messages.ParticipantList])
    for head in (b"\x02\x01", b"\x03\x06"):
        lie = messages.ParticipantList.of([head + row[2:] for row in honest.rows])
        with pytest.raises(MessageError, match="another kind or version"):
            _ = lie.senders


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_field_of_the_wrong_size_is_not_written(kind):
    message = kind.decode(EXAMPLES[kind])
    for field in fields(kind):
        value = getattr(message, field.name)
        if isinstance(value, bytes) and field.name not in ("vector", "envelopes"):
            with pytest.raises(MessageError):
                replace(message, **{field.name: bytes(1 << 13)}).encode()


@pytest.mark.parametrize(
    "change",
    [
        {"share": bytes(33)},
        {"share": bytes(35)},
        {"blind": b""},
        {"dealer": -1},
        {"dealer": 1 << 64},
        {"secret": 256},
    ],
    ids=str,
)
def test_a_row_of_a_list_that_does_not_fit_is_not_written(change):
    message = messages.Opening.decode(EXAMPLES[messages.Opening])
    first, *others = message.shares
    with pytest.raises(MessageError):
        replace(message, shares=(first._replace(**change), *others)).encode()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=200)
@given(data=st.data())
def test_fuzzed_bytes_are_a_message_or_our_error(kind, data):
    honest = EXAMPLES[kind]
    cut = data.draw(st.integers(0, len(honest)))
    raw = data.draw(st.sampled_from([b"", honest[:2], honest[:cut]])) + data.draw(st.binary())
    try:
        message = kind.decode(raw)
    except MessageError:
        return
    assert message.encode() == raw


@pytest.mark.parametrize("stage", Stage)
@settings(max_examples=60)
@given(data=st.data())
def test_fuzzed_messages_and_states_raise_our_errors_alone(stage, data):
    message = data.draw(st.binary(max_size=200))
    if stage is not Stage.ADVERTISE_KEYS:
        with pytest.raises(ProtocolError):
            HONEST.step(stage, FIRST, message)
    state = HONEST.states[stage, FIRST]
    cut = data.draw(st.integers(0, len(state)))
    changed = state[:cut] + message
    try:
        phase = CLIENT[stage].from_bytes(changed, HONEST.party(FIRST))
    except ProtocolError:
        return
    assert phase.to_bytes() == changed


@pytest.mark.parametrize("stage", Stage)
def test_the_bytes_of_a_phase_are_that_phase_of_that_round_or_nothing(stage):
    state = HONEST.states[stage, FIRST]
    other = cohort(4, 4, dropouts=1).round
    party = HONEST.party(FIRST)
    for kind in CLIENT.values():
        if kind is not CLIENT[stage]:
            with pytest.raises(PhaseError):
                kind.from_bytes(state, party)
    with pytest.raises(PhaseError):
        CLIENT[stage].from_bytes(state, replace(party, round=other))
    with pytest.raises(PhaseError):
        SERVER[stage].from_bytes(HONEST.server_states[stage], Setting(other, HONEST.roster))
    with pytest.raises(MessageError):
        CLIENT[stage].from_bytes(b"\x07" + state[1:], party)
    with pytest.raises(MessageError):
        CLIENT[stage].from_bytes(state + b"\x00", party)


@given(st.frozensets(st.binary(min_size=32, max_size=32)))
def test_seen_rounds_survive_their_bytes(rounds):
    seen = SeenRounds(rounds)
    assert SeenRounds.from_bytes(seen.to_bytes()) == seen


@given(st.binary())
def test_fuzzed_histories_are_seen_rounds_or_our_error(data):
    try:
        seen = SeenRounds.from_bytes(data)
    except MessageError:
        return
    assert seen.to_bytes() == data


def test_seen_rounds_out_of_order_are_refused():
    two = SeenRounds(frozenset([b"a" * 32, b"b" * 32])).to_bytes()
    with pytest.raises(MessageError, match="order"):
        SeenRounds.from_bytes(two[:5] + two[37:] + two[5:37])


@given(
    reason=st.text(),
    culprit=st.none() | st.integers(0, 2**64 - 1),
    index=st.integers(0, 2**32 - 1),
)
def test_a_fault_survives_its_bytes_cut_to_its_limit(reason, culprit, index):
    data = wire.body(Fault(reason, culprit, index))
    again = Fault(**wire.read_fields(Fault, wire.Reader(data)))
    assert (again.culprit, again.index) == (culprit, index)
    assert reason.startswith(again.reason)
    assert wire.body(again) == data


def test_a_text_that_is_not_utf_8_is_refused():
    with pytest.raises(MessageError, match="UTF-8"):
        wire.Text(10).read(wire.Reader(b"\x00\x00\x00\x01\xff"))
