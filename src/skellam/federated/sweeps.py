"""The paper's sweeps: every clip with every server rate, chosen by validation, reported on test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from os import PathLike
from pathlib import Path
from typing import Any

from skellam.entropy import Entropy
from skellam.federated.aggregate import Aggregation
from skellam.federated.history import LastRounds
from skellam.federated.presets import Preset
from skellam.federated.tasks import Task
from skellam.federated.training import train


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of a sweep, and its measures over the last rounds."""

    clip: float
    rate: float
    measures: LastRounds
    folder: Path


def sweep(
    preset: Preset,
    task: Task,
    *,
    epsilon: float,
    aggregate: Aggregation,
    entropy: Callable[[str], Entropy],
    folder: str | PathLike[str],
    last: int = 100,
    **changes: Any,  # noqa: ANN401
) -> tuple[Cell, ...]:
    """Return every combination that ``preset`` names, the best on validation data first.

    ``entropy`` gives each combination its own by name. Each is a run in a folder of its own, which
    goes on after a kill; each has a ledger of its own too, so that all of them together cost the
    users the sum: choose settings on public or on other people's data.
    """
    cells = []
    for clip, rate in product(preset.clips, preset.rates):
        name = f"clip-{clip:g}-rate-{rate:g}"
        place = Path(folder) / name
        history = train(
            task,
            preset.plan(task, epsilon=epsilon, clip=clip, **changes),
            aggregate=aggregate,
            entropy=entropy(name),
            server=preset.server(rate),
            folder=place,
            resume=True,
        )
        cells.append(Cell(clip, rate, history.last(last), place))
    return tuple(sorted(cells, key=lambda cell: -cell.measures.validation_accuracy))
