"""``skellam reproduce``: the paper's training experiments, from its data files to its figure."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skellam.cli.answer import AsJson, answer, panels, table
from skellam.errors import DomainError

if TYPE_CHECKING:
    from skellam.federated.history import Record
    from skellam.tasks.reproduction import Cell, Grid, Reproduction, Result

PICTURE = "figure.png"


def reproduce(
    task: Annotated[
        str,
        typer.Argument(
            help="emnist, shakespeare or stackoverflow; or a stand-in: unipen, mnist_writers, "
            "shakespeare_roles or stackexchange."
        ),
    ],
    *,
    data: Annotated[Path, typer.Option(help="The task's data file, or the folder that holds it.")],
    folder: Annotated[Path, typer.Option(help="Where runs, results and figure go.")],
    epsilon: Annotated[
        list[float] | None, typer.Option(help="Instead of the grid's; may be given several times.")
    ] = None,
    bits: Annotated[list[int] | None, typer.Option(help="Of the paper's mechanisms.")] = None,
    k: Annotated[list[int] | None, typer.Option(help="Of the paper's mechanisms.")] = None,
    mechanism: Annotated[
        list[str] | None,
        typer.Option(
            help="gaussian, gaussian_rdp, distributed, central, paper or here; may be given "
            "several times. All but central unless given."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of every cell.", min=1)] = 1,
    rounds: Annotated[int | None, typer.Option(help="Instead of the paper's number.")] = None,
    cohort: Annotated[int | None, typer.Option(help="Instead of the paper's number.")] = None,
    population: Annotated[
        int | None, typer.Option(help="Accounted for, instead of the paper's number.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train the grid of the paper's experiment and draw its figure.

    Settings come from the paper's hyperparameter table. Run it again after a kill: what is done is
    not repeated, and a run that was cut off goes on from its last round. It says what is missing,
    and how long that will take. Runs are simulations with random bits that replay: keep the data
    of real people away from them.

    \b
    skellam reproduce emnist --data ~/.keras/datasets --folder runs/emnist
    skellam reproduce unipen --data unipen28.npz --folder runs/unipen --epsilon 4 --rounds 60
    """
    from skellam.tasks import reproduction

    made = reproduction.Reproduction.of(
        task, data, folder, rounds=rounds, cohort=cohort, population=population
    )
    chosen = _chosen(
        reproduction.grid(task),
        epsilons=epsilon,
        bits=bits,
        multiples=k,
        mechanisms=mechanism,
        seeds=[*range(seeds)],
    )
    cells = [*chosen.cells(made.preset)]
    made.require_same_settings()
    _run_missing(made, cells)
    found = [result for cell, result in made.results().items() if cell in set(cells)]
    shown = reproduction.best(found)
    picture = folder / PICTURE
    draw(picture, f"{task}, {made.preset.rounds} rounds", shown)
    _show(found, shown, picture, as_json=as_json)


def _chosen(grid: Grid, **given: list[Any] | None) -> Grid:
    """Return ``grid`` with what was given instead."""
    from skellam.tasks.reproduction import Mechanism

    names = {m.name.lower(): m for m in Mechanism}
    asked = given.pop("mechanisms")
    if unknown := [name for name in asked or () if name not in names]:
        raise DomainError(f"--mechanism must be one of {', '.join(names)}, got {unknown[0]!r}")
    given["mechanisms"] = [names[name] for name in asked or ()]
    return replace(grid, **{field: tuple(values) for field, values in given.items() if values})


def _run_missing(made: Reproduction, cells: list[Cell]) -> None:
    """Train what is missing, with a bar that shows cells, rounds and the time that is left."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    missing = made.missing(cells)
    console = Console(stderr=True)
    done = len(cells) - len(missing)
    console.print(f"{done} of {len(cells)} cells are recorded, {len(missing)} are missing")
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=console) as bar:
        overall = bar.add_task("cells", total=len(cells), completed=done, left="")
        inner = bar.add_task("rounds", total=made.preset.rounds, left="")
        clock = _Clock(made.preset.rounds)
        for number, cell in enumerate(missing):
            bar.reset(inner, description=cell.name, total=made.preset.rounds)
            after = len(missing) - number - 1
            made.run(cell, _watch(bar, inner, overall, clock, after))
            bar.advance(overall)


class _Clock:
    """How long rounds take, and so all that is left."""

    def __init__(self, rounds: int) -> None:
        self._rounds, self._count = rounds, 0
        self._start = time.perf_counter()

    def left(self, round_: int, cells_after: int) -> str:
        """Return the time that is left, in words, after one more round."""
        self._count += 1
        each = (time.perf_counter() - self._start) / self._count
        seconds = each * (self._rounds - round_ - 1 + cells_after * self._rounds)
        return f"about {math.ceil(seconds / 60)} min left"


def _watch(
    bar: Any,  # noqa: ANN401  (rich is imported when a run begins)
    inner: Any,  # noqa: ANN401
    overall: Any,  # noqa: ANN401
    clock: _Clock,
    cells_after: int,
) -> Callable[[Record], None]:
    def watch(record: Record) -> None:
        bar.update(inner, completed=record.round + 1)
        bar.update(overall, left=clock.left(record.round, cells_after))

    return watch


def draw(path: Path, title: str, results: list[Result]) -> None:
    """Draw the paper's figure: for every k accuracy over epsilon, and beside it over rounds.

    Several seeds give means and their 95 % intervals.
    """
    multiples = sorted({r.cell.k for r in results} - {0}) or [0]
    epsilons = sorted({r.cell.epsilon for r in results})
    middle = epsilons[len(epsilons) // 2] if epsilons else 0.0
    curves = sorted({r.cell.curve for r in results})
    grid: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    for k in multiples:
        over_epsilon, over_rounds = f"{title}, k = {k}", f"k = {k}, epsilon = {middle:g}"
        grid |= {over_epsilon: {}, over_rounds: {}}
        for curve, epsilon in product(curves, epsilons):
            found = [
                r
                for r in results
                if (r.cell.curve, r.cell.epsilon) == (curve, epsilon) and r.cell.k in {0, k}
            ]
            if found:
                reached = [r.accuracy for r in found if r.accuracy is not None]
                grid[over_epsilon].setdefault(curve, []).append((epsilon, *_mean(reached)))
            if found and epsilon == middle:
                rounds = zip(*(r.curve for r in found), strict=True)
                grid[over_rounds][curve] = [(m[0][0], *_mean([a for _, a in m])) for m in rounds]
    panels(path, grid, y="test accuracy", columns=2)


def _mean(values: list[float]) -> tuple[float, float]:
    """Return the mean, and half of Student's 95 % interval: nothing for a single value."""
    from scipy.stats import sem, t

    count = len(values)
    half = float(t.ppf(0.975, count - 1) * sem(values)) if count > 1 else 0.0
    return sum(values) / count, half


def _show(found: list[Result], shown: list[Result], picture: Path, *, as_json: bool) -> None:
    rows = [
        [
            r.cell.curve + (f", k = {r.cell.k}" if r.cell.k else ""),
            f"{r.cell.epsilon:g}",
            f"{r.accuracy:.2%}",
            f"{r.noise_multiplier:.4f}",
            f"{(r.bytes_per_client or 0) / 1000:.1f}",
        ]
        for r in sorted(shown, key=lambda r: (r.cell.epsilon, r.cell.curve, r.cell.k))
    ]
    infeasible = {r.cell.name: r.infeasible for r in found if r.infeasible is not None}
    record = {
        "figure": str(picture),
        "cells": len(found),
        "infeasible": infeasible,
        "results": [{"name": r.cell.name, "accuracy": r.accuracy} for r in shown],
    }
    heading = ["mechanism", "epsilon", "accuracy", "noise multiplier", "kB a client"]
    notes = [f"no plan: {name}: {why}" for name, why in infeasible.items()]
    answer(record, table(heading, rows), *notes, f"the figure: {picture}", as_json=as_json)
