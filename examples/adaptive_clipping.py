"""Train with a clip that follows the median of the update norms, beside fixed clips.

Run: python examples/adaptive_clipping.py --data DIRECTORY [--rounds 60]

Every run has the same noise multiplier for a round as a whole, so the same epsilon: the adaptive
one pays for its count of clients within the clip out of that.
"""

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

import skellam as sk
from skellam import federated as fl
from skellam.engines import local
from skellam.engines.adaptive import adaptive
from skellam.plan import AdaptiveClip

FIXED = (0.03, 0.1, 0.3, 1.0, 3.0)
MULTIPLIER = 0.8
DELTA = 1e-3


class Adaptive:
    """Sums rounds in the clear, and moves the clip after each."""

    def __init__(self, clip: AdaptiveClip) -> None:
        self.clip = clip

    def __call__(self, plan, this, update, *, entropy):
        outcome, self.clip = adaptive(local.clear, plan, this, update, self.clip, entropy=entropy)
        return outcome


def task(path: str) -> fl.Task:
    full = fl.tasks.mnist_writers(path)
    return replace(full, model=fl.models.linear, name="mnist_writers, linear")


def main() -> None:
    arguments = parse()
    learnt = task(arguments.data)
    plan = sk.Plan(
        dimension=learnt.dimension,
        clip=1.0,
        cohort=arguments.cohort,
        population=len(learnt.splits.train),
        rounds=arguments.rounds,
        bits=16,
    )
    movings = []

    def moving():
        movings.append(Adaptive(AdaptiveClip(clip=arguments.start)))
        return fl.Aggregation(movings[-1], "clear, adaptive clip")

    ways = {f"fixed {clip:g}": (replace(plan, clip=clip), fl.clear) for clip in arguments.fixed}
    ways["adaptive"] = (replace(plan, quantile_noise=0.05), moving)
    table = Table(title=f"{learnt.name}, {arguments.rounds} rounds of {arguments.cohort} writers")
    for column in ("clip", "epsilon", "noise multiplier", "test accuracy", "seconds"):
        table.add_column(column, justify="right")
    for name, (wanted, aggregate) in ways.items():
        table.add_row(name, *run(learnt, wanted, aggregate, arguments))
    console = Console()
    console.print(table)
    ends = ", ".join(f"{one.clip.clip:.3g}" for one in movings)
    console.print(f"The clip went from {arguments.start:g} to {ends}.")


def run(learnt, wanted, aggregate, arguments):
    plan = wanted.matched(MULTIPLIER, delta=DELTA)
    start, accuracies = time.perf_counter(), []
    for seed in range(arguments.seeds):
        history = fl.train(
            learnt,
            plan,
            aggregate=aggregate(),
            entropy=sk.SeededEntropy(seed.to_bytes(32, "big"), "example"),
            server=fl.fedavg(momentum=0.9),
            every=arguments.rounds,
        )
        accuracies.append(history.records[-1].test_accuracy)
    return (
        f"{plan.privacy().epsilon:.2f}",
        f"{plan.noise_multiplier:.4f}",
        ", ".join(f"{accuracy:.2%}" for accuracy in accuracies),
        f"{time.perf_counter() - start:.0f}",
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("SKELLAM_DATA", "../shared/data"))
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--cohort", type=int, default=50)
    parser.add_argument("--fixed", type=float, nargs="*", default=FIXED)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--start", type=float, default=0.1, help="the clip to begin with")
    arguments = parser.parse_args()
    if not (Path(arguments.data) / "mnist_writers.npz").exists():
        sys.exit(f"{arguments.data} holds no mnist_writers.npz; pass --data or set SKELLAM_DATA")
    return arguments


if __name__ == "__main__":
    main()
