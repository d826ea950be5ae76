"""Reproduction: the paper's training experiments as a grid of cells, each a run that resumes.

A grid goes over mechanisms, epsilons, bits and k, and over the clips and server learning rates that
the paper's hyperparameter table sweeps. All cells of a seed start from the same model and see the
same cohorts and batches: random bits replay, so the runs are simulations and protect nobody.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Any

from skellam.engines import durable
from skellam.entropy import SeededEntropy
from skellam.errors import DataError, DomainError, InfeasibleError
from skellam.federated.aggregation import unmasked
from skellam.federated.monitoring import Watch
from skellam.federated.task import Task
from skellam.federated.training import train
from skellam.plan import CalibratedPlan
from skellam.tasks import tasks
from skellam.tasks.preparation import Location
from skellam.tasks.tasks import Preset, preset

RESULTS, SETTINGS = "results.jsonl", "settings.json"
MEASURED = 100
"""About so many times the model is measured in a run."""
AVERAGED = 15
"""Accuracies are means over the last of so many equal parts of a run: 100 of 1500 rounds."""
_FULL_TEST = ("emnist", "shakespeare")


class Mechanism(StrEnum):
    """What protects the sum, and how it is accounted."""

    GAUSSIAN = "central Gaussian (tight)"
    GAUSSIAN_RDP = "central Gaussian (RDP)"
    DISTRIBUTED = "distributed discrete Gaussian"
    CENTRAL = "central discrete Gaussian"
    PAPER = "Skellam (the paper)"
    HERE = "Skellam (here)"

    @property
    def settings(self) -> Mapping[str, Any]:
        """Fields of `Plan`."""
        return _SETTINGS[self]

    @property
    def authors(self) -> bool:
        """Whether the authors' scale is used, which takes k."""
        return "rounding" in self.settings


_AUTHORS = {"accountant": "paper", "rounding": "conditional"}
_SETTINGS: Mapping[Mechanism, Mapping[str, Any]] = {
    Mechanism.GAUSSIAN: {"noise": "gaussian"},
    Mechanism.GAUSSIAN_RDP: {"noise": "gaussian", "accountant": "paper"},
    Mechanism.DISTRIBUTED: {**_AUTHORS, "noise": "distributed-discrete-gaussian"},
    Mechanism.CENTRAL: {**_AUTHORS, "noise": "central-discrete-gaussian"},
    Mechanism.PAPER: _AUTHORS,
    Mechanism.HERE: {},
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One run; ``bits`` and ``k`` are 0 where a mechanism has none, or chooses k itself."""

    mechanism: Mechanism
    epsilon: float
    bits: int
    k: int
    clip: float
    learning_rate: float
    seed: int

    @property
    def name(self) -> str:
        """The name of its folder."""
        kind = self.mechanism.name.lower()
        return (
            f"{kind}-epsilon{self.epsilon:g}-b{self.bits}-k{self.k}-clip{self.clip:g}"
            f"-rate{self.learning_rate:g}-seed{self.seed}"
        )

    @property
    def curve(self) -> str:
        """What it is called in a figure with one panel for each k."""
        return f"{self.mechanism}, b = {self.bits}" if self.bits else str(self.mechanism)

    @property
    def changes(self) -> dict[str, Any]:
        """Fields of `Plan`."""
        bits = {"bits": self.bits} if self.bits else {}
        k = {"signal_multiple": float(self.k)} if self.k else {}
        return {**self.mechanism.settings, **bits, **k, "clip": self.clip}


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """What the cells of a task go over."""

    epsilons: tuple[float, ...]
    bits: tuple[int, ...] = (12, 14, 16, 18)
    multiples: tuple[int, ...] = (3, 4)
    here_bits: tuple[int, ...] = (8, 12)
    """Bits of `Mechanism.HERE`, which needs fewer."""
    mechanisms: tuple[Mechanism, ...] = tuple(m for m in Mechanism if m is not Mechanism.CENTRAL)
    seeds: tuple[int, ...] = (0,)

    def cells(self, chosen: Preset) -> Iterator[Cell]:
        """Yield every cell, those without bits first, so that early ones compare."""
        sweeps = [*product(self.epsilons, chosen.clips, chosen.learning_rates)]
        for seed, mechanism in product(self.seeds, self.mechanisms):
            for (bits, k), (epsilon, clip, rate) in product(self._shapes(mechanism), sweeps):
                yield Cell(mechanism, epsilon, bits, k, clip, rate, seed)

    def _shapes(self, mechanism: Mechanism) -> list[tuple[int, int]]:
        if mechanism.authors:
            return [*product(self.bits, self.multiples)]
        return [(bits, 0) for bits in self.here_bits] if mechanism is Mechanism.HERE else [(0, 0)]


GRIDS: Mapping[str, Grid] = {
    "emnist": Grid(epsilons=(3.0, 5.0, 10.0)),
    "shakespeare": Grid(epsilons=(2.5, 5.0, 7.5)),
    "stackoverflow": Grid(epsilons=(3.0, 5.0, 10.0)),
    **dict.fromkeys(
        ("unipen", "mnist_writers", "shakespeare_roles", "stackexchange"),
        Grid(epsilons=(2.0, 4.0, 8.0)),
    ),
}
"""The paper draws its epsilons and does not print them all; where it does not, they are ours."""


def grid(name: str) -> Grid:
    """Return the grid of the task ``name``."""
    if name not in GRIDS:
        raise DomainError(f"name must be one of {', '.join(GRIDS)}, got {name!r}")
    return GRIDS[name]


@dataclass(frozen=True, slots=True)
class Result:
    """What a cell came to; where it has no plan, nothing but why."""

    cell: Cell
    infeasible: str | None = None
    noise_multiplier: float | None = None
    bytes_per_client: int | None = None
    accuracy: float | None = None
    """Mean test accuracy over the last part of the run."""
    curve: tuple[tuple[int, float], ...] = ()
    """Rounds, and the test accuracy after them."""
    seconds: float = 0.0

    @classmethod
    def from_line(cls, line: str) -> Result:
        """Return the result that a line of JSON holds."""
        try:
            read = json.loads(line)
            cell = Cell(**{**read["cell"], "mechanism": Mechanism(read["cell"]["mechanism"])})
            curve = tuple((int(number), float(value)) for number, value in read["curve"])
            return cls(**{**read, "cell": cell, "curve": curve})
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DataError(f"this is no result: {error}: {line[:80]!r}") from error


@dataclass(frozen=True, slots=True)
class Reproduction:
    """A task, the settings of its runs, and the folder that they are in."""

    preset: Preset
    task: Task
    folder: Path

    @classmethod
    def of(cls, name: str, data: Location, folder: Path, **changes: int | None) -> Reproduction:
        """Return the reproduction of the task ``name``; ``changes`` shorten its preset."""
        chosen = preset(name)
        given = {field: value for field, value in changes.items() if value is not None}
        chosen = replace(chosen, **given)  # type: ignore[arg-type]
        full = name in _FULL_TEST
        task = getattr(tasks, name)(data, full_test=True) if full else chosen.task(data)
        return cls(chosen, task, folder)

    def require_same_settings(self) -> None:
        """Keep what all cells of the folder have in common; raise if they have something else.

        A result of a few rounds must not be taken for one of the paper's.
        """
        common = {**asdict(self.preset), "training": self.task.training}
        asked, path = json.loads(json.dumps(common)), self.folder / SETTINGS
        if not durable.exists(path):
            durable.make_folder(self.folder)
            octets = f"{json.dumps(asked, indent=1)}\n".encode()
            durable.replace(path, octets, mode=durable.PUBLIC)
            return
        known = _settings(path)
        if differ := [name for name in asked if known.get(name) != asked[name]]:
            name = differ[0]
            raise DataError(
                f"{self.folder} holds runs with {name} {known.get(name)}, got {asked[name]}; "
                "ask for the same, or name another folder"
            )

    def results(self) -> dict[Cell, Result]:
        """Return what is recorded; a line that a kill cut off is run again."""
        return {found.cell: found for found in map(Result.from_line, self._log.lines())}

    def missing(self, cells: Iterable[Cell]) -> list[Cell]:
        """Return the cells that are not recorded yet."""
        known = self.results()
        return [cell for cell in cells if cell not in known]

    def run(self, cell: Cell, watch: Watch | None = None) -> Result:
        """Train one cell, go on with it after a kill, and record it."""
        start = time.perf_counter()
        self.require_same_settings()
        try:
            plan = self.preset.plan(self.task, epsilon=cell.epsilon, **cell.changes)
        except InfeasibleError as error:
            result = Result(cell, infeasible=str(error))
        else:
            result = self._trained(cell, plan, watch)
        result = replace(result, seconds=round(time.perf_counter() - start, 1))
        self.record(result)
        return result

    def _trained(self, cell: Cell, plan: CalibratedPlan, watch: Watch | None) -> Result:
        history = train(
            self.task,
            plan,
            aggregate=unmasked(),
            entropy=SeededEntropy(cell.seed.to_bytes(32, "big"), f"reproduce/{self.preset.name}"),
            server=self.preset.server(cell.learning_rate),
            folder=self.folder / "cells" / cell.name,
            resume=True,
            every=max(1, plan.rounds // MEASURED),
            watch=watch,
        )
        sent = 4 * plan.dimension if plan.noise.continuous else plan.bytes_per_client
        return Result(
            cell,
            noise_multiplier=plan.noise_multiplier,
            bytes_per_client=sent,
            accuracy=history.last(max(1, plan.rounds // AVERAGED)).test_accuracy,
            curve=tuple(
                (r.round + 1, r.test_accuracy)
                for r in history.records
                if r.test_accuracy is not None
            ),
        )

    def record(self, result: Result) -> None:
        """Add the result of a cell to the file of results."""
        durable.make_folder(self.folder)
        self._log.append(json.dumps(asdict(result)))

    @property
    def _log(self) -> durable.Log:
        return durable.Log(self.folder / RESULTS, durable.PUBLIC)


def _settings(path: Path) -> dict[str, Any]:
    try:
        known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot read {path}: {error}; restore it, or move it away") from error
    if not isinstance(known, dict):
        raise DataError(f"{path} must hold one JSON object; restore it, or move it away")
    return known


def best(results: Iterable[Result]) -> list[Result]:
    """Return of every sweep over clips and learning rates the cell of highest accuracy.

    The paper reports the best of its sweeps, chosen on the data that it reports on.
    """
    chosen: dict[tuple[Any, ...], Result] = {}
    for result in results:
        cell = result.cell
        if result.accuracy is None:
            continue
        key = (cell.mechanism, cell.epsilon, cell.bits, cell.k, cell.seed)
        known = chosen.get(key)
        if known is None or result.accuracy > (known.accuracy or 0.0):
            chosen[key] = result
    return [*chosen.values()]
