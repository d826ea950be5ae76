"""What a spend costs after many others: CPU time, the disk is not waited for.

``python -m benchmarks ledger``. Spends by different mechanisms keep one composed curve; equal ones
are counted; verification reads every line once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from unittest.mock import patch

from benchmarks.timing import Report

from skellam.accounting import Gaussian, Mechanism, Sampled, Skellam
from skellam.accounting.ledger import Ledger

DIFFERENT: dict[str, Callable[[int], Mechanism]] = {
    "Skellam of 10 coordinates": lambda i: Skellam(4e6 + 1000 * i, 1.0, dimension=10),
    "sampled Gaussians": lambda i: Sampled(Gaussian(1 + i / 1000, 1.0), 0.001),
}
MAX_MS = {"different": 50.0, "equal": 2.0}


def main() -> None:
    report = Report(
        "Spends from one ledger", "spends", "ms a spend", "limit, ms", peers=["limit, ms"]
    )
    with TemporaryDirectory() as folder, patch.object(os, "fsync"):
        for name, make in DIFFERENT.items():
            milliseconds = last_spends(Path(folder) / name, 1000, make)
            _row(report, f"the thousandth of different {name}", milliseconds, MAX_MS["different"])
        path = Path(folder) / "equal"
        milliseconds = last_spends(path, 20_000, lambda _: Gaussian(2000.0, 1.0))
        _row(report, "the twenty thousandth of equal ones", milliseconds, MAX_MS["equal"])
        _verification(report, path)
    report.print()


def last_spends(path: Path, count: int, make: Callable[[int], Mechanism]) -> float:
    """Return the median milliseconds of the last 21 of so many spends."""
    with Ledger.create(path, epsilon=100.0, delta=1e-6) as ledger:
        took = [
            _cpu_seconds(lambda n=n: ledger.spend(make(n), key=b"%d" % n)) for n in range(count)
        ]
    return 1e3 * median(took[-21:])


def _verification(report: Report, path: Path) -> None:
    """Compare verifying all lines with a quarter of them: four times as long, if it is linear."""
    with Ledger.create(path.with_name("quarter"), epsilon=100.0, delta=1e-6) as ledger:
        for number in range(5000):
            ledger.spend(Gaussian(2000.0, 1.0), key=b"%d" % number)
    few, many = (
        min(_cpu_seconds(lambda file=file: Ledger.verify(file)) for _ in range(3))
        for file in (path.with_name("quarter"), path)
    )
    shown = f"{1e3 * many / 20_000:.3f}"
    report.row("verifying 20,000 against 5,000", shown, "", ratio=many / few, ceiling=6)


def _row(report: Report, name: str, milliseconds: float, limit: float) -> None:
    report.row(name, f"{milliseconds:.2f}", f"{limit:g}", ratio=milliseconds / limit, ceiling=1)


def _cpu_seconds(call: Callable[[], object]) -> float:
    start = time.thread_time()
    call()
    return time.thread_time() - start
