"""Train with a clip that follows the median of the update norms, beside fixed clips.

Run: python examples/adaptive_clipping.py --data DIRECTORY [--rounds 60]

Every run has the same noise multiplier for a round as a whole, so the same epsilon: the adaptive
ones spend a part of that on their count of clients within the clip.
"""

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

import skellam as sk
from skellam import federated as fl
from skellam import tasks


def main() -> None:
    arguments = parse()
    task = tasks.mnist_writers(arguments.data, model=tasks.models.linear())
    plan = sk.Plan(
        dimension=task.dimension,
        clip=1.0,
        cohort=arguments.cohort,
        population=len(task.clients),
        rounds=arguments.rounds,
    )
    table = Table("clip", "epsilon", "test accuracy", "last clip")
    for fixed in arguments.fixed:
        table.add_row(f"fixed {fixed:g}", *train(task, replace(plan, clip=fixed), None))
    for start in arguments.starts:
        clip = fl.AdaptiveClip(clip=start, target=0.5, learning_rate=1.0)
        counted = replace(plan, quantile_noise=0.05)
        table.add_row(f"adaptive from {start:g}", *train(task, counted, clip))
    Console().print(table)


def train(task: fl.Task, plan: sk.Plan, clip: fl.AdaptiveClip | None) -> tuple[str, ...]:
    plan = plan.matched(0.8, delta=1e-3)
    history = fl.train(
        task,
        plan,
        clip=clip,
        aggregate=fl.unmasked(),
        entropy=sk.SeededEntropy(bytes(32), "example"),
        every=plan.rounds,
    )
    last = history.records[-1]
    epsilon, accuracy = f"{plan.privacy().epsilon:.2f}", f"{last.test_accuracy:.1%}"
    return epsilon, accuracy, f"{last.clip or plan.clip:.3g}"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("SKELLAM_DATA", "data"))
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--cohort", type=int, default=50)
    parser.add_argument("--fixed", type=float, nargs="*", default=(0.03, 0.1, 0.3))
    parser.add_argument("--starts", type=float, nargs="*", default=(0.1,))
    arguments = parser.parse_args()
    if not (Path(arguments.data) / "mnist_writers.npz").exists():
        sys.exit(f"{arguments.data} holds no mnist_writers.npz; pass --data or set SKELLAM_DATA")
    return arguments


if __name__ == "__main__":
    main()
