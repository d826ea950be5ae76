"""What does a round of two servers cost a client and the servers as the cohort grows?

A client's work beyond encoding must not depend on the cohort: one mask, two seals, two signatures.
Beside it, in the same run, a client of this library's secure aggregation and the primitives that a
client of Flower's SecAgg+ computes (keys, secret shares, agreed keys and masks for each of its
neighbours; its messages and its server are left out). Then ten thousand clients of ten thousand
coordinates in one process.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median

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
    )
    first = None
    for clients in SIZES:
        cost = measure(clients, bench_secagg.LENGTH)
        rival = f"{bench_secagg.measure(clients).client * 1e3:.1f}" if clients <= 1000 else "-"
        first = first or cost.client
        report.row(
            f"{clients:,}",
            f"{cost.client * 1e3:.2f}",
            f"{cost.leader / clients * 1e3:.2f}",
            f"{cost.helper / clients * 1e3:.2f}",
            f"{cost.sent / 1e3:.1f}",
            rival,
            f"{secagg_plus(NEIGHBOURS[clients], bench_secagg.LENGTH) * 1e3:.1f}",
            ratio=cost.client / first,
            ceiling=1.5,
        )
    report.print()
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
    """Return the seconds of what a client of Flower's SecAgg+ computes for its neighbours."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from flwr.common.secure_aggregation.crypto.shamir import create_shares
    from flwr.common.secure_aggregation.crypto.symmetric_encryption import (
        encrypt,
        generate_shared_key,
    )
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

    others = [ec.generate_private_key(ec.SECP384R1()).public_key() for _ in range(neighbours)]

    def once() -> float:
        begun = time.thread_time()
        mine = [ec.generate_private_key(ec.SECP384R1()) for _ in range(2)]
        for secret in (bytes(32), bytes(range(64)) * 3):
            create_shares(secret, neighbours // 2 + 1, neighbours)
        for other in others:
            encrypt(generate_shared_key(mine[0], other), bytes(300))
            pseudo_rand_gen(generate_shared_key(mine[1], other), 1 << 24, [(length,)])
        pseudo_rand_gen(bytes(32), 1 << 24, [(length,)])
        return time.thread_time() - begun

    return median(once() for _ in range(SAMPLE))
