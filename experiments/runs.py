"""Train for the learning figures and record it: ``python -m experiments.runs mnist_writers``.

All runs of a seed start from the same model and see the same cohorts and batches; only what privacy
does to the sums differs. A run that is recorded already is not repeated. Settings were chosen on
validation data at another seed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import track

import skellam as sk
from skellam import federated as fl
from skellam import tasks
from skellam.errors import InfeasibleError
from skellam.plan import CalibratedPlan

RECORDED = Path(__file__).parent / "recorded"
GAUSSIAN = "central Gaussian"
NOTHING = "no privacy"
EIGHT, TWELVE = "Skellam (here), 8 bits", "Skellam (here), 12 bits"
COMPRESSED = "Skellam (here), 2 bits a parameter"
BESIDE = 2
"""Seeds of what is shown beside the main ways."""
BOTH_MULTIPLES = ("mnist_writers",)
"""Tasks for which the paper's method is run at every epsilon, with k = 3 and 4, from one seed."""
LAST = 20
"""Accuracies are means over what was measured in so many last rounds."""


def paper(bits: int, multiple: int) -> str:
    """Return the name of the paper's rounding and accounting."""
    return f"Skellam (the paper), {bits} bits, k = {multiple}"


_PAPER = {
    paper(bits, multiple): {
        "accountant": "paper",
        "rounding": "conditional",
        "signal_multiple": float(multiple),
        "bits": bits,
    }
    for bits in (12, 14, 16)
    for multiple in (3, 4)
}
WAYS: Mapping[str, Mapping[str, Any]] = {
    NOTHING: {"noise": "gaussian"},
    GAUSSIAN: {"noise": "gaussian"},
    EIGHT: {"bits": 8},
    TWELVE: {"bits": 12},
    COMPRESSED: {"bits": 8},
    **_PAPER,
}


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


SETTINGS = {
    "mnist_writers": Setting(clip=0.3, rate=0.1, epsilons=(2.0, 4.0, 8.0)),
    "unipen": Setting(clip=0.3, rate=0.1, epsilons=(2.0, 4.0, 8.0), rounds=100, server=0.5),
    "shakespeare_roles": Setting(clip=0.3, rate=4.0, epsilons=(8.0,), batch=10),
    "stackexchange": Setting(clip=0.3, rate=2.0, epsilons=(8.0,), batch=16),
}
LANGUAGE = ("shakespeare_roles", "stackexchange")
"""Tasks that are run from one seed, with 12 bits."""


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
        preset = tasks.preset(self.cell.task)
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
    path = folder / f"{task}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Run.from_line(line) for line in lines]


def run(cell: Cell, setting: Setting, data: Path) -> Run:
    """Train, or raise `InfeasibleError` where the bits carry no plan for the epsilon."""
    start = time.perf_counter()
    preset = tasks.preset(cell.task)
    task = preset.task(data)
    task = replace(task, optimizer=fl.sgd(setting.rate), batch_size=setting.batch)
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
        every=setting.rounds // 10,
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


def cells(task: str, seeds: int) -> Iterable[Cell]:
    """Yield the cells of ``task``, the most telling first."""
    if task in LANGUAGE:
        yield from _cells(task, (TWELVE, NOTHING), SETTINGS[task].epsilons, range(1))
        return
    low, middle, high = SETTINGS[task].epsilons
    main, papers = (GAUSSIAN, EIGHT, TWELVE), (paper(bits, 4) for bits in (12, 14, 16))
    yield from _cells(task, main, (low, middle, high), range(seeds))
    yield from _cells(task, (COMPRESSED,), (middle,), range(seeds))
    yield from _cells(task, (NOTHING, *papers), (middle,), range(min(seeds, BESIDE)))
    if task in BOTH_MULTIPLES:
        yield from _cells(task, tuple(_PAPER), (low, middle, high), range(1))


def _cells(
    task: str, ways: tuple[str, ...], epsilons: tuple[float, ...], seeds: Iterable[int]
) -> Iterable[Cell]:
    return (Cell(task, w, e, seed) for seed, e, w in product(seeds, epsilons, ways))


def _attempt(cell: Cell, data: Path) -> Run | None:
    try:
        return run(cell, SETTINGS[cell.task], data)
    except InfeasibleError:
        return None


def main(
    task: str,
    *,
    seeds: Annotated[int, typer.Option(help="Paired seeds of the main cells.")] = 5,
    data: Annotated[Path, typer.Option(envvar="SKELLAM_DATA", help="Folder with the data sets.")],
    out: Annotated[Path, typer.Option(help="Where runs are recorded.")] = RECORDED,
    workers: Annotated[int, typer.Option(help="Runs side by side.")] = 2,
) -> None:
    """Train every cell of TASK that is not recorded yet, and record it."""
    done = {run.cell for run in recorded(task, out)}
    wanted = [cell for cell in dict.fromkeys(cells(task, seeds)) if cell not in done]
    os.environ["OMP_NUM_THREADS"] = "1"
    out.mkdir(parents=True, exist_ok=True)
    with (
        ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool,
        (out / f"{task}.jsonl").open("a", encoding="utf-8") as file,
    ):
        results = pool.map(_attempt, wanted, [data] * len(wanted))
        for result in track(results, description=task, total=len(wanted)):
            if result is not None:
                file.write(result.to_line() + "\n")
                file.flush()


if __name__ == "__main__":
    typer.run(main)
