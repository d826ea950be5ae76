"""Settings of whole runs by name: the paper's, as its authors' code has them, and quick ones.

How clients train (rate, batch, epochs, most examples) is the task's; `skellam.federated.tasks` has
the paper's values too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from skellam.errors import DomainError
from skellam.federated import tasks
from skellam.federated.data.files import Location
from skellam.federated.server import ServerOptimiser, fedavg
from skellam.federated.tasks import Task
from skellam.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """All of a run but its data and its noise.

    ``clips`` and ``rates`` are what a sweep tries; the first of each is what a single run takes.
    """

    name: str
    clips: tuple[float, ...]
    rates: tuple[float, ...]
    """Of the server."""
    cohort: int
    population: int
    rounds: int
    delta: float
    momentum: float = 0.9

    def task(self, path: Location = None) -> Task:
        """Return the task, its data read from ``path``."""
        if self.name == "digits":
            return tasks.digits()
        made: Task = getattr(tasks, self.name)(path)
        return made

    def plan(self, task: Task, *, epsilon: float, **changes: Any) -> Plan:  # noqa: ANN401
        """Return the plan for ``task`` at ``epsilon``; ``changes`` are fields of `Plan`."""
        settings: dict[str, Any] = {
            "dimension": task.dimension,
            "clip": self.clips[0],
            "cohort": self.cohort,
            "population": self.population,
            "rounds": self.rounds,
            **changes,
        }
        return Plan(**settings).calibrated(epsilon=epsilon, delta=self.delta)

    def server(self, rate: float | None = None) -> ServerOptimiser:
        """Return averaging with momentum, at the first of the rates unless one is given."""
        return fedavg(rate=self.rates[0] if rate is None else rate, momentum=self.momentum)


EMNIST = Preset(
    name="emnist",
    clips=(0.03,),
    rates=(1.0,),
    cohort=100,
    population=3400,
    rounds=1500,
    delta=1 / 3400,
)
SHAKESPEARE = Preset(
    name="shakespeare",
    clips=(0.25, 0.5),
    rates=(0.32,),
    cohort=100,
    population=1_000_000,  # the data has 715: a hypothetical population, as the paper accounts it
    rounds=1200,
    delta=1e-6,
)
STACKOVERFLOW = Preset(
    name="stackoverflow",
    clips=(0.3,),
    rates=(0.3, 1.0),
    cohort=100,
    population=342_477,
    rounds=1600,
    delta=1e-6,
)
DIGITS = Preset(
    name="digits",
    clips=(0.3, 0.5),
    rates=(1.5, 1.0),
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
        rates=(1.0,),
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
