"""The server: FedAvg, unchanged, on a grid that shows it nothing but noisy sums."""

import time
from logging import INFO
from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.common import log
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits_app import task
from skellam import Plan, SystemEntropy
from skellam.accounting.ledger import Ledger
from skellam.engines.flower import SecureGrid, read_roster, virtual_folder, virtual_roster

app = ServerApp()


def plan_of(config, clients: int) -> Plan:
    """Return the plan: the noise that gives the whole run this epsilon."""
    return Plan(
        dimension=task.dimension(),
        clip=1.0,
        cohort=clients,
        rounds=config["num-rounds"],
        sampling="all",
        bits=16,
        dropout=config["dropout"],
    ).calibrated(epsilon=config["epsilon"], delta=config["delta"])


def open_ledger(path: Path, config) -> Ledger:
    if path.exists():
        return Ledger.open(path)
    return Ledger.create(path, epsilon=config["epsilon"], delta=config["delta"])


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
    simulated = not config["roster"]
    roster = virtual_roster(context.run_id, clients) if simulated else read_roster(config["roster"])
    path = virtual_folder(context.run_id) / "server.ledger" if simulated else config["ledger"]
    strategy = FedAvg(fraction_evaluate=0.0)
    with open_ledger(Path(path), config) as ledger:
        secure = SecureGrid(
            grid,
            plan_of(config, clients),
            ledger,
            strategy=strategy,
            roster=roster,
            entropy=SystemEntropy(),
            stage_timeout=config["stage-timeout"],
        )
        result = strategy.start(
            secure,
            task.to_record(task.initial_model()),
            num_rounds=config["num-rounds"],
            timeout=config["stage-timeout"],
            evaluate_fn=evaluate,
        )
        log(INFO, "epsilon %.4f of %.4f is spent", ledger.epsilon(), config["epsilon"])
    return result, secure.reports


@app.main()
def main(grid: Grid, context: Context) -> None:
    run(grid, context)
