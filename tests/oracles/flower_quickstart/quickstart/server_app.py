"""The server app: FedAvg over a part of the clients."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from quickstart.task import Net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    num_rounds = config["num-server-rounds"]
    arrays = ArrayRecord(Net().state_dict())
    strategy = FedAvg(fraction_train=config["fraction-train"], min_available_nodes=10)
    result = strategy.start(
        grid=grid,
        initial_arrays=arrays,
        train_config=ConfigRecord({"lr": config["lr"]}),
        num_rounds=num_rounds,
    )
    torch.save(result.arrays.to_torch_state_dict(), "final_model.pt")
