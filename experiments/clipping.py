"""Train with fixed clips and with ones that adapt: ``python -m experiments.clipping linear``.

All ways have the same noise multiplier a round, so the same epsilon: a clip that adapts pays for
its count out of that. All runs of a seed start from the same model and see the same cohorts. The
rates of server and clip were chosen on validation data of seed 0, from another stream.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

import skellam as sk
from skellam import federated as fl

RECORD = Path(__file__).parent / "recorded" / "clipping.jsonl"
FIXED = (0.03, 0.1, 0.3)
STARTS = (0.03, 3.0)
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
    task = fl.tasks.mnist_writers(data)
    if model == "linear":
        task = replace(task, model=fl.models.linear)
    plan = sk.Plan(
        dimension=task.dimension,
        clip=start,
        cohort=50,
        population=len(task.splits.train),
        rounds=60,
        quantile_noise=0.05 if adapts else None,
    ).matched(0.8, delta=1e-3)
    history = fl.train(
        task,
        plan,
        clip=fl.AdaptiveClip(clip=start, target=0.5, rate=1.0) if adapts else None,
        aggregate=fl.clear(),
        entropy=sk.SeededEntropy(seed.to_bytes(32, "big"), "experiments/clipping"),
        server=fl.fedavg(rate=SERVER_RATES[model], momentum=0.9),
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
    )


def main(
    model: str,
    *,
    seeds: Annotated[int, typer.Option(help="Paired seeds.")] = 3,
    data: Annotated[Path, typer.Option(envvar="SKELLAM_DATA")] = Path("../shared/data"),
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
