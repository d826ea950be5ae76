"""What does a round cost a client and the server as the cohort grows to ten thousand?

A few clients are timed by themselves, each step as in a process that remembers nothing: keys,
shares, masks, reading the lists, the ring, and all signatures that a client verifies. What is
linear in the cohort, reading the list and the ring, is also shown apart. All ten thousand clients
really run, which takes about ten minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from math import log2
from statistics import median
from typing import Any

import numpy as np
from benchmarks.timing import Report

from skellam.cohorts import Tolerance
from skellam.entropy import SystemEntropy
from skellam.secagg import (
    Identity,
    Party,
    Roster,
    RoundParameters,
    SeenRounds,
    Setting,
    Topology,
    client,
    graph,
    messages,
    server,
)
from skellam.vectors import Residues

SIZES = (100, 1000, 10_000)
LENGTH, BITS = 64, 16
TOLERATED = Fraction(1, 20)
"""Of a cohort that is the whole population: so many dropouts, and exactly so many colluders."""
SAMPLE = 10
REMEMBERED: tuple[Any, ...] = (
    graph.sparsest,
    graph.graph,
    messages.participants_of,
    messages._verified,  # noqa: SLF001
)


@dataclass
class Cost:
    """Seconds of CPU, and bytes, of one round."""

    shape: Topology
    clients: list[float] = field(default_factory=lambda: [0.0] * SAMPLE)
    server: float = 0.0
    linear: float = 0.0
    sent: int = 0
    received: int = 0

    @property
    def client(self) -> float:
        """What a client computes in all."""
        return median(self.clients)


def main() -> None:
    show(SIZES)


def sample() -> None:
    """Leave out ten thousand clients."""
    show(SIZES[:2])


def show(sizes: tuple[int, ...]) -> None:
    """Print what a round costs for each number of clients."""
    report = Report(
        f"A round of {LENGTH} residues, 5 % dropouts and 5 % colluders tolerated; "
        "ratio: how a client's whole cost grew, over how log n did",
        "clients",
        "neighbours",
        "sample",
        "client ms",
        "linear ms",
        "over log2 n",
        "server ms a client",
        "kB sent",
        "kB received",
    )
    before = None
    for clients in sizes:
        cost = measure(clients)
        of_log = cost.client / log2(clients)
        report.row(
            f"{clients:,}",
            str(cost.shape.degree),
            str(cost.shape.sample),
            f"{cost.client * 1e3:.1f}",
            f"{cost.linear * 1e3:.2f}",
            f"{of_log * 1e3:.2f}",
            f"{cost.server / clients * 1e3:.2f}",
            f"{cost.sent / 1e3:.1f}",
            f"{cost.received / 1e3:.1f}",
            ratio=of_log / before if before else None,
            ceiling=1.0,
        )
        before = of_log
    report.print()


@cache
def measure(clients: int) -> Cost:
    """Run a whole round and return what it cost, on average, a few of its clients."""
    entropy = SystemEntropy()
    identities = [Identity.generate(i, entropy=entropy) for i in range(clients)]
    roster = Roster({identity.number: identity.public for identity in identities})
    round_ = RoundParameters(
        round_id=bytes(32),
        plan=bytes(32),
        model=bytes(32),
        bits=BITS,
        length=LENGTH,
        tolerance=Tolerance(TOLERATED, TOLERATED, population=clients),
        min_participants=clients,
    )
    vector = Residues(np.ones(LENGTH, dtype=np.uint16), BITS)
    cost = Cost(round_.topology(clients))
    phases: list[Any] = [client.AdvertiseKeys(Party(round_, roster, each)) for each in identities]

    def advertise(phase: client.AdvertiseKeys, _: bytes) -> tuple[Any, bytes]:
        return phase.step(seen=SeenRounds(), entropy=entropy)[:2]

    steps: list[Callable[[Any, bytes], tuple[Any, bytes]]] = [
        advertise,
        lambda phase, message: phase.step(message, entropy=entropy),
        lambda phase, message: phase.step(message, vector),
        lambda phase, message: phase.step(message),
        lambda phase, message: phase.step(message, entropy=entropy),
    ]
    server_phase: Any = server.CollectKeys(Setting(round_, roster))
    outgoing: Any = b""
    for step in steps:
        if server_phase.TAG == server.CollectShares.TAG:
            cost.linear = linear(outgoing, round_, roster)
        sent = []
        for number, phase in enumerate(phases):
            message = outgoing.pop(number) if isinstance(outgoing, dict) else outgoing
            if number < SAMPLE:
                forget()
            start = time.thread_time()
            phases[number], data = step(phase, message)
            if number < SAMPLE:
                cost.clients[number] += time.thread_time() - start
                cost.sent += len(data) // SAMPLE
                cost.received += len(message) // SAMPLE
            sent.append(data)
        start = time.thread_time()
        result = server_phase.step(sent)
        cost.server += time.thread_time() - start
        if isinstance(result, tuple):
            server_phase, outgoing = result
    if set(result.total.values.tolist()) != {clients % (1 << BITS)}:
        raise AssertionError("the sum is wrong")
    return cost


def linear(listed: bytes, round_: RoundParameters, roster: Roster) -> float:
    """Return the least time that reading the list, finding it on the roster and the ring take."""

    def once() -> float:
        forget()
        round_.topology(round_.min_participants)
        start = time.thread_time()
        peers = messages.participants_of(listed, round_)
        messages.find(peers.ids, roster.numbers, "is not on the roster")
        peers.graph  # noqa: B018
        return time.thread_time() - start

    return min(once() for _ in range(SAMPLE))


def forget() -> None:
    """Forget what this process knows of lists and rings."""
    for function in REMEMBERED:
        function.cache_clear()
