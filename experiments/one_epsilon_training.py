"""Accuracy at one epsilon AGAINST THE SERVER: ``python -m experiments.one_epsilon_training TASK``.

Correlated noise of both servers, and of the helper alone, against independent noise of the clients
with the same schedule, and against a Poisson plan that has the same epsilon in public alone. All
runs of a seed start from the same model. Runs are simulations in the clear with the noise of the
protocols, 16 bits. Each is added to the records when it is done: the program may be killed at any
time, and goes on where it was. ``SKELLAM_DATA`` names the folder with the data sets.

Of `mnist_writers` and `unipen` every client of the data stands for several of a population as large
as EMNIST's, as the epsilons of the other experiments do: of one who is there several times they say
too little.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from scipy import stats

import skellam as sk
from experiments import runs
from skellam import federated as fl
from skellam import tasks
from skellam.plan import CalibratedPlan, Plan

RECORDED = Path(__file__).parent / "recorded" / "one_epsilon"
NOTHING = "no privacy"
BOTH, HELPER = "correlated, both servers' noise", "correlated, the helper's noise alone"
CLIENTS = "independent, the clients' noise"
PUBLIC = "Poisson cohorts, this epsilon in public alone"
_CYCLIC = {"sampling": "cyclic"}
_TWO = {**_CYCLIC, "aggregation": "two-servers", "correlation": "auto", "server_momentum": 0.9}
WAYS: dict[str, dict[str, Any]] = {
    BOTH: _TWO,
    CLIENTS: _CYCLIC,
    PUBLIC: {},
    HELPER: {**_TWO, "noise_by": "helper"},
    NOTHING: {"noise": "none"},
}
EPSILONS, SEEDS = (4.0, 2.0, 8.0), 5
LAST = 20
"""Accuracies are means over what was measured in so many last rounds."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The schedule of a task: ``cohort`` of ``population`` clients in each of ``rounds``."""

    population: int
    cohort: int
    rounds: int
    clip: float
    server: float
    """Learning rate of the server."""


SETTINGS = {
    "digits": Setting(population=2000, cohort=154, rounds=50, clip=0.3, server=1.5),
    "mnist_writers": Setting(population=3400, cohort=100, rounds=60, clip=0.3, server=1.0),
    "unipen": Setting(population=3400, cohort=100, rounds=68, clip=0.3, server=1.0),
}


@dataclass(frozen=True, slots=True)
class Run:
    """One way at one epsilon from one seed, and what came out."""

    task: str
    way: str
    epsilon: float
    seed: int
    accuracy: float
    curve: tuple[tuple[int, float], ...]
    epsilon_public: float | None
    epsilon_server: float | None
    band: tuple[int, ...]
    noise_multiplier: float
    seconds: float
    """Of one core."""

    @property
    def key(self) -> tuple[str, float, int]:
        """What tells it from other runs of the task; epsilon is nothing without privacy."""
        return self.way, 0.0 if self.way == NOTHING else self.epsilon, self.seed


def recorded(task: str, folder: Path = RECORDED) -> list[Run]:
    """Return the runs of ``task`` that are recorded."""
    path = folder / f"{task}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Run(**json.loads(line)) for line in lines]


def populated(name: str, setting: Setting) -> fl.Task:
    """Return the task with as many clients as are accounted for."""
    data = None if name == "digits" else Path(os.environ.get("SKELLAM_DATA", "data"))
    if name == "unipen":
        task = runs.task_of(name, runs.SETTINGS[name], data)  # a small network, for short runs
    else:
        task = tasks.preset(name).task(data)
    known = dict(task.clients)
    if len(known) == setting.population:
        return task
    several = product(range(-(-setting.population // len(known))), known.items())
    named = {f"{name}/{copy}": each for copy, (name, each) in several}
    return replace(task, clients=dict(list(named.items())[: setting.population]))


def planned(way: str, epsilon: float, setting: Setting, dimension: int) -> CalibratedPlan:
    """Return the plan of ``way``; its epsilon is against the server, but with Poisson cohorts."""
    plan = Plan(
        dimension=dimension,
        clip=setting.clip,
        cohort=setting.cohort,
        population=setting.population,
        rounds=setting.rounds,
        **WAYS[way],
    )
    delta = 1 / setting.population
    if way == NOTHING:
        return plan.with_noise(0.0, delta=delta)
    return plan.calibrated(epsilon=epsilon, delta=delta)


def run(name: str, task: fl.Task, way: str, epsilon: float, seed: int) -> Run:
    """Train once."""
    start, setting = time.process_time(), SETTINGS[name]
    plan = planned(way, epsilon, setting, task.dimension)
    simulated = fl.trusted_sum() if plan.aggregation == "one-server" else fl.unmasked()
    history = fl.train(
        task,
        plan,
        aggregate=fl.non_private() if way == NOTHING else simulated,
        entropy=sk.SeededEntropy(seed.to_bytes(32, "big"), f"one-epsilon/{name}"),
        server=fl.fedavg(learning_rate=setting.server, momentum=0.9),
        every=5,
    )
    held = None if way == NOTHING else plan.guarantees()
    measured = [r for r in history.records if r.test_accuracy is not None]
    return Run(
        task=name,
        way=way,
        epsilon=epsilon,
        seed=seed,
        accuracy=history.last(LAST).test_accuracy,
        curve=tuple((r.round + 1, float(r.test_accuracy or 0.0)) for r in measured),
        epsilon_public=held and held.public.epsilon,
        epsilon_server=held and held.server.epsilon,
        band=plan.band,
        noise_multiplier=plan.noise_multiplier,
        seconds=round(time.process_time() - start, 1),
    )


def wanted() -> Iterator[tuple[str, float, int]]:
    """Yield way, epsilon and seed, the most telling first."""
    for epsilon, seed in product(EPSILONS, range(SEEDS)):
        for way in WAYS:
            if way != NOTHING or epsilon == EPSILONS[0]:
                yield way, epsilon, seed


@dataclass(frozen=True, slots=True)
class Row:
    """One way at one epsilon; accuracies and differences in per cent."""

    epsilon: float
    way: str
    seeds: int
    accuracy: float
    difference: float
    """From independent noise of the clients, mean over the seeds that both have."""
    half: float
    """Half of Student's interval at 95 %; not a number for fewer than three seeds."""
    epsilon_public: float | None
    epsilon_server: float | None


def rows(task: str, folder: Path = RECORDED) -> Iterator[Row]:
    """Yield the rows of ``task``, by epsilon and way."""
    runs = recorded(task, folder)
    for epsilon, way in product(sorted(EPSILONS), WAYS):
        found = {r.seed: r for r in runs if (r.way, r.epsilon) == (way, epsilon)}
        base = {r.seed: r.accuracy for r in runs if (r.way, r.epsilon) == (CLIENTS, epsilon)}
        if not found:
            continue
        gaps = [100 * (found[s].accuracy - base[s]) for s in found if s in base]
        half = np.nan
        if len(gaps) > 2:
            half = stats.t.ppf(0.975, len(gaps) - 1) * np.std(gaps, ddof=1) / np.sqrt(len(gaps))
        one = next(iter(found.values()))
        yield Row(
            epsilon,
            way,
            len(found),
            100 * float(np.mean([r.accuracy for r in found.values()])),
            float(np.mean(gaps)) if gaps else np.nan,
            float(half),
            one.epsilon_public,
            one.epsilon_server,
        )


COLUMNS = ("epsilon", "noise", "seeds", "accuracy, %", "less independent", "server", "public")


def markdown(task: str, folder: Path = RECORDED) -> str:
    """Return the table of ``task`` as the documentation shows it."""
    lines = [COLUMNS, ("---",) * len(COLUMNS), *map(_texts, rows(task, folder))]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _texts(row: Row) -> tuple[str, ...]:
    interval = f" ± {row.half:.2f}" if np.isfinite(row.half) else ""
    beside = row.way != CLIENTS and np.isfinite(row.difference)
    return (
        "" if row.way == NOTHING else f"{row.epsilon:g}",
        row.way,
        str(row.seeds),
        f"{row.accuracy:.2f}",
        f"{row.difference:+.2f}{interval}" if beside else "",
        "" if row.epsilon_server is None else f"{row.epsilon_server:.3g}",
        "" if row.epsilon_public is None else f"{row.epsilon_public:.3g}",
    )


def main(
    task: Annotated[str, typer.Argument(help=f"One of {', '.join(SETTINGS)}.")],
    folder: Annotated[Path, typer.Option(help="Where runs are recorded.")] = RECORDED,
    *,
    show: Annotated[bool, typer.Option("--show", help="Print the table; train nothing.")] = False,
) -> None:
    """Train what is not recorded yet, and print the table."""
    import torch

    torch.set_num_threads(1)
    made = None
    for way, epsilon, seed in [] if show else wanted():
        done = {found.key for found in recorded(task, folder)}
        if (way, 0.0 if way == NOTHING else epsilon, seed) in done:
            continue
        made = made or populated(task, SETTINGS[task])
        found = run(task, made, way, epsilon, seed)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{task}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(found)) + "\n")
        typer.echo(f"epsilon {epsilon:g}, seed {seed}, {way}: {found.accuracy:.2%}")
    typer.echo(markdown(task, folder))


if __name__ == "__main__":
    typer.run(main)
