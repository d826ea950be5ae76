"""Simulated rounds: the sum is exact, whoever drops out within the tolerance."""

import gc
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2

from oracles.rounds import LABEL, cohort
from skellam.errors import ProtocolError, ThresholdError
from skellam.secagg.messages import MaskedVector
from skellam.secagg.simulation import FaultScript, Stage
from skellam.vectors import Residues, residue_dtype


@pytest.mark.parametrize(("clients", "length"), [(3, 1), (5, 1 << 20), (20, 1 << 14), (140, 64)])
def test_the_sum_of_everybody_is_exact(clients, length):
    members = cohort(clients, length)
    outcome = members.run()
    assert outcome.total.values.tolist() == members.plain_sum(members.numbers)
    assert outcome.survivors == tuple(members.numbers)
    assert outcome.participants == clients
    assert outcome.faults == ()


COVERING = [
    (3, 1, 1),
    (5, 1 << 20, 2),
    (100, 1 << 14, 8),
    pytest.param(1000, 64, 48, marks=pytest.mark.slow),
]
STAGES = (Stage.SHARE_KEYS, Stage.MASKED_INPUT, Stage.CONSISTENCY_CHECK, Stage.UNMASK)


@pytest.mark.parametrize(("clients", "length", "tolerated"), COVERING)
def test_the_sum_is_exact_with_dropouts_at_every_stage_down_to_the_threshold(
    clients, length, tolerated
):
    members = cohort(clients, length, dropouts=tolerated)
    gone = members.numbers[:tolerated]
    dropouts = {stage: gone[at::4] for at, stage in enumerate(STAGES)}
    outcome = members.run(FaultScript(dropouts=dropouts))
    absent = {*dropouts[Stage.SHARE_KEYS], *dropouts[Stage.MASKED_INPUT]}
    assert set(outcome.survivors) == set(members.numbers) - absent
    assert outcome.total.values.tolist() == members.plain_sum(outcome.survivors)


@pytest.mark.parametrize(
    ("clients", "length", "tolerated"),
    [
        (3, 1, 1),
        (5, 1 << 20, 2),
        pytest.param(100, 1 << 14, 8, marks=pytest.mark.slow),
        *COVERING[3:],
    ],
)
def test_one_below_the_threshold_raises_before_anybody_opens_anything(clients, length, tolerated):
    members = cohort(clients, length, dropouts=tolerated)
    gone = members.numbers[: tolerated + 1]
    seen = set()

    def uplink(stage, number, data):
        seen.add(stage)
        return data

    dropouts = {stage: gone[at::3] for at, stage in enumerate(STAGES[:3])}
    with pytest.raises(ThresholdError):
        members.run(FaultScript(dropouts=dropouts, uplink=uplink))
    assert Stage.UNMASK not in seen


@pytest.mark.parametrize("bits", [2, 8, 12, 16, 20, 32])
def test_the_sum_is_exact_for_every_width_with_dropouts_at_every_stage(bits):
    members = cohort(10, 1000, bits=bits, dropouts=4, colluders=1)
    a, b, c, d, *rest = members.numbers
    script = FaultScript(
        dropouts={
            Stage.SHARE_KEYS: [a],
            Stage.MASKED_INPUT: [b],
            Stage.CONSISTENCY_CHECK: [c],
            Stage.UNMASK: [d],
        },
        restart=True,
    )
    outcome = members.run(script)
    assert outcome.survivors == (c, d, *rest)
    assert outcome.total.values.tolist() == members.plain_sum(outcome.survivors)


@pytest.mark.parametrize(
    "stage", [Stage.SHARE_KEYS, Stage.MASKED_INPUT, Stage.CONSISTENCY_CHECK, Stage.UNMASK]
)
@pytest.mark.parametrize("clients", [3, 10])
def test_each_stage_bears_the_tolerated_dropouts_and_not_one_more(stage, clients):
    members = cohort(clients, 5, dropouts=(clients - 1) // 2)
    tolerated = members.round.tolerance.dropouts(clients)
    last = members.numbers[:tolerated]
    outcome = members.run(FaultScript(dropouts={stage: last}))
    assert outcome.total.values.tolist() == members.plain_sum(outcome.survivors)
    too_many = members.numbers[: tolerated + 1]
    with pytest.raises(ThresholdError):
        members.run(FaultScript(dropouts={stage: too_many}))


def test_a_cohort_below_the_least_size_is_refused():
    members = cohort(5, 5, min_participants=5)
    with pytest.raises(ThresholdError, match="at least 5"):
        members.run(FaultScript(dropouts={Stage.ADVERTISE_KEYS: members.numbers[:1]}))


@pytest.mark.parametrize(
    "stage", [Stage.SHARE_KEYS, Stage.MASKED_INPUT, Stage.CONSISTENCY_CHECK, Stage.UNMASK]
)
def test_the_sparse_graph_bears_dropouts_at_every_stage(stage):
    members = cohort(150, 16, dropouts=7, colluders=1)
    assert not members.round.topology(150).complete
    outcome = members.run(FaultScript(dropouts={stage: members.numbers[::22]}))
    assert outcome.total.values.tolist() == members.plain_sum(outcome.survivors)


@pytest.mark.parametrize("bits", [8, 12, 20])
def test_what_a_client_sends_looks_uniform_even_for_a_constant_vector(bits):
    """Chi-square over the bits of all masked vectors; false alarms below 1e-7 for each width."""
    length = 1 << 15
    members = cohort(3, length, bits=bits)
    flat = Residues(np.ones(length, dtype=residue_dtype(bits)), bits, LABEL)
    members = replace(members, vectors=dict.fromkeys(members.numbers, flat))
    sent = []

    def uplink(stage, number, data):
        if stage is Stage.MASKED_INPUT:
            sent.append(np.frombuffer(MaskedVector.decode(data).vector, dtype=residue_dtype(bits)))
        return data

    outcome = members.run(FaultScript(uplink=uplink))
    assert set(outcome.total.values.tolist()) == {3}
    for values in sent:
        ones = np.array([((values >> j) & 1).sum(dtype=np.int64) for j in range(bits)])
        statistic = float(((ones - length / 2) ** 2 / (length / 4)).sum())
        assert statistic < chi2.isf(1e-7 / 3, bits)


@pytest.mark.parametrize(
    "stage", [Stage.SHARE_KEYS, Stage.MASKED_INPUT, Stage.CONSISTENCY_CHECK, Stage.UNMASK]
)
def test_a_message_that_the_network_changed_stops_its_client(stage):
    members = cohort(3, 5)

    def downlink(at, number, data):
        return data[:70] + b"?" + data[71:] if at is stage else data

    with pytest.raises(ProtocolError):
        members.run(FaultScript(downlink=downlink))


def test_memory_does_not_grow_with_the_number_of_rounds():
    """A round has five vectors of 32 kB, 20 envelopes and 15 verified messages."""
    members = cohort(5, 1 << 14, dropouts=1)

    def held_after(rounds: range) -> int:
        for number in rounds:
            round_ = replace(members.round, round_id=number.to_bytes(32, "big"))
            replace(members, round=round_).run(context=f"round {number}")
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        # What is remembered of the last rounds is bounded: after ten of them nothing is added.
        before = held_after(range(10))
        assert held_after(range(10, 50)) - before < 64_000
    finally:
        tracemalloc.stop()
