"""Training runs for the learning figures; ``python -m experiments.record`` trains what is missing.

All runs of a seed start from the same model and see the same cohorts and batches; only what privacy
does to the sums differs. Settings were chosen on validation data at another seed; those of the
paper's network are the paper's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import skellam as sk
from skellam import federated as fl
from skellam import tasks
from skellam.plan import CalibratedPlan
from skellam.tasks.reproduction import Mechanism

RECORDED = Path(__file__).parent / "recorded"
TRAINING = "training"
"""The folder in `RECORDED` of runs since 0.2; where a task has some, older ones do not count."""
GAUSSIAN = "central Gaussian"
GAUSSIAN_RDP = "central Gaussian (RDP)"
NOTHING = "no privacy"
EIGHT, TWELVE = "Skellam (here), 8 bits", "Skellam (here), 12 bits"
COMPRESSED = "Skellam (here), 2 bits a parameter"
LAST = 20
"""Accuracies are means over what was measured in so many last rounds."""


def paper(bits: int, multiple: int) -> str:
    """Return the name of the paper's rounding and accounting."""
    return f"Skellam (the paper), {bits} bits, k = {multiple}"


def distributed(multiple: int) -> str:
    """Return the name of the distributed discrete Gaussian with 16 bits."""
    return f"distributed discrete Gaussian, 16 bits, k = {multiple}"


CENTRAL = "central discrete Gaussian, 16 bits, k = 4"
BITS, MULTIPLES = (12, 14, 16), (3, 4)


def _authors(bits: int, multiple: int, mechanism: Mechanism = Mechanism.PAPER) -> dict[str, Any]:
    return {**mechanism.settings, "signal_multiple": float(multiple), "bits": bits}


WAYS: Mapping[str, Mapping[str, Any]] = {
    NOTHING: {"noise": "gaussian"},
    GAUSSIAN: Mechanism.GAUSSIAN.settings,
    GAUSSIAN_RDP: Mechanism.GAUSSIAN_RDP.settings,
    EIGHT: {"bits": 8},
    TWELVE: {"bits": 12},
    COMPRESSED: {"bits": 8},
    **{paper(b, k): _authors(b, k) for b in BITS for k in MULTIPLES},
    **{distributed(k): _authors(16, k, Mechanism.DISTRIBUTED) for k in MULTIPLES},
    CENTRAL: _authors(16, 4, Mechanism.CENTRAL),
}
"""Fields of `Plan` by method, tight accounting unless the name says otherwise."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What all runs of a task have in common, beside its preset."""

    clip: float
    rate: float
    """Of the clients."""
    epsilons: tuple[float, ...]
    rounds: int = 60
    server: float = 1.0
    batch: int = 20


PAPER_SIZE = "unipen_paper_size"
"""`unipen` with the paper's network of 1,018,174 parameters and its clip and rates."""
SETTINGS = {
    "mnist_writers": Setting(clip=0.3, rate=0.1, epsilons=(2.0, 4.0, 8.0)),
    "unipen": Setting(clip=0.3, rate=0.1, epsilons=(2.0, 4.0, 8.0), rounds=100, server=0.5),
    "shakespeare_roles": Setting(clip=0.3, rate=4.0, epsilons=(4.0, 8.0), batch=10),
    "stackexchange": Setting(clip=0.3, rate=2.0, epsilons=(4.0, 8.0), batch=16),
    PAPER_SIZE: Setting(clip=0.03, rate=0.32, epsilons=(8.0,), rounds=100),
}
IMAGES, LANGUAGE = ("mnist_writers", "unipen"), ("shakespeare_roles", "stackexchange")
_PRESETS = {PAPER_SIZE: "unipen"}


def preset_of(task: str) -> tasks.Preset:
    """Return the preset that ``task`` begins with."""
    return tasks.preset(_PRESETS.get(task, task))


def _task(name: str, setting: Setting, data: Path) -> fl.Task:
    task = preset_of(name).task(data)
    if name == PAPER_SIZE:
        task = replace(task, model=tasks.models.paper_cnn())
    return replace(task, optimizer=fl.sgd(setting.rate), batch_size=setting.batch)


@dataclass(frozen=True, slots=True)
class Cell:
    """One way to train a task at one epsilon from one seed."""

    task: str
    way: str
    epsilon: float
    seed: int


@dataclass(frozen=True, slots=True)
class Run:
    """A cell, what was planned for it, and what came out; accuracies are of the test data."""

    cell: Cell
    setting: Setting
    noise_multiplier: float
    server_epsilon: float
    """As it was accounted when it ran: against the server, for a client with the mean number of
    participations. `experiments.epsilons` accounts for it anew."""
    bytes_per_client: int
    accuracy: float
    curve: tuple[tuple[int, float], ...]
    seconds: float
    chosen: Mapping[str, Any]
    """Fields of `Plan` that were chosen for it, from which `plan` makes the plan again."""

    def plan(self) -> CalibratedPlan:
        """Return the plan of the run, accounted as plans are today."""
        preset = preset_of(self.cell.task)
        asked = sk.Plan(
            clip=self.setting.clip,
            cohort=preset.cohort,
            population=preset.population,
            rounds=self.setting.rounds,
            **{**WAYS[self.cell.way], **self.chosen},
        )
        return asked.with_noise(self.noise_multiplier, delta=preset.delta)

    def to_line(self) -> str:
        """Return the run as a line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> Run:
        """Return the run that `to_line` wrote."""
        read = json.loads(line)
        setting = {**read["setting"], "epsilons": tuple(read["setting"]["epsilons"])}
        curve = tuple((number, accuracy) for number, accuracy in read["curve"])
        return cls(
            **{
                **read,
                "cell": Cell(**read["cell"]),
                "setting": Setting(**setting),
                "curve": curve,
            }
        )


def recorded(task: str, folder: Path = RECORDED) -> list[Run]:
    """Return the runs of ``task`` that are recorded."""
    name = f"{task}.jsonl"
    newer = folder / TRAINING / name
    path = newer if newer.exists() else folder / name
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Run.from_line(line) for line in lines]


def run(cell: Cell, setting: Setting, data: Path) -> Run:
    """Train, or raise `InfeasibleError` where the bits carry no plan for the epsilon."""
    start = time.perf_counter()
    preset, task = preset_of(cell.task), _task(cell.task, setting, data)
    changes = dict(WAYS[cell.way])
    if cell.way == COMPRESSED:
        changes["compression"] = 2 * task.dimension // changes["bits"]
    plan = preset.plan(
        task, epsilon=cell.epsilon, clip=setting.clip, rounds=setting.rounds, **changes
    )
    history = fl.train(
        task,
        plan,
        aggregate=fl.non_private() if cell.way == NOTHING else fl.unmasked(),
        entropy=sk.SeededEntropy(cell.seed.to_bytes(32, "big"), f"experiments/{cell.task}"),
        server=preset.server(setting.server),
        every=max(1, setting.rounds // 10),
    )
    measured = [r for r in history.records if r.test_accuracy is not None]
    return Run(
        cell=cell,
        setting=setting,
        noise_multiplier=plan.noise_multiplier,
        server_epsilon=plan.guarantees().server_mean.epsilon,
        bytes_per_client=4 * task.dimension if plan.noise.continuous else plan.bytes_per_client,
        accuracy=history.last(LAST).test_accuracy,
        curve=tuple((r.round + 1, float(r.test_accuracy or 0.0)) for r in measured),
        seconds=round(time.perf_counter() - start, 1),
        chosen=chosen(plan),
    )


def chosen(plan: CalibratedPlan) -> dict[str, Any]:
    """Return what must be known of ``plan``, beside setting, way and noise, to have it again."""
    if plan.noise.continuous:
        return {"dimension": plan.dimension}
    names = ["dimension", "rounding", "scale", "block"]
    names += ["coordinate_bound"] if plan.coordinate_bound is not None else []
    names += ["signal_multiple"] if plan.request.signal_multiple is None else []
    names += ["compression"] if plan.compression is not None else []
    return {name: getattr(plan, name) for name in names}


def cells(task: str) -> Iterable[Cell]:
    """Yield the cells of ``task``, the most telling first."""
    base = (GAUSSIAN, EIGHT, paper(16, 4))
    others = (distributed(4), GAUSSIAN_RDP, TWELVE, COMPRESSED, paper(16, 3), distributed(3))
    if task in IMAGES:
        low, middle, high = SETTINGS[task].epsilons
        yield from _cells(task, (*base, *others[:1]), (middle,), 5)
        yield from _cells(task, others[1:], (middle,), 5)
        yield from _cells(task, base, (low, high), 5)
        rest = [paper(b, k) for b in (12, 14) for k in MULTIPLES]
        yield from _cells(task, (NOTHING, CENTRAL, *rest), (middle,), 5)
    elif task in LANGUAGE:
        yield from _cells(task, (*base, *others[:3]), SETTINGS[task].epsilons, 3)
        yield from _cells(task, (NOTHING,), SETTINGS[task].epsilons[-1:], 3)
    else:
        yield from _cells(task, (*base, distributed(4), COMPRESSED), SETTINGS[task].epsilons, 2)


def _cells(
    task: str, ways: tuple[str, ...], epsilons: tuple[float, ...], seeds: int
) -> Iterable[Cell]:
    return (Cell(task, w, e, seed) for seed, e, w in product(range(seeds), epsilons, ways))
