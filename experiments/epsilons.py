"""What recorded runs cost, accounted as plans are today: ``python -m experiments.epsilons``.

Every plan has the noise that its runs had. Against the public that is today's epsilon beside the
recorded one; against the server the bound for every client, none of which takes part more often
than the plan allows, and the mean client as it was recorded and as it is today.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from experiments.runs import NOTHING, RECORDED, SETTINGS, TRAINING, recorded
from rich.console import Console
from rich.table import Table

from experiments import clipping
from skellam.accounting.guarantee import rounded_up
from skellam.plan import CalibratedPlan

CLIPPING = "clipping"
COLUMNS = ("public, recorded", "public, today", "server, every client", "mean, recorded", "mean")


@dataclass(frozen=True, slots=True)
class Row:
    """The epsilons of one plan, which all seeds of its cell ran with."""

    task: str
    epsilon: float
    """Against the public, as it was recorded."""
    way: str
    public: float
    server: float
    """For every client: none takes part in more than ``participations`` rounds."""
    participations: int
    recorded_mean: float | None
    mean: float
    mean_participations: int

    @property
    def texts(self) -> tuple[str, ...]:
        """The epsilons as they are shown: rounded up."""
        return (
            f"{self.epsilon:.4g}",
            f"{math.ceil(1e4 * self.public) / 1e4:.4f}",
            f"{rounded_up(self.server)} ({self.participations} rounds)",
            "" if self.recorded_mean is None else rounded_up(self.recorded_mean),
            f"{rounded_up(self.mean)} ({self.mean_participations} rounds)",
        )


def rows(folder: Path = RECORDED) -> Iterator[Row]:
    """Yield a row for every plan among the runs that are recorded in ``folder``."""
    for task in SETTINGS:
        runs = {
            (run.cell.epsilon, run.cell.way): run for run in recorded(task, folder / TRAINING.name)
        }
        for epsilon, way in sorted(runs, key=lambda each: each[0]):
            if way != NOTHING:
                run = runs[epsilon, way]
                yield _row(task, epsilon, way, run.plan(), run.server_epsilon)
    clips = {run.way: run for run in clipping.recorded(folder / clipping.RECORD.name)}
    for way, clipped in clips.items():
        yield _row(CLIPPING, clipped.epsilon, way, clipped.plan(), None)


def highest(found: Iterable[Row]) -> list[Row]:
    """Return, for every task and recorded epsilon, the largest epsilons of all ways."""
    best: dict[tuple[str, str], Row] = {}
    for row in found:
        known = best.setdefault((row.task, row.texts[0]), row)
        best[row.task, row.texts[0]] = replace(
            known,
            way="all",
            public=max(known.public, row.public),
            server=max(known.server, row.server),
            recorded_mean=max(filter(None, (known.recorded_mean, row.recorded_mean)), default=None),
            mean=max(known.mean, row.mean),
        )
    return [*best.values()]


def markdown(found: Iterable[Row]) -> str:
    """Return a table of ``found`` as the documentation shows it."""
    head = ("task", *COLUMNS)
    lines = [head, ("---",) * len(head), *((row.task, *row.texts) for row in found)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _row(
    task: str, epsilon: float, way: str, plan: CalibratedPlan, recorded_mean: float | None
) -> Row:
    found = plan.guarantees()
    return Row(
        task=task,
        epsilon=epsilon,
        way=way,
        public=found.public.epsilon,
        server=found.server.epsilon,
        participations=plan.participations,
        recorded_mean=recorded_mean,
        mean=found.server_mean.epsilon,
        mean_participations=plan.mean_participations(),
    )


def main(
    folder: Annotated[Path, typer.Argument(help="Where runs are recorded.")] = RECORDED,
    *,
    summary: Annotated[bool, typer.Option(help="Only the documentation's table.")] = False,
) -> None:
    """Print the epsilons of every plan that is recorded in FOLDER."""
    found = [*rows(folder)]
    if summary:
        print(markdown(highest(found)))
        return
    table = Table("task", "way", *COLUMNS)
    for row in found:
        table.add_row(row.task, row.way, *row.texts)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
