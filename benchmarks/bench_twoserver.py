"""What does a round of two servers cost a client and the servers as the cohort grows?

A client's work beyond encoding must not depend on the cohort: one mask, two seals, two signatures.
Beside it, in the same run, a client of this library's secure aggregation (which takes minutes among
ten thousand; the benchmark ``secagg`` in the same process has measured it already) and a client of
Flower's SecAgg+: the four stages of its mod among as many neighbours, without its messages and its
server. Then ten thousand clients of ten thousand coordinates in one process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from benchmarks import bench_secagg
from benchmarks.timing import Report

from skellam.entropy import SystemEntropy
from skellam.protocol.identity import Identity
from skellam.twoserver import RunConstants, client, helper, simulation
from skellam.twoserver.client import ClientState, Inputs
from skellam.vectors import Residues

SIZES = (100, 1000, 10_000)
SAMPLE = 3
LARGE = 10_000, 10_000
"""Clients and coordinates of the round in one process."""
NEIGHBOURS = {100: 20, 1000: 30, 10_000: 40}
"""Of a client of SecAgg+ (Bell et al. 2020 for about 5 % colluders and dropouts)."""


@dataclass
class Cost:
    """Seconds of CPU of one round: a client in the middle, the servers in all; bytes sent."""

    client: float
    leader: float
    helper: float
    sent: int


def main() -> None:
    growth(SIZES)
    large()


def sample() -> None:
    """Leave out ten thousand clients."""
    growth(SIZES[:2])


def growth(sizes: tuple[int, ...]) -> None:
    """Print what a round costs for each number of clients."""
    report = Report(
        f"A round of {bench_secagg.LENGTH} residues; ratio: a client's work over that among "
        f"{SIZES[0]} clients",
        "clients",
        "client ms",
        "leader ms a client",
        "helper ms a client",
        "kB sent",
        "secagg: client ms",
        "SecAgg+: client ms",
        peers=("secagg: client ms", "SecAgg+: client ms"),
    )
    first = None
    for clients in sizes:
        cost = measure(clients, bench_secagg.LENGTH)
        first = first or cost.client
        report.row(
            f"{clients:,}",
            f"{cost.client * 1e3:.2f}",
            f"{cost.leader / clients * 1e3:.2f}",
            f"{cost.helper / clients * 1e3:.2f}",
            f"{cost.sent / 1e3:.1f}",
            f"{bench_secagg.measure(clients).client * 1e3:.1f}",
            f"{secagg_plus(NEIGHBOURS[clients], bench_secagg.LENGTH) * 1e3:.1f}",
            ratio=cost.client / first,
            ceiling=1.5,
        )
    report.print()


def large() -> None:
    """Print what the servers do for many clients with many coordinates."""
    clients, length = LARGE
    start = time.perf_counter()
    cost = measure(clients, length)
    whole = time.perf_counter() - start
    report = Report(
        f"{clients:,} clients of {length:,} coordinates in one process: {whole:.0f} s",
        "client ms",
        "leader ms a client",
        "helper ms a client",
    )
    parts = (cost.client, cost.leader / clients, cost.helper / clients)
    report.row(*(f"{x * 1e3:.2f}" for x in parts))
    report.print()


def measure(clients: int, length: int) -> Cost:
    """Run a whole round and return what it cost."""
    entropy = SystemEntropy()
    constants = RunConstants(
        run_id=bytes(32),
        plan=bytes(32),
        variance=100.0,
        norm_bound=10.0,
        participations=1,
        bits=bench_secagg.BITS,
        length=length,
        rounds=1,
        min_cohort=2,
    )
    identities = [Identity.generate(i, entropy=entropy) for i in range(clients)]
    run = simulation.begin(constants, identities, entropy=entropy)
    collecting = run.leader.begin(0, bytes(32))
    start_message = collecting.start_message(setting=run.leader_setting)
    inputs = Inputs(bytes(32), bytes(32), 10.0)
    vector = Residues(np.ones(length, dtype=np.uint16), bench_secagg.BITS)
    spent, reports = [], []
    for number in range(clients):
        begun = time.thread_time()
        joined = client.join(
            ClientState(), run.leader.offer, start_message, party=run.parties[number], inputs=inputs
        )
        reports.append(joined.report(vector, entropy=entropy).message)
        spent.append(time.thread_time() - begun)
    begun = time.thread_time()
    waiting = collecting.add(reports, setting=run.leader_setting).close()
    job = waiting.job(setting=run.leader_setting)
    collected = time.thread_time() - begun
    begun = time.thread_time()
    answered = helper.handle(run.helper, job, setting=run.helper_setting)
    helped = time.thread_time() - begun
    begun = time.thread_time()
    idle = waiting.open(answered.reply, setting=run.leader_setting)
    collected += time.thread_time() - begun
    release = idle.release
    if release is None or abs(float(np.mean(release.estimate.values)) - clients) > 100:
        raise AssertionError("the sum is wrong")
    return Cost(median(spent), collected, helped, len(reports[0]))


def secagg_plus(neighbours: int, length: int) -> float:
    """Return the seconds of a client of Flower's SecAgg+ with so many neighbours, in all stages."""
    from flwr.client.mod.secure_aggregation.secaggplus_mod import (
        SecAggPlusState,
        _collect_masked_vectors,
        _setup,
        _share_keys,
        _unmask,
    )
    from flwr.common import ConfigRecord, ndarrays_to_parameters

    settings = {
        "sample_num": neighbours + 1,
        "share_num": neighbours + 1,
        "threshold": neighbours // 2 + 1,
        "clipping_range": 8.0,
        "target_range": 1 << 16,
        "mod_range": 1 << 24,
        "max_weight": 1.0,
    }
    vector = ndarrays_to_parameters([np.ones(length, dtype=np.float32)])
    everybody = [SecAggPlusState(nid=i) for i in range(neighbours + 1)]

    def once() -> float:
        spent = 0.0

        def stage(step: Callable[..., Any], *given: dict[str, Any]) -> list[Any]:
            nonlocal spent
            replies = []
            for state, config in zip(everybody, given, strict=True):
                begun = time.thread_time()
                replies.append(step(state, ConfigRecord(config)))
                spent += (time.thread_time() - begun) * (state is everybody[0])
            return replies

        keys = stage(_setup, *[settings] * len(everybody))
        public = {str(i): [each["pk1"], each["pk2"]] for i, each in enumerate(keys)}
        dealt = stage(_share_keys, *[public] * len(everybody))
        inboxes = [_inbox(i, dealt) for i in range(len(everybody))]
        stage(lambda state, inbox: _collect_masked_vectors(state, inbox, 1, vector), *inboxes)
        alive = {"active_nids": [*range(neighbours + 1)], "dead_nids": list[int]()}
        stage(_unmask, *[alive] * len(everybody))
        return spent

    return median(once() for _ in range(SAMPLE))


def _inbox(receiver: int, dealt: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the server of SecAgg+ passes on to one client."""
    envelopes = {
        sender: dict(zip(each["dsts"], each["ctxts"], strict=True))
        for sender, each in enumerate(dealt)
        if sender != receiver
    }
    return {
        "srcs": list(envelopes),
        "ctxts": [envelope[receiver] for envelope in envelopes.values()],
    }
