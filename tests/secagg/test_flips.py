"""Every byte of every kind of message, flipped once: detected, or without any effect."""

import pytest

from oracles.rounds import cohort
from oracles.transcript import transcript
from skellam.errors import ProtocolError
from skellam.secagg.simulation import Stage

HONEST = transcript(cohort(4, 3, dropouts=1))
FIRST = HONEST.members.numbers[0]


def flips(data: bytes):
    for at in range(len(data)):
        yield data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]


@pytest.mark.parametrize(
    "stage", [Stage.SHARE_KEYS, Stage.MASKED_INPUT, Stage.CONSISTENCY_CHECK, Stage.UNMASK]
)
def test_a_flipped_byte_from_the_server_is_refused_or_harmless(stage):
    following, sent = HONEST.step(stage, FIRST)
    harmless = 0
    for message in flips(HONEST.received[stage, FIRST]):
        try:
            changed, data = HONEST.step(stage, FIRST, message)
        except ProtocolError:
            continue
        harmless += 1
        assert data == sent
        assert changed.to_bytes() == following.to_bytes()
    proofs = 3 * (64 + 32 * 2)
    assert harmless == (proofs if stage is Stage.MASKED_INPUT else 0)


@pytest.mark.parametrize("stage", Stage)
def test_a_flipped_byte_from_a_client_counts_as_not_sent(stage):
    for data in flips(HONEST.sent[stage][FIRST]):
        try:
            result = HONEST.serve(stage, {FIRST: data})
        except ProtocolError:
            assert stage is Stage.ADVERTISE_KEYS
            continue
        if stage is Stage.UNMASK:
            assert result.total.values.tolist() == HONEST.outcome.total.values.tolist()
            assert len(result.faults) == 1
            continue
        assert len(result[0].faults) == 1
