"""The server: FedAvg, unchanged, on a grid that shows it nothing but noisy sums."""

import time
from dataclasses import replace

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits_app import task
from skellam import Plan
from skellam.engines.flower import LeaderFiles, secured

app = ServerApp()


def plan_of(config, clients: int) -> Plan:
    """Return the plan, but for the noise."""
    plan = Plan(
        dimension=task.dimension(),
        clip=1.0,
        cohort=clients,
        rounds=config["num-rounds"],
        sampling="all",
        bits=16,
    )
    if config.get("helper"):
        return replace(plan, aggregation="two-servers", min_cohort=3)
    return replace(plan, dropout=config["dropout"], colluding=config["colluding"])


def helper_of(config) -> dict:
    """Return where the second of two servers is, and the files of the leader, if there are two."""
    if not config["helper"]:
        return {}
    files = LeaderFiles(
        identity=config["leader-key"],
        helper=config["helper-key"],
        state=config["leader-state"],
        authority=config["helper-authority"],
    )
    return {"helper": config["helper"], "leader": files}


def evaluate(_: int, arrays: ArrayRecord) -> MetricRecord:
    model = task.from_record(arrays)
    return MetricRecord({"accuracy": task.accuracy(model, *task.held_out())})


def wait_for_clients(grid: Grid, wanted: int) -> int:
    """Wait until as many are connected, two at least, and nobody more comes; return how many."""
    before = -1
    while (found := len(list(grid.get_node_ids()))) < max(2, wanted) or found != before:
        before = found
        time.sleep(1)
    return found


def run(grid: Grid, context: Context):
    """Train, and return the strategy's result and the reports of the rounds."""
    config = context.run_config
    clients = wait_for_clients(grid, config["num-clients"])
    strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=clients)
    secure = secured(
        grid,
        context,
        strategy,
        plan_of(config, clients),
        epsilon=config["epsilon"],
        delta=config["delta"],
        roster=config["roster"],
        ledger=config["ledger"],
        stage_timeout=config["stage-timeout"],
        **helper_of(config),
    )
    result = strategy.start(
        secure,
        task.to_record(task.initial_model()),
        num_rounds=config["num-rounds"],
        timeout=config["stage-timeout"],
        evaluate_fn=evaluate,
    )
    return result, secure.reports


@app.main()
def main(grid: Grid, context: Context) -> None:
    run(grid, context)
