"""The tasks and their presets: the paper's three, the stand-ins, and digits, which need no file.

A task says how clients train (learning rate, batch size, epochs, examples); a preset has the
settings of a whole run. The paper's are as its authors' code has them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from skellam.entropy import Entropy
from skellam.errors import DomainError
from skellam.federated.aggregation import Aggregation, ServerOptimiser, fedavg
from skellam.federated.data.examples import Clients, pooled
from skellam.federated.history import LastRounds
from skellam.federated.optimizers import sgd
from skellam.federated.task import Task
from skellam.federated.training import train
from skellam.plan import CalibratedPlan, Plan
from skellam.tasks import models, paper_sets, stand_ins
from skellam.tasks.preparation import Location, NextToken, Splits


def digits(*, clients: int = 2000, each: int = 2, concentration: float = 1.0) -> Task:
    """Return the task that needs no file: ten digits, a linear model of 7,850 parameters."""
    splits = stand_ins.digits(clients=clients, each=each, concentration=concentration)
    return image_task("digits", splits, models.linear(), learning_rate=0.5, batch_size=2)


def emnist(path: Location = None, *, full_test: bool = False) -> Task:
    """Return the paper's first task: 62 handwritten characters, 1,018,174 parameters."""
    splits = paper_sets.emnist(path, full_test=full_test)
    return image_task("emnist", splits, models.paper_cnn(), learning_rate=0.32, batch_size=20)


def shakespeare(path: Location = None, *, full_test: bool = False) -> Task:
    """Return the paper's second task: the next character, 820,522 parameters."""
    return text_task(
        "shakespeare",
        paper_sets.shakespeare(path, full_test=full_test),
        models.character_model(),
        initializer=models.shakespeare_weights,
        learning_rate=1.0,
        batch_size=4,
    )


def stackoverflow(path: Location = None) -> Task:
    """Return the paper's third task: the next word, 4,050,748 parameters."""
    splits = paper_sets.stackoverflow(path)
    return text_task(
        "stackoverflow",
        splits,
        models.word_model(splits.classes),
        learning_rate=0.5,
        batch_size=16,
        max_examples=paper_sets.FIRST_SENTENCES,
        unmeasured=_marks(splits),
    )


def unipen(path: Location = None) -> Task:
    """Return 62 handwritten characters of real writers, with a small network."""
    splits, model = stand_ins.unipen(path), models.small_cnn()
    settings = {"learning_rate": 0.1, "batch_size": 20, "max_examples": 40}
    return image_task("unipen", splits, model, **settings)


def mnist_writers(path: Location = None, *, model: nn.Module | None = None) -> Task:
    """Return ten digits of real writers, with a small network or ``model``."""
    splits = stand_ins.mnist_writers(path)
    settings = {"learning_rate": 0.1, "batch_size": 20, "max_examples": 40}
    return image_task("mnist_writers", splits, model or models.small_cnn(10), **settings)


def shakespeare_roles(path: Location = None) -> Task:
    """Return the next character of Shakespeare's roles, with a small network of the same kind."""
    return text_task(
        "shakespeare_roles",
        stand_ins.shakespeare_roles(path),
        models.character_model(hidden=96, layers=1),
        initializer=models.shakespeare_weights,
        learning_rate=4.0,
        batch_size=4,
        max_examples=40,
    )


def stackexchange(path: Location = None, *, words: int = 1000) -> Task:
    """Return the next word of Stack Exchange's users, with a small network of the same kind."""
    splits = stand_ins.stackexchange(path, words=words)
    return text_task(
        "stackexchange",
        splits,
        models.word_model(splits.classes, embedding=16, hidden=64),
        learning_rate=2.0,
        batch_size=16,
        max_examples=64,
        unmeasured=_marks(splits),
    )


def image_task(
    name: str,
    splits: Splits,
    model: nn.Module,
    *,
    learning_rate: float,
    **settings: Any,  # noqa: ANN401
) -> Task:
    """Return the classification of images with the weights that Keras draws."""
    return _task(name, splits, model, sgd(learning_rate), models.keras_weights, settings)


def text_task(
    name: str,
    splits: Splits,
    model: nn.Module,
    *,
    learning_rate: float,
    unmeasured: tuple[int, ...] = (),
    initializer: Callable[[nn.Module], object] = models.keras_weights,
    **settings: Any,  # noqa: ANN401
) -> Task:
    """Return the prediction of the next token."""
    token = NextToken(unmeasured)
    measures = {"loss": token.losses, "accuracy": token.accuracy}
    settings = {"loss": token.loss, "metrics": measures, **settings}
    return _task(name, splits, model, sgd(learning_rate), initializer, settings)


def _task(  # noqa: PLR0917
    name: str,
    splits: Splits,
    model: nn.Module,
    optimizer: Any,  # noqa: ANN401
    initializer: Callable[[nn.Module], object],
    settings: dict[str, Any],
) -> Task:
    return Task(
        model,
        splits.train,
        name=name,
        optimizer=optimizer,
        initializer=initializer,
        validation=splits.validation,
        test=splits.test,
        **settings,
    )


def unigram_accuracy(task: Task) -> float:
    """Return the test accuracy of always naming the commonest measured target."""
    if not isinstance(task.test, Clients):
        raise DomainError("the task must have test clients, as those of skellam.tasks have")
    targets = pooled(task.test).targets.ravel()
    measured = getattr((task.metrics or {}).get("accuracy"), "__self__", None)
    counts = np.bincount(measured.measured(targets) if measured is not None else targets)
    return float(counts.max() / counts.sum())


def _marks(splits: Splits) -> tuple[int, ...]:
    """Unknown, begin and end: the last three numbers of a vocabulary."""
    return tuple(range(splits.classes - 3, splits.classes))


_WITHOUT_FILES: dict[str, Callable[[], Task]] = {"digits": digits}
_FROM_FILES: dict[str, Callable[[Location], Task]] = {
    "emnist": emnist,
    "shakespeare": shakespeare,
    "stackoverflow": stackoverflow,
    "unipen": unipen,
    "mnist_writers": mnist_writers,
    "shakespeare_roles": shakespeare_roles,
    "stackexchange": stackexchange,
}


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
        if (read := _FROM_FILES.get(self.name)) is not None:
            return read(path)
        if path is not None:
            raise DomainError(f"{self.name} need no file of their own, got {path}; leave it out")
        return _WITHOUT_FILES[self.name]()

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
    entropy: Entropy,
    folder: str | PathLike[str],
    last: int = 100,
    **changes: Any,  # noqa: ANN401
) -> tuple[Cell, ...]:
    """Return every combination that ``preset`` names, the best on validation data first.

    Each is a run in a folder of its own, which goes on after a kill; each has a ledger of its own
    too, so that all of them together cost the users the sum: choose settings on public or on other
    people's data.
    """
    cells = []
    for clip, rate in product(preset.clips, preset.learning_rates):
        name = f"clip-{clip:g}-rate-{rate:g}"
        path = Path(folder) / name
        history = train(
            task,
            preset.plan(task, epsilon=epsilon, clip=clip, **changes),
            aggregate=aggregate,
            entropy=entropy,
            server=preset.server(rate),
            folder=path,
            resume=True,
        )
        cells.append(Cell(clip, rate, history.last(last), path))
    return tuple(sorted(cells, key=lambda cell: -cell.measures.validation_accuracy))
