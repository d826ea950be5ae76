"""How much faster is each thing that people wait for than it was in release 0.1.0?

The source of 0.1.0 is taken from the history of this repository; both releases run the same cases
in turns, each in a process of its own, and the least time of each is shown.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.timing import Report

COMMIT = "e2dd0b6"
"""The last commit of 0.1.0."""
TOP = Path(__file__).parent.parent
TURNS = 2


@dataclass(frozen=True)
class Case:
    """What is timed, in which unit, how many times faster it must be, and how often it is run."""

    name: str
    shown: str
    unit: str = "ms"
    floor: float | None = None
    turns: int = TURNS

    @property
    def factor(self) -> float:
        """What a second, or a byte, is in the unit."""
        return 1e3 if self.unit == "ms" else 1.0


SHORT = (
    Case("secure round", "a secure round, 150 x 7,850, a tenth may drop out", floor=1.5),
    Case("drawn once, NumPy", "in the clear, 100 x 65,536, all noise drawn at once", floor=1.5),
    Case("drawn once, Numba", "the same with Numba", floor=1.5),
    Case("small clients, NumPy", "in the clear, 10,000 x 10,000", "s", 2, turns=1),
    Case("small clients, Numba", "the same with Numba", "s", 2, turns=1),
    Case("linear model", "local training of 100 clients, linear, 2 images", floor=2),
    Case("small CNN", "local training of 100 clients, small CNN, 20 images", floor=1.2),
    Case("pack", "packing 2^20 residues of 14 bits", floor=2),
    Case("unpack", "unpacking them", floor=2),
    Case("wrap", "most memory of a sum's wrap estimate, bytes a coordinate", "bytes"),
    Case("unmask", "taking 1,000 masks of 50,000 off a sum, all cores, by the clock on the wall"),
    Case("help", "skellam --help, by the clock on the wall"),
    Case("spend", "the fiftieth spend of different mechanisms", turns=1),
    Case("300 x 64", "secure aggregation, 300 x 64, 15 drop out", "s", 2),
    Case("200 x 10,000", "secure aggregation, 200 x 10,000, 10 drop out", "s", 1.9),
)
LONG = (
    Case("1,000 x 10,000", "secure aggregation, 1,000 x 10,000, 50 drop out", "s", 2, turns=1),
    Case("10,000 x 64", "secure aggregation, 10,000 x 64, 500 drop out", "s", 2, turns=1),
)


def main() -> None:
    show((*SHORT, *LONG))


def sample() -> None:
    """Leave out the largest rounds, which take half an hour."""
    show(SHORT)


def show(cases: tuple[Case, ...]) -> None:
    """Print every case for both releases."""
    report = Report("Since 0.1.0", "what", "now", "0.1.0", peers=["0.1.0"])
    with TemporaryDirectory() as folder:
        old = Path(folder) / "src"
        unpack_release(Path(folder))
        for case in cases:
            turns = [(timed(case, TOP / "src"), timed(case, old)) for _ in range(case.turns)]
            now, before = (min(each) * case.factor for each in zip(*turns, strict=True))
            shown = (f"{x:.3g} {case.unit}" for x in (now, before))
            report.row(case.shown, *shown, ratio=before / now, floor=case.floor)
    report.print()


def unpack_release(folder: Path) -> None:
    """Put the source of 0.1.0 into ``folder``."""
    command = ["git", "archive", COMMIT, "src"]
    found = subprocess.run(command, cwd=TOP, capture_output=True, check=False)
    if found.returncode:
        sys.exit(
            f"commit {COMMIT} of 0.1.0 is not in this repository; fetch its whole history "
            f"(git fetch --unshallow): {found.stderr.decode().strip()}"
        )
    with tarfile.open(fileobj=io.BytesIO(found.stdout)) as archive:
        archive.extractall(folder, filter="data")


def timed(case: Case, source: Path) -> float:
    """Return what one run of a case took with the release in ``source``."""
    script = Path(__file__).with_name("release_cases.py")
    found = subprocess.run(
        [sys.executable, script, case.name],
        env={**os.environ, "PYTHONPATH": str(source)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(found.stdout)


if __name__ == "__main__":
    main()
