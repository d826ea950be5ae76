"""What privacy costs in accuracy, from recorded runs: ``python -m experiments.paired``.

A difference is the mean over seeds of what a way reaches less what central Gaussian noise reaches,
accounted tightly or as the paper does, from the same start with the same cohorts and batches; its
interval is Student's, at 95 %.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from experiments.figure import half_width
from experiments.runs import (
    CENTRAL,
    COMPRESSED,
    EIGHT,
    GAUSSIAN,
    GAUSSIAN_RDP,
    SETTINGS,
    TRAINING,
    TWELVE,
    Run,
    distributed,
    middle_epsilon,
    paper,
    recorded,
)
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Difference:
    """A mean difference over seeds in per cent; ``half`` of its interval's length."""

    mean: float
    half: float
    """Not a number for fewer than three seeds."""

    @classmethod
    def of(cls, found: dict[int, Run], base: dict[int, Run]) -> Difference | None:
        """Return what ``found`` reaches less what ``base`` does, over the seeds of both."""
        each = [100 * (found[s].accuracy - base[s].accuracy) for s in found if s in base]
        if not each or found == base:
            return None
        half = half_width(each) if len(each) > 2 else float("nan")
        return cls(float(np.mean(each)), half)

    def __str__(self) -> str:
        return f"{self.mean:+.2f}" + (f" ± {self.half:.2f}" if np.isfinite(self.half) else "")


@dataclass(frozen=True, slots=True)
class Row:
    """One way at one epsilon; accuracies in per cent."""

    epsilon: float
    way: str
    seeds: int
    accuracy: float
    tight: Difference | None
    """To central Gaussian noise."""
    rdp: Difference | None
    """To central Gaussian noise under the paper's accounting."""
    kilobytes: float
    seconds: float
    """The mean time of a run."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The row as it is shown."""
        return (
            f"{self.epsilon:g}",
            self.way,
            str(self.seeds),
            f"{self.accuracy:.2f}",
            str(self.tight or ""),
            str(self.rdp or ""),
            f"{self.kilobytes:.1f}",
            f"{self.seconds:.0f}",
        )


COLUMNS = (
    *("epsilon", "way", "seeds", "accuracy, %"),
    *("less Gaussian", "less Gaussian (RDP)", "kB a client", "s a run"),
)


COMPARED = (
    *((way, GAUSSIAN) for way in (TWELVE, EIGHT, COMPRESSED, paper(16, 4))),
    *((way, GAUSSIAN_RDP) for way in (paper(16, 4), paper(12, 4), distributed(4), CENTRAL, EIGHT)),
    (paper(16, 4), distributed(4)),
    (paper(16, 3), paper(16, 4)),
)
"""What the claims are about: a way, and the one that it is compared with."""


def difference(task: str, way: str, base: str, folder: Path = TRAINING) -> Difference | None:
    """Return what ``way`` reaches less what ``base`` does, at the middle epsilon of ``task``."""
    runs, epsilon = recorded(task, folder), middle_epsilon(task)
    return Difference.of(*(_by_seed(runs, each, epsilon) for each in (way, base)))


def compared(folder: Path = TRAINING) -> str:
    """Return the differences that the claims are about as the documentation shows them."""
    heads = [f"`{task}`, epsilon {middle_epsilon(task):g}" for task in SETTINGS]
    lines = [("method", "less", *heads), ("---",) * (2 + len(heads))]
    for way, base in COMPARED:
        found = (difference(task, way, base, folder) for task in SETTINGS)
        lines.append((way, base, *(str(each or "") for each in found)))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def rows(task: str, folder: Path = TRAINING) -> Iterator[Row]:
    """Yield the rows of ``task``, by epsilon and way in the order of the cells."""
    runs = recorded(task, folder)
    for epsilon in SETTINGS[task].epsilons:
        bases = [_by_seed(runs, way, epsilon) for way in (GAUSSIAN, GAUSSIAN_RDP)]
        for way in dict.fromkeys(run.cell.way for run in runs):
            if found := _by_seed(runs, way, epsilon):
                yield _row(epsilon, way, found, *(Difference.of(found, base) for base in bases))


def markdown(task: str) -> str:
    """Return settings and table of ``task`` as the documentation shows them."""
    lines = [COLUMNS, ("---",) * len(COLUMNS), *(row.texts for row in rows(task))]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{described(recorded(task)[0])}\n\n{table}"


def described(run: Run) -> str:
    """Return in words what the runs of a task have in common."""
    setting = run.setting
    tested = "all test data" if setting.tested is None else f"{setting.tested} test examples"
    return (
        f"{run.chosen['dimension']:,} parameters, {setting.rounds} rounds, clip {setting.clip:g}; "
        f"clients train on {setting.examples} examples by batches of {setting.batch} at rate "
        f"{setting.rate:g}, the server has rate {setting.server:g}; {tested}."
    )


def _by_seed(runs: list[Run], way: str, epsilon: float) -> dict[int, Run]:
    return {r.cell.seed: r for r in runs if (r.cell.way, r.cell.epsilon) == (way, epsilon)}


def _row(
    epsilon: float,
    way: str,
    found: dict[int, Run],
    tight: Difference | None,
    rdp: Difference | None,
) -> Row:
    return Row(
        epsilon=epsilon,
        way=way,
        seeds=len(found),
        accuracy=100 * float(np.mean([run.accuracy for run in found.values()])),
        tight=tight,
        rdp=rdp,
        kilobytes=next(iter(found.values())).bytes_per_client / 1000,
        seconds=float(np.mean([run.seconds for run in found.values()])),
    )


def main(
    folder: Annotated[Path, typer.Argument(help="Where runs are recorded.")] = TRAINING,
) -> None:
    """Print the table of every task that is recorded in FOLDER."""
    for task in SETTINGS:
        if found := [*rows(task, folder)]:
            table = Table(*COLUMNS, title=task)
            for row in found:
                table.add_row(*row.texts)
            Console().print(table)


if __name__ == "__main__":
    typer.run(main)
