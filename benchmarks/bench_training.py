"""What does privacy add to a round of training, against Flower's simulation that adds none?

100 clients hand 2^20 numbers each to the server. Flower's simulation (Ray) carries them there and
back as floats; ours encodes them with noise, adds them up and decodes, without masks or by the
whole secure-aggregation protocol. Seconds on the clock, since both have processes of their own.
Ours is run before Ray is started and again after it has ended, for Ray's idle processes take their
part of the cores; each is shown by its median, Flower's without its first round, in which it starts
its actors.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import median

import numpy as np
from benchmarks.bench_codec import using
from benchmarks.timing import Report

import skellam as sk
from skellam import federated as fl
from skellam.engines.local import Aggregate, Round, secure, unmasked
from skellam.federated.data import Examples
from skellam.plan import CalibratedPlan
from skellam.tasks import models

CLIENTS, SIZE, ROUNDS = 100, 1 << 20, 4
ENTROPY = sk.SystemEntropy()
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
}


def main() -> None:
    report = Report("A round of training", "what", "s", "peer", "its s", peers=("peer", "its s"))
    typical = {name: median(found) for name, found in overhead().items()}
    flower = typical.pop("Flower")
    floors = {"unmasked, NumPy": 2, "unmasked, Numba": 3, "unmasked, as installed": 3}
    for name, ours in typical.items():
        cells = (name, f"{ours:.3g}", "Flower, no privacy / ours", f"{flower:.3g}")
        report.row(*cells, ratio=flower / ours, floor=floors.get(name))
    for name, (share, most) in noise_shares().items():
        report.row(f"noise / round, {name}", "", "", "", ratio=share, ceiling=most)
    report.print()


@dataclass
class Clock:
    """Seconds of each rival, by name."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def time(self, name: str, run: Callable[[], object]) -> None:
        """Run, and write down how long it took."""
        start = time.perf_counter()
        run()
        self.seconds.setdefault(name, []).append(time.perf_counter() - start)


def overhead() -> dict[str, list[float]]:
    """Return the seconds of every rival."""
    plan = sk.Plan(
        dimension=SIZE, clip=1.0, cohort=CLIENTS, rounds=1, sampling="all", bits=12, dropout=0.05
    ).with_noise(1.0)
    vector = np.random.default_rng(1).standard_normal(SIZE, dtype=np.float32)
    ours = {
        "unmasked, NumPy": using("NumPy", lambda: run_round(unmasked, plan, vector)),
        "unmasked, Numba": using("Numba", lambda: run_round(unmasked, plan, vector)),
        "unmasked, as installed": lambda: run_round(unmasked, plan, vector),
    }
    clock = Clock()

    def turns() -> None:
        for _ in range(ROUNDS):
            for name, run in ours.items():
                clock.time(name, run)

    for run in ours.values():
        run()
    turns()

    def carry_on(carry: Callable[[], object]) -> None:
        carry()
        for _ in range(2 * ROUNDS):
            clock.time("Flower", carry)

    simulate(carry_on)
    turns()
    clock.time("secure", lambda: run_round(secure, plan, vector))
    return clock.seconds


def run_round(aggregate: Aggregate, plan: CalibratedPlan, vector: np.ndarray) -> object:
    round_ = Round(0, bytes(32), tuple(range(CLIENTS)))
    return aggregate(plan, round_, lambda _: vector, entropy=lambda _: ENTROPY)


def simulate(turn: Callable[[Callable[[], object]], None]) -> None:
    """Start Flower's simulation and call ``turn`` in it with what carries one round's vectors."""
    os.environ.update(QUIET)
    from flwr.app import ArrayRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.simulation import run_simulation

    client, server = ClientApp(), ServerApp()
    vector = np.zeros(SIZE, dtype=np.float32)

    @client.train()
    def answer(message: Message, context: Context) -> Message:  # noqa: ARG001
        return Message(message.content, reply_to=message)

    @server.main()
    def main(grid: Grid, context: Context) -> None:  # noqa: ARG001
        while len(nodes := list(grid.get_node_ids())) < CLIENTS:
            time.sleep(0.1)

        def carry() -> np.ndarray:
            content = RecordDict({"vector": ArrayRecord([vector])})
            replies = grid.send_and_receive([Message(content, node, "train") for node in nodes])
            arrays = [reply.content["vector"].to_numpy_ndarrays()[0] for reply in replies]
            if len(arrays) != CLIENTS:
                raise RuntimeError(f"{len(arrays)} of {CLIENTS} vectors came back")
            return np.sum(arrays, axis=0)

        turn(carry)

    run_simulation(
        server, client, CLIENTS, backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0}}
    )


def noise_shares() -> dict[str, tuple[float, float | None]]:
    """Return the part of a round's CPU time that trains no client, and the most it may be.

    Seeds keep all of a round's work in this process. Two examples a client are hardly any training:
    there is no limit for that.
    """
    return {
        "EMNIST's network, 100 examples": (noise_share(models.paper_cnn, 62, 5, 100), 0.5),
        "small network, 40 examples": (noise_share(models.small_cnn, 62, 50, 40), 0.5),
        "linear model, 2 examples": (noise_share(models.linear, 10, 150, 2), None),
    }


def noise_share(model: Callable[[], object], classes: int, clients: int, each: int) -> float:
    rng = np.random.default_rng(2)
    images = rng.random((each, 28, 28), dtype=np.float32)
    examples = Examples(images, rng.integers(0, classes, each))
    task = fl.Task(model(), {"each": examples}, optimizer=fl.sgd(0.1), batch_size=20)
    worker, start = task.worker(), task.initial(entropy=ENTROPY)
    plan = sk.Plan(
        dimension=len(start), clip=1.0, cohort=clients, rounds=1, sampling="all"
    ).with_noise(1.0)
    round_ = Round(0, bytes(32), tuple(range(clients)))
    busy = 0.0

    def update(_: int) -> np.ndarray:
        nonlocal busy
        began = time.thread_time()
        moved = worker.update(start, "each", 0, entropy=ENTROPY)
        busy += time.thread_time() - began
        return moved

    seeded = partial(sk.SeededEntropy, bytes(32))
    unmasked(plan, round_, update, entropy=seeded)
    busy, began = 0.0, time.process_time()
    unmasked(plan, round_, update, entropy=seeded)
    return 1 - busy / (time.process_time() - began)


if __name__ == "__main__":
    main()
