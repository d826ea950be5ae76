"""Train a digit classifier on 2,000 clients, none of whom needs to trust the server."""

import argparse
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

import skellam as sk
from skellam import federated as fl
from skellam import report
from skellam.accounting.guarantee import rounded_up

EPSILON = 4.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=Path("runs") / time.strftime("%Y%m%d-%H%M%S")
    )
    folder = parser.parse_args().folder
    console = Console()
    settings = fl.preset("digits")
    task = settings.task()
    plan = settings.plan(task, epsilon=EPSILON, dropout=0.1)
    server = settings.server()
    console.print(
        f"{plan.people} clients, {plan.dimension:,} parameters, {plan.rounds} rounds of "
        f"about {plan.cohort} clients; some vanish in every round"
    )

    start = time.perf_counter()
    with fl.progress(plan.rounds, console=console) as watch:
        history = fl.train(
            task,
            plan,
            aggregate=fl.secure(dropout=0.03),
            entropy=sk.SystemEntropy(),
            server=server,
            folder=folder,
            every=2,
            watch=watch,
        )
    seconds = time.perf_counter() - start
    baseline = fl.train(
        task, plan, aggregate=fl.plain(), entropy=sk.SystemEntropy(), server=server, every=10
    )
    console.print(summary(history, baseline, seconds))
    console.print(f"report: {report.write(folder)}")


def summary(history: fl.History, baseline: fl.History, seconds: float) -> Table:
    private, plain = (run.records[-1].test_accuracy for run in (history, baseline))
    public, mean, worst = (rounded_up(found.epsilon) for found in history.guarantees)
    delta = history.guarantees.public.delta
    table = Table(title=f"private training of digits, {seconds:.0f} s", show_header=False)
    table.add_row("accuracy", f"{private:.1%}")
    table.add_row("accuracy without privacy", f"{plain:.1%} (private: {private / plain:.1%} of it)")
    table.add_row("epsilon against the public", f"{public} at delta {delta:g}")
    table.add_row("epsilon against the server", f"{mean} for the mean client")
    table.add_row("", f"{worst} for a client that is drawn in every round")
    return table


if __name__ == "__main__":
    main()
