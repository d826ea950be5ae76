"""Train with fixed clips and with ones that adapt: ``python -m experiments.clipping linear``.

All ways have the same noise multiplier a round, so the same epsilon: a clip that adapts spends a
part of that on its count. All runs of a seed start from the same model and see the same cohorts.
The rates of server and clip were chosen on validation data of seed 0, from another stream.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from experiments.runs import chosen

import skellam as sk
from skellam import federated as fl
from skellam import tasks
from skellam.plan import CalibratedPlan

RECORD = Path(__file__).parent / "recorded" / "clipping.jsonl"
FIXED = (0.03, 0.1, 0.3)
STARTS = (0.03, 3.0)
DELTA = 1e-3
SERVER_RATES = {"linear": 1.0, "small_cnn": 0.2}


@dataclass(frozen=True, slots=True)
class Run:
    """One run; ``last_clip`` is the clip of its last round."""

    model: str
    way: str
    seed: int
    epsilon: float
    noise_multiplier: float
    last_clip: float
    validation_accuracy: float
    test_accuracy: float
    cpu_seconds: float
    chosen: Mapping[str, Any]
    """Fields of `Plan` that were chosen for it, from which `plan` makes the plan again."""

    def plan(self) -> CalibratedPlan:
        """Return the plan of the run, accounted as plans are today."""
        kind, *_, start = self.way.split()
        asked = _asked(float(start), adapts=kind == "adaptive", **self.chosen)
        return asked.with_noise(self.noise_multiplier, delta=DELTA)


def _asked(start: float, *, adapts: bool, **chosen: Any) -> sk.Plan:  # noqa: ANN401
    noise = 0.05 if adapts else None
    return sk.Plan(clip=start, cohort=50, rounds=60, quantile_noise=noise, **chosen)


def recorded(path: Path = RECORD) -> list[Run]:
    """Return the runs at ``path``."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Run(**json.loads(line)) for line in lines]


def table(runs: Sequence[Run], model: str) -> list[str]:
    """Return the rows of Markdown that show ``runs`` of ``model``."""
    ways = dict.fromkeys(run.way for run in runs if run.model == model)
    rows = ["| clip | test accuracy, seed by seed | last clip |", "|---|---|---|"]
    for way in ways:
        of_way = [run for run in runs if (run.model, run.way) == (model, way)]
        accuracies = ", ".join(f"{100 * run.test_accuracy:.1f} %" for run in of_way)
        clips = ", ".join(dict.fromkeys(f"{run.last_clip:.2g}" for run in of_way))
        rows.append(f"| {way} | {accuracies} | {clips} |")
    return rows


def run(model: str, start: float, seed: int, data: Path, *, adapts: bool) -> Run:
    """Train one way from one seed."""
    begun = time.process_time()
    task = tasks.mnist_writers(data, model=tasks.models.linear() if model == "linear" else None)
    asked = _asked(start, adapts=adapts, dimension=task.dimension, population=len(task.clients))
    plan = asked.matched(0.8, delta=DELTA)
    history = fl.train(
        task,
        plan,
        clip=fl.AdaptiveClip(clip=start, target=0.5, learning_rate=1.0) if adapts else None,
        aggregate=fl.unmasked(),
        entropy=sk.SeededEntropy(seed.to_bytes(32, "big"), "experiments/clipping"),
        server=fl.fedavg(learning_rate=SERVER_RATES[model], momentum=0.9),
        every=plan.rounds,
    )
    last = history.records[-1]
    return Run(
        model=model,
        way=f"adaptive from {start:g}" if adapts else f"fixed {start:g}",
        seed=seed,
        epsilon=plan.privacy().epsilon,
        noise_multiplier=plan.noise_multiplier,
        last_clip=last.clip or start,
        validation_accuracy=last.validation_accuracy or 0.0,
        test_accuracy=last.test_accuracy or 0.0,
        cpu_seconds=round(time.process_time() - begun, 1),
        chosen={**chosen(plan), "population": plan.population},
    )


def main(
    model: str,
    *,
    seeds: Annotated[int, typer.Option(help="Paired seeds.")] = 3,
    data: Annotated[Path, typer.Option(envvar="SKELLAM_DATA", help="Folder with the data sets.")],
    out: Annotated[Path, typer.Option(help="Where runs are recorded.")] = RECORD,
) -> None:
    """Train MODEL (linear or small_cnn) in every way and add the runs to OUT."""
    out.parent.mkdir(parents=True, exist_ok=True)
    for seed in range(seeds):
        for starts, adapts in ((FIXED, False), (STARTS, True)):
            for start in starts:
                found = run(model, start, seed, data, adapts=adapts)
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(found)) + "\n")
    print("\n".join(table(recorded(out), model)))


if __name__ == "__main__":
    typer.run(main)
