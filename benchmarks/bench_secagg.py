"""What does a round cost a client and the server as the cohort grows to ten thousand?

A few clients are timed by themselves, each step as in a process that remembers nothing: keys,
shares, masks, reading the lists, the ring, and all signatures that a client verifies. What is
linear in the cohort, reading the roll and the ring, is also shown apart. All ten thousand clients
really run, which takes about ten minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import log2
from statistics import median
from typing import Any

import numpy as np
from benchmarks.timing import Report

from skellam.entropy import SystemEntropy
from skellam.secagg import (
    History,
    Identity,
    Party,
    Roster,
    Round,
    Setting,
    Topology,
    client,
    graph,
    participants,
    server,
)
from skellam.vectors import Residues

SIZES = (100, 1000, 10_000)
LENGTH, BITS = 64, 16
SILENT = COLLUDING = 20
"""One in so many is tolerated."""
SAMPLE = 10
REMEMBERED: tuple[Any, ...] = (
    graph.topology,
    graph.graph,
    participants.enrolled,
    participants._attested,  # noqa: SLF001
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
    for clients in SIZES:
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


def measure(clients: int) -> Cost:
    """Run a whole round and return what it cost, on average, a few of its clients."""
    entropy = SystemEntropy()
    identities = [Identity.generate(i, entropy=entropy) for i in range(clients)]
    roster = Roster({identity.number: identity.public for identity in identities})
    this = Round(
        round_id=bytes(32),
        plan=bytes(32),
        model=bytes(32),
        bits=BITS,
        length=LENGTH,
        dropouts=clients // SILENT,
        colluders=clients // COLLUDING,
        least=clients,
    )
    vector = Residues(np.ones(LENGTH, dtype=np.uint16), BITS)
    cost = Cost(this.topology(clients))
    phases: list[Any] = [client.Advertise(Party(this, roster, each)) for each in identities]

    def advertise(phase: client.Advertise, _: bytes) -> tuple[Any, bytes]:
        return phase.step(history=History(), entropy=entropy)[:2]

    steps: list[Callable[[Any, bytes], tuple[Any, bytes]]] = [
        advertise,
        lambda phase, letter: phase.step(letter, entropy=entropy),
        lambda phase, letter: phase.step(letter, vector),
        lambda phase, letter: phase.step(letter),
        lambda phase, letter: phase.step(letter, entropy=entropy),
    ]
    desk: Any = server.Enrol(Setting(this, roster))
    outgoing: Any = b""
    for step in steps:
        if desk.TAG == server.Relay.TAG:
            cost.linear = linear(outgoing, this, roster)
        sent = []
        for number, phase in enumerate(phases):
            letter = outgoing.pop(number) if isinstance(outgoing, dict) else outgoing
            if number < SAMPLE:
                forget()
            start = time.thread_time()
            phases[number], data = step(phase, letter)
            if number < SAMPLE:
                cost.clients[number] += time.thread_time() - start
                cost.sent += len(data) // SAMPLE
                cost.received += len(letter) // SAMPLE
            sent.append(data)
        start = time.thread_time()
        result = desk.step(sent)
        cost.server += time.thread_time() - start
        if isinstance(result, tuple):
            desk, outgoing = result
    if set(result.total.values.tolist()) != {clients % (1 << BITS)}:
        raise AssertionError("the sum is wrong")
    return cost


def linear(roll: bytes, this: Round, roster: Roster) -> float:
    """Return the least time that reading the roll, finding it on the roster and the ring take."""

    def once() -> float:
        forget()
        this.topology(this.least)
        start = time.thread_time()
        peers = participants.enrolled(roll, this)
        participants.find(peers.ids, roster.numbers, "is not on the roster")
        peers.graph  # noqa: B018
        return time.thread_time() - start

    return min(once() for _ in range(SAMPLE))


def forget() -> None:
    """Forget what this process knows of lists and rings."""
    for function in REMEMBERED:
        function.cache_clear()
