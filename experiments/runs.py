"""Training runs for the learning figures; ``python -m experiments.record`` trains what is missing.

All runs of a seed start from the same model and see the same cohorts and batches; only what privacy
does to the sums differs. Settings were chosen on validation data at another seed, for central
Gaussian noise. The networks are small and the runs short, so that many fit into an hour.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import skellam as sk
from experiments import networks
from skellam import federated as fl
from skellam import tasks
from skellam.federated.data.examples import pooled
from skellam.plan import CalibratedPlan
from skellam.tasks.preparation import shuffled
from skellam.tasks.reproduction import Mechanism

RECORDED = Path(__file__).parent / "recorded"
TRAINING = RECORDED / "training"
GAUSSIAN = "central Gaussian"
GAUSSIAN_RDP = "central Gaussian (RDP)"
NOTHING = "no privacy"
EIGHT, TWELVE = "Skellam (here), 8 bits", "Skellam (here), 12 bits"
COMPRESSED = "Skellam (here), 2 bits a parameter"
MEASURED = 10
"""So many times the model is measured in a run, the last time after its last round."""
LAST = 2
"""Accuracies are means over so many last measurements: the last fifth of a run."""


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
    rounds: int
    batch: int = 20
    examples: int = 40
    """Of a client in a round, at most."""
    server: float = 1.0
    tested: int | None = None
    """Examples of the test data that are measured, drawn once for all runs; all of them if none."""


PAPER_SIZE = "unipen_paper_size"
"""`unipen` with the paper's network of 1,018,174 parameters and its clip and rates."""
WORDS = 10_000
"""The vocabulary of `stackexchange`, as large as that of the paper's Stack Overflow."""
PAIRS = 200
"""So many of the commonest words the model of `stackexchange` knows pairs of."""
MORE = 20
"""Paired seeds at the middle epsilon of the ways that the claims are about; others have five."""
_IMAGES: dict[str, Any] = {"clip": 0.3, "epsilons": (2.0, 4.0, 8.0), "tested": 2000}
_TEXTS: dict[str, Any] = {"clip": 0.3, "epsilons": (4.0, 8.0), "rounds": 40, "tested": 600}
SETTINGS = {
    "mnist_writers": Setting(**_IMAGES, rate=0.3, rounds=40, examples=10, batch=5, server=1.5),
    "unipen": Setting(**_IMAGES, rate=0.3, rounds=50, examples=20, batch=10),
    "shakespeare_roles": Setting(**_TEXTS, rate=1.0, examples=4, batch=4, server=2.0),
    "stackexchange": Setting(**_TEXTS, rate=3.0, examples=2, batch=2, server=8.0),
    PAPER_SIZE: Setting(
        clip=0.05, rate=0.32, epsilons=(8.0,), rounds=40, examples=10, batch=10, tested=1000
    ),
}
IMAGES, LANGUAGE = ("mnist_writers", "unipen"), ("shakespeare_roles", "stackexchange")
_PRESETS = {PAPER_SIZE: "unipen"}


def preset_of(task: str) -> tasks.Preset:
    """Return the preset that ``task`` begins with."""
    return tasks.preset(_PRESETS.get(task, task))


@cache
def task_of(name: str, setting: Setting, data: Path) -> fl.Task:
    """Return what is trained: the preset's task with a small network, or with the paper's."""
    task = _with_network(name, data)
    test = pooled(task.test)
    return replace(
        task,
        clients={client: task.clients[client] for client in task.clients},  # read only once
        initializer=networks.weights,
        optimizer=fl.sgd(setting.rate),
        batch_size=setting.batch,
        max_examples=setting.examples,
        validation=None,
        test=test[shuffled(len(test), f"experiments/{name}")[: setting.tested]],
    )


def _with_network(name: str, data: Path) -> fl.Task:
    if name == "stackexchange":
        task = tasks.stackexchange(data, words=WORDS)
    else:
        task = preset_of(name).task(data)
    models = {
        "mnist_writers": lambda: networks.images(10),
        "unipen": lambda: networks.images(62),
        "shakespeare_roles": lambda: networks.language(90, embedding=8, context=4, hidden=64),
        "stackexchange": lambda: networks.Bigrams(WORDS + 4, common=PAIRS),
        PAPER_SIZE: tasks.models.paper_cnn,
    }
    # One by one the clients' logits of 10,004 tokens stay in the cache: four times as fast.
    return replace(task, model=models[name](), vmap=name != "stackexchange")


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
    """Of one core, without the plan's if another seed had it before."""
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


def recorded(task: str, folder: Path = TRAINING) -> list[Run]:
    """Return the runs of ``task`` that are recorded; none if there is no file."""
    path = folder / f"{task}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Run.from_line(line) for line in lines]


@cache
def plan_of(name: str, way: str, epsilon: float, setting: Setting, data: Path) -> CalibratedPlan:
    """Return the plan that all seeds of a cell have."""
    task, changes = task_of(name, setting, data), dict(WAYS[way])
    if way == COMPRESSED:
        changes["compression"] = 2 * task.dimension // changes["bits"]
    return preset_of(name).plan(
        task, epsilon=epsilon, clip=setting.clip, rounds=setting.rounds, **changes
    )


def run(cell: Cell, setting: Setting, data: Path) -> Run:
    """Train, or raise `InfeasibleError` where the bits carry no plan for the epsilon."""
    start = time.process_time()
    task = task_of(cell.task, setting, data)
    plan = plan_of(cell.task, cell.way, cell.epsilon, setting, data)
    history = fl.train(
        task,
        plan,
        aggregate=fl.non_private() if cell.way == NOTHING else fl.unmasked(),
        entropy=sk.SeededEntropy(cell.seed.to_bytes(32, "big"), f"experiments/{cell.task}"),
        server=preset_of(cell.task).server(setting.server),
        every=max(1, setting.rounds // MEASURED),
    )
    measured = [(r.round + 1, r.test_accuracy) for r in history.records]
    curve = tuple((number, accuracy) for number, accuracy in measured if accuracy is not None)
    return Run(
        cell=cell,
        setting=setting,
        noise_multiplier=plan.noise_multiplier,
        server_epsilon=plan.guarantees().server_mean.epsilon,
        bytes_per_client=4 * task.dimension if plan.noise.continuous else plan.bytes_per_client,
        accuracy=sum(accuracy for _, accuracy in curve[-LAST:]) / LAST,
        curve=curve,
        seconds=round(time.process_time() - start, 1),
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
    """Yield the cells of ``task`` seed by seed, the most telling epsilon first."""
    base = (GAUSSIAN, EIGHT, paper(16, 4))
    others = (distributed(4), GAUSSIAN_RDP, TWELVE)
    if task in IMAGES:
        low, middle, high = SETTINGS[task].epsilons
        rest = [paper(b, k) for k in MULTIPLES for b in BITS if (b, k) != (16, 4)]
        yield from _cells(task, (*base, *others), (middle,), MORE)
        yield from _cells(task, (COMPRESSED, CENTRAL, *rest), (middle,), 5)
        yield from _cells(task, base, (low, high), 5)
        yield from _cells(task, (NOTHING, distributed(3)), (middle,), 5)
    elif task in LANGUAGE:
        yield from _cells(task, (*base, *others), SETTINGS[task].epsilons, 3)
        yield from _cells(task, (NOTHING,), SETTINGS[task].epsilons[-1:], 3)
    else:
        yield from _cells(task, (*base, distributed(4), COMPRESSED), SETTINGS[task].epsilons, 2)


def middle_epsilon(task: str) -> float:
    """Return the epsilon at which all ways are compared; of two, the larger."""
    epsilons = SETTINGS[task].epsilons
    return epsilons[len(epsilons) // 2]


def turn(cell: Cell) -> int:
    """Return 0 for what is compared at the middle epsilon, 1 for others, 2 for what is extra."""
    if cell.way in {NOTHING, distributed(3)}:
        return 2
    middle = cell.epsilon == middle_epsilon(cell.task)
    return 0 if middle or cell.task in LANGUAGE else 1


def _cells(
    task: str, ways: tuple[str, ...], epsilons: tuple[float, ...], seeds: int
) -> Iterable[Cell]:
    return (Cell(task, w, e, seed) for seed, e, w in product(range(seeds), epsilons, ways))
