"""Are our processes worth their code? The messages of 16 clients against loky's, by the clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import numpy as np
from benchmarks.timing import Report

import skellam as sk
from skellam.codec import Codec
from skellam.engines import workers
from skellam.vectors import Residues

DIMENSION, CLIENTS, PROCESSES, ROUNDS = 1 << 20, 16, 2, 5
CEILING = 0.8
"""Above this part of loky's time loky would do, which others look after."""


def main() -> None:
    from joblib.externals.loky import get_reusable_executor

    plan = sk.Plan(dimension=DIMENSION, clip=1.0, cohort=CLIENTS, rounds=1, sampling="all")
    codec = plan.with_noise(1.0, delta=1e-5).codec(public_seed=bytes(32))
    vector = np.full(DIMENSION, 1e-4, dtype=np.float32)
    executor = get_reusable_executor(max_workers=PROCESSES, timeout=600)

    def ours() -> None:
        _add(codec, workers.encode(codec, [(vector, None)] * CLIENTS, processes=PROCESSES))

    def theirs() -> None:
        _add(codec, executor.map(_encode, [codec] * CLIENTS, [vector] * CLIENTS))

    def alone() -> None:
        entropy = sk.SystemEntropy()
        _add(codec, (codec.encode(vector, entropy=entropy) for _ in range(CLIENTS)))

    rivals = {"one process": alone, "loky": theirs, "ours": ours}
    for run in rivals.values():
        run()  # starts the processes
    rounds = [{name: _seconds(run) for name, run in rivals.items()} for _ in range(ROUNDS)]
    title = f"{CLIENTS} messages of {DIMENSION} coordinates, {PROCESSES} processes"
    report = Report(title, "what", "ms a message", "loky, ms", peers=["loky, ms"])
    least = {name: min(each[name] for each in rounds) / CLIENTS * 1e3 for name in rivals}
    for name, ceiling in (("one process", None), ("ours", CEILING)):
        report.row(
            name,
            f"{least[name]:.1f}",
            f"{least['loky']:.1f}",
            ratio=median(each[name] / each["loky"] for each in rounds),
            ceiling=ceiling,
        )
    report.print()
    executor.shutdown()


def _encode(codec: Codec, vector: np.ndarray) -> Residues:
    return codec.encode_or_zeros(vector, entropy=sk.SystemEntropy())


def _add(codec: Codec, messages) -> None:
    assert codec.add(messages).messages == CLIENTS


def _seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
