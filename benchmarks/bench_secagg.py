"""What does a round cost a client and the server as the cohort grows to ten thousand?

A few clients are timed by themselves, without what the process remembers of other clients' lists.
Verifying who takes part, who survived and who agrees is one signature each for every participant:
that is the price of counting the cohort oneself, it is linear, and it is shown apart.
All ten thousand clients really run, which takes about five minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
from benchmarks.timing import Report

from skellam.entropy import SystemEntropy
from skellam.secagg import History, Identity, Party, Roster, Round, Setting, client, server
from skellam.secagg.messages import Advertisement, Agreement, Receipt
from skellam.secagg.participants import verified
from skellam.vectors import Residues

SIZES = (100, 1000, 10_000)
LENGTH, BITS = 64, 16
SAMPLE = 10


@dataclass
class Cost:
    """Seconds of CPU, and bytes, of one round."""

    clients: int
    degree: int = 0
    neighbours: float = 0.0
    """A client's work on keys, shares and masks of its neighbours."""
    lists: float = 0.0
    """A client's verification of the signed lists."""
    server: float = 0.0
    sent: int = 0
    received: int = 0


def main() -> None:
    report = Report(
        f"A round of {LENGTH} residues, 5 % dropouts and 1 % colluders tolerated; "
        "ratio: growth of a client's work without the lists since n = 100, over that of log n",
        "clients",
        "neighbours",
        "client ms",
        "and lists ms (linear)",
        "server ms a client",
        "kB sent",
        "kB received",
    )
    base: Cost | None = None
    for clients in SIZES:
        cost = measure(clients)
        base = base or cost
        growth = cost.neighbours / base.neighbours / (log(clients) / log(base.clients))
        report.row(
            f"{clients:,}",
            str(cost.degree),
            f"{cost.neighbours * 1e3:.1f}",
            f"{cost.lists * 1e3:.1f}",
            f"{cost.server / clients * 1e3:.2f}",
            f"{cost.sent / 1e3:.1f}",
            f"{cost.received / 1e3:.1f}",
            ratio=growth,
            ceiling=1.0,
        )
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
        dropouts=clients // 20,
        colluders=clients // 100,
        least=clients,
    )
    vector = Residues(np.ones(LENGTH, dtype=np.uint16), BITS)
    cost = Cost(clients, degree=this.topology(clients).degree)
    phases: list[Any] = [client.Advertise(Party(this, roster, each)) for each in identities]

    def advertise(phase: client.Advertise, _: bytes) -> tuple[Any, bytes]:
        return phase.step(history=History(), entropy=entropy)[:2]

    steps: list[tuple[Callable[[Any, bytes], tuple[Any, bytes]], Any]] = [
        (advertise, None),
        (lambda phase, letter: phase.step(letter, entropy=entropy), Advertisement),
        (lambda phase, letter: phase.step(letter, vector), None),
        (lambda phase, letter: phase.step(letter), Receipt),
        (lambda phase, letter: phase.step(letter), Agreement),
    ]
    desk: Any = server.Enrol(Setting(this, roster))
    outgoing: Any = b""
    for step, listed in steps:
        if listed:
            cost.lists += _verify(listed, outgoing, roster, phases[0])
        sent = []
        for number, phase in enumerate(phases):
            letter = outgoing.pop(number) if isinstance(outgoing, dict) else outgoing
            start = time.thread_time()
            phases[number], data = step(phase, letter)
            if number < SAMPLE:
                cost.neighbours += (time.thread_time() - start) / SAMPLE
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


def _verify(kind: Any, letter: bytes, roster: Roster, phase: Any) -> float:
    """Return what verifying the list costs a client that has not seen it, and remember it."""
    context = phase.setting.round.digest if kind is Advertisement else phase.context
    start = time.thread_time()
    verified(kind, letter, roster, context)
    return time.thread_time() - start
