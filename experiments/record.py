"""Record the training grids: ``python -m experiments.record``; ``--status`` says what is missing.

Cells are trained in the order of their value over all tasks, each added to the records when it is
done: it may be killed at any time, and goes on where it was. ``SKELLAM_DATA`` names the folder with
the data sets.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import typer
from experiments.runs import (
    PAPER_SIZE,
    SETTINGS,
    TRAINING,
    Cell,
    Run,
    cells,
    recorded,
    run,
    turn,
)
from rich.console import Console
from rich.table import Table

from skellam.errors import InfeasibleError

INFEASIBLE = "infeasible.jsonl"
SECONDS = {
    "mnist_writers": 4.0,
    "unipen": 6.0,
    "shakespeare_roles": 6.0,
    "stackexchange": 15.0,
    PAPER_SIZE: 120.0,
}
"""What a run takes on a core of its own, roughly, until some are recorded."""


def wanted(names: Iterable[str]) -> list[Cell]:
    """Return the cells of all tasks in their turn, one seed of all of them after the other."""
    grid = (cell for name in names for cell in dict.fromkeys(cells(name)))
    return sorted(grid, key=lambda cell: (turn(cell), cell.seed))


def known(folder: Path) -> set[Cell]:
    """Return the cells that need no run: those that are recorded, and those without a plan."""
    path = folder / INFEASIBLE
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    none = {Cell(**json.loads(line)) for line in lines}
    return none | {found.cell for task in SETTINGS for found in recorded(task, folder)}


def seconds_a_run(task: str, folder: Path) -> float:
    """Return the mean time of the runs that are recorded, or a guess."""
    taken = [found.seconds for found in recorded(task, folder)]
    return sum(taken) / len(taken) if taken else SECONDS[task]


def status(names: Iterable[str], folder: Path) -> Table:
    """Return a table of what is recorded and what is missing, with the time for that."""
    table = Table("task", "cells", "recorded", "missing", "hours on one core")
    done, total = known(folder), 0.0
    for name in names:
        grid = {*cells(name)}
        missing = len(grid - done)
        hours = missing * seconds_a_run(name, folder) / 3600
        total += hours
        table.add_row(name, *map(str, (len(grid), len(grid) - missing, missing)), f"{hours:.1f}")
    table.add_row("all", "", "", "", f"{total:.1f}")
    return table


def _attempt(cell: Cell, data: Path) -> Cell | Run:
    """Return the run, or the cell where the bits carry no plan."""
    import torch

    torch.set_num_threads(1)
    try:
        return run(cell, SETTINGS[cell.task], data)
    except InfeasibleError:
        return cell


def _append(folder: Path, found: Cell | Run) -> None:
    if isinstance(found, Run):
        path, line = folder / f"{found.cell.task}.jsonl", found.to_line()
    else:
        path, line = folder / INFEASIBLE, json.dumps(asdict(found))
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help=f"{', '.join(SETTINGS)}; all if none is named.")
    ] = None,
    *,
    only_status: Annotated[bool, typer.Option("--status", help="Train nothing.")] = False,
    data: Annotated[
        Path | None, typer.Option(envvar="SKELLAM_DATA", help="Folder with the data sets.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where runs are recorded.")] = TRAINING,
    workers: Annotated[int, typer.Option(help="Runs side by side.")] = os.cpu_count() or 1,
    hours: Annotated[float, typer.Option(help="Begin no run after so long.")] = 1e6,
) -> None:
    """Train every cell that is not recorded yet, and record it."""
    console = Console()
    chosen = names or [*SETTINGS]
    if unknown := sorted({*chosen} - {*SETTINGS}):
        raise typer.BadParameter(f"no task {unknown[0]!r}; there are {', '.join(SETTINGS)}")
    console.print(status(chosen, out))
    if only_status:
        return
    if data is None:
        raise typer.BadParameter("set SKELLAM_DATA to the folder with the data sets")
    done = known(out)
    queue = [cell for cell in wanted(chosen) if cell not in done]
    out.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    until = time.monotonic() + 3600 * hours
    _run_all(queue, data, out, workers=workers, until=until, console=console)


def _run_all(
    queue: list[Cell], data: Path, out: Path, *, workers: int, until: float, console: Console
) -> None:
    left = [*queue]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running: dict[Future[Cell | Run], Cell] = {}
        while left or running:
            while left and len(running) < workers and time.monotonic() < until:
                cell = left.pop(0)
                running[pool.submit(_attempt, cell, data)] = cell
            if not running:
                return
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                cell = running.pop(future)
                _append(out, found := future.result())
                hours = sum(seconds_a_run(c.task, out) for c in left) / workers / 3600
                reached = f"{found.accuracy:.2%}" if isinstance(found, Run) else "no plan"
                console.print(
                    f"{cell.task}, epsilon {cell.epsilon:g}, {cell.way}, seed {cell.seed}: "
                    f"{reached}; {len(left)} left, about {hours:.1f} h",
                    soft_wrap=True,
                )


if __name__ == "__main__":
    typer.run(main)
