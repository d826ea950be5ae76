"""What `bench_release` times, for this release and for 0.1.0, whose names differ.

``python release_cases.py CASE`` prints what one run of a case took, with whichever ``skellam`` is
first on the path: seconds of processor time of all threads, or what the case is measured in.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import skellam as sk

OLD = sk.__version__ == "0.1.0"
ENTROPY = sk.SystemEntropy()
LONG = 1 << 20


def processor(run: Callable[[], object], *, repeats: int = 1) -> float:
    """Return the least processor time of some runs, after one that is not counted."""
    took = []
    for _ in range(repeats + (repeats > 1)):
        start = time.process_time()
        run()
        took.append(time.process_time() - start)
    return min(took[-repeats:])


def one_round(
    aggregate: str, clients: int, dimension: int, *, dropout: float = 0.0
) -> Callable[[], object]:
    """Sum the vectors of so many clients; 0.1.0 has no way to draw all noise at once."""
    from skellam.engines import local

    plan = sk.Plan(
        dimension=dimension,
        clip=1.0,
        bits=16,
        cohort=clients,
        population=clients * 10,
        rounds=10,
        dropout=dropout,
    ).with_noise(1.0)
    vectors = np.random.default_rng(1).normal(size=(50, dimension)).astype(np.float32)
    vectors /= np.sqrt(dimension)
    run = getattr(local, "clear" if OLD and aggregate != "secure" else aggregate)
    round_ = local.Round(1, bytes(32), tuple(range(clients)))
    return lambda: run(plan, round_, lambda n: vectors[n % 50], entropy=lambda _: ENTROPY)


def aggregation(clients: int, length: int) -> Callable[[], object]:
    """Run the protocol among so many clients of whom a twentieth drop out."""
    from skellam import secagg
    from skellam.vectors import Residues

    gone = clients // 20
    identities = [secagg.Identity.generate(n, entropy=ENTROPY) for n in range(clients)]
    vector = Residues(np.ones(length, dtype=np.uint16), 16)
    shared = {"round_id": bytes(32), "plan": bytes(32), "model": bytes(32)}
    shared |= {"bits": 16, "length": length}

    def run() -> None:
        if OLD:
            this = secagg.Round(**shared, dropouts=gone, colluders=gone, least=clients)
            script = secagg.bus.Script(silent={secagg.bus.Stage.MASK: range(gone)})
            settings = {"entropy": ENTROPY, "script": script}
            outcome = secagg.bus.run(this, identities, lambda *_: vector, **settings)
        else:
            from skellam.cohorts import Tolerance
            from skellam.secagg import simulation

            twentieth = Fraction(1, 20)
            tolerance = Tolerance(twentieth, twentieth, population=clients)
            this = secagg.RoundParameters(**shared, tolerance=tolerance, min_participants=clients)
            faults = simulation.FaultScript({simulation.Stage.MASKED_INPUT: range(gone)})
            settings = {"entropy": ENTROPY, "faults": faults}
            outcome = simulation.run(this, identities, lambda *_: vector, **settings)
        assert set(outcome.total.values.tolist()) == {clients - gone}

    return run


def local_training(model: str, clients: int = 100) -> Callable[[], object]:
    """Train so many clients once: 0.1.0 one by one, this release at once."""
    rng = np.random.default_rng(1)
    count, classes, batch = (2, 10, 10) if model == "linear" else (20, 10, 20)
    images = rng.random((clients, count, 28, 28), dtype=np.float32)
    targets = rng.integers(0, classes, (clients, count))
    if OLD:
        from skellam.federated import local, models
        from skellam.federated.data import Examples

        made = getattr(models, model)(classes)
        learner, training = local.Learner(made), local.LocalTraining(0.1, batch)
        examples = [Examples(*each) for each in zip(images, targets, strict=True)]
        start = models.flatten(made)
        return lambda: [learner.update(start, x, training, entropy=ENTROPY) for x in examples]
    from skellam import federated as fl
    from skellam.tasks import models

    data = {str(n): (images[n], targets[n]) for n in range(clients)}
    task = fl.Task(getattr(models, model)(classes), data, optimizer=fl.sgd(0.1), batch_size=batch)
    worker, start = task.worker(), task.initial(entropy=ENTROPY)
    worker.rehearse(start, entropy=ENTROPY)
    return lambda: worker.updates(start, list(data), 0, entropy=[ENTROPY] * clients)


def packing(*, back: bool) -> Callable[[], object]:
    """Pack residues of 14 bits, or unpack them."""
    if OLD:
        from skellam.codec.wire import pack, unpack
    else:
        from skellam.vectors import pack_residues as pack
        from skellam.vectors import unpack_residues as unpack
    values = np.random.default_rng(1).integers(0, 1 << 14, LONG).astype(np.uint16)
    packed = pack(values, 14)
    return lambda: unpack(packed, LONG, 14) if back else pack(values, 14)


def unmasking() -> Callable[[], object]:
    """Take the masks of 1,000 clients off a sum, as the server does."""
    if OLD:
        from skellam.secagg.masks import add_masks
    else:
        from skellam.protocol.masks import add_masks
    total = np.zeros(50_000, dtype=np.uint16)
    seeds = [n.to_bytes(32, "big") for n in range(1000)]
    workers = {} if OLD else {"workers": os.cpu_count()}
    return lambda: add_masks(total, bits=16, added=(), subtracted=seeds, **workers)


def wrap_peak() -> float:
    """Return the most bytes a coordinate that the wrap estimate of a sum takes."""
    if OLD:
        from skellam.codec.wrap import wrap_estimate
    else:
        from skellam.codec.arithmetic import wrap_estimate
    from skellam.vectors import Residues

    values = np.random.default_rng(1).normal(0, 1e4, LONG).astype(np.int64) % (1 << 20)
    total = Residues(values.astype(np.uint32), 20)
    wrap_estimate(total)
    tracemalloc.start()
    wrap_estimate(total)
    return tracemalloc.get_traced_memory()[1] / LONG


def different_spends(count: int) -> float:
    """Return the seconds of the last of so many spends of different mechanisms."""
    from skellam.accounting import Skellam
    from skellam.accounting.ledger import Ledger

    with (
        TemporaryDirectory() as folder,
        Ledger.create(Path(folder) / "ledger", epsilon=100.0, delta=1e-6) as ledger,
    ):
        for n in range(count):
            noise = Skellam(4e6 + 1000 * n, 1.0, dimension=10)
            took = processor(lambda noise=noise, n=n: ledger.spend(noise, key=b"%d" % n))
        return took


def shown_help() -> None:
    """Show what ``skellam --help`` shows, in a process of its own."""
    command = [sys.executable, "-c", "from skellam.cli import app; app()", "--help"]
    subprocess.run(command, check=True, capture_output=True)


def wall(run: Callable[[], object], *, repeats: int = 9) -> float:
    """Return the least time of some runs by the clock on the wall."""
    took = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        took.append(time.perf_counter() - start)
    return min(took)


def with_kernels(name: str, run: Callable[[], object]) -> Callable[[], object]:
    os.environ["SKELLAM_KERNELS"] = name
    return run


CASES: dict[str, Callable[[], float]] = {
    "secure round": lambda: processor(one_round("secure", 150, 7850, dropout=0.1), repeats=3),
    "drawn once, NumPy": lambda: processor(
        with_kernels("numpy", one_round("trusted_sum", 100, 65_536)), repeats=3
    ),
    "drawn once, Numba": lambda: processor(
        with_kernels("numba", one_round("trusted_sum", 100, 65_536)), repeats=3
    ),
    "small clients, NumPy": lambda: processor(
        with_kernels("numpy", one_round("unmasked", 10_000, 10_000))
    ),
    "small clients, Numba": lambda: processor(
        with_kernels("numba", one_round("unmasked", 10_000, 10_000))
    ),
    "linear model": lambda: processor(local_training("linear"), repeats=3),
    "small CNN": lambda: processor(local_training("small_cnn"), repeats=3),
    "pack": lambda: processor(packing(back=False), repeats=9),
    "unpack": lambda: processor(packing(back=True), repeats=9),
    "wrap": wrap_peak,
    "unmask": lambda: wall(unmasking()),
    "help": lambda: wall(shown_help),
    "spend": lambda: different_spends(50),
    "300 x 64": lambda: processor(aggregation(300, 64)),
    "200 x 10,000": lambda: processor(aggregation(200, 10_000)),
    "1,000 x 10,000": lambda: processor(aggregation(1000, 10_000)),
    "10,000 x 64": lambda: processor(aggregation(10_000, 64)),
}

if __name__ == "__main__":
    print(CASES[sys.argv[1]]())
