"""Train a digit classifier on 2,000 clients, none of whom needs to trust the server."""

import argparse
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

import skellam as sk
from skellam import federated as fl
from skellam import report, tasks
from skellam.accounting.guarantee import rounded_up
from skellam.plan import CalibratedPlan

EPSILON = 4.0
COHORT = 154
"""A thirteenth of the clients, with two servers: they take turns."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=Path("runs") / time.strftime("%Y%m%d-%H%M%S")
    )
    folder = parser.parse_args().folder
    console = Console()
    settings = tasks.preset("digits")
    task = settings.task()
    plan = settings.plan(task, epsilon=EPSILON, dropout=0.1)
    server = settings.server()
    console.print(
        f"{plan.population_size:,} clients, {plan.dimension:,} parameters, {plan.rounds} rounds of "
        f"about {plan.cohort} clients; some drop out of every round"
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
        task, plan, aggregate=fl.non_private(), entropy=sk.SystemEntropy(), server=server, every=10
    )
    console.print(summary(plan, history, baseline, seconds))
    console.print(guaranteed(plan))
    console.print(f"report: {report.write(folder)}")
    notes = report.write_operator(folder, baseline=baseline)
    console.print(f"for the operator alone: {notes}")
    other = settings.plan(
        task,
        epsilon=EPSILON,
        cohort=COHORT,
        sampling="cyclic",
        aggregation="two-servers",
        correlation="auto",
    )
    console.print(
        f"once more, with two servers that do not collude: {other.groups} groups take turns, and "
        f"the noise of a round is taken back in part by the next {len(other.band) - 1}"
    )
    with fl.progress(other.rounds, console=console) as watch:
        correlated = fl.train(
            task,
            other,
            aggregate=fl.two_servers(dropout=0.03),
            entropy=sk.SystemEntropy(),
            server=server,
            every=10,
            watch=watch,
        )
    console.print(beside(history, correlated))
    console.print(
        "One server: cohorts are a secret from the public, and no client gives its noise share "
        "away. Two servers: nothing about cohorts is secret; leader and helper do not collude, and "
        "their noise cancels over rounds."
    )


def summary(
    plan: CalibratedPlan, history: fl.History, baseline: fl.History, seconds: float
) -> Table:
    private, without = (run.records[-1].test_accuracy for run in (history, baseline))
    found = history.guarantees
    public, server, mean = (rounded_up(each.epsilon) for each in found)
    delta = rounded_up(found.public.delta)
    released = sum(record.skipped is None for record in history.records)
    rounds = plan.mean_participations(released)
    table = Table(title=f"private training of digits, {seconds:.0f} s", show_header=False)
    table.add_row("accuracy", f"{private:.1%}")
    share = f"private: {private / without:.1%} of it"
    table.add_row("accuracy without privacy", f"{without:.1%} ({share})")
    table.add_row("epsilon against the public", f"{public} at delta {delta}")
    table.add_row(
        "epsilon against the server",
        f"{server} for every client: nobody's data enters more than {plan.participations} rounds",
    )
    table.add_row("", f"{mean} for a client in {rounds} rounds, which is the mean and no bound")
    return table


def beside(paper: fl.History, correlated: fl.History) -> Table:
    """Accuracy and epsilons of both ways: the weaker number of each is what counts."""
    table = Table(title=f"the same data, epsilon {EPSILON:g}, two ways to sum")
    table.add_column("")
    table.add_column("one server")
    table.add_column("two servers")
    runs = (paper, correlated)
    table.add_row("accuracy", *(f"{run.records[-1].test_accuracy:.1%}" for run in runs))
    held = [run.guarantees for run in runs]
    table.add_row("epsilon against the SERVER", *(rounded_up(g.server.epsilon) for g in held))
    table.add_row("epsilon against the public", *(rounded_up(g.public.epsilon) for g in held))
    return table


def guaranteed(plan: CalibratedPlan) -> str:
    return (
        "The public sees the models and does not know who took part in which round. The server "
        "also knows who took part, and sees noisy sums, never the update of one client. Both "
        f"guarantees assume that no client gives its noise share to the server; a round in which "
        f"more than {plan.dropout:.0%} of the cohort drop out releases nothing."
    )


if __name__ == "__main__":
    main()
