"""Private regression on a table with a user column: own loss, own metric, thirty lines."""

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.nn import functional

import skellam as sk
from skellam import federated as fl

COLUMNS = ["age", "income", "visits"]


def purchases(users: int, rows: int, seed: int) -> pd.DataFrame:
    """Return made-up purchases; bring your own frame instead."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(users * rows, 3)), columns=COLUMNS)
    frame["customer"] = np.repeat([f"customer-{n}" for n in range(users)], rows)
    habit = np.repeat(rng.normal(0, 0.3, users), rows)
    frame["spend"] = 1.5 * frame["income"] - 0.5 * frame["age"] + habit
    return frame


def main(rounds: int = 40) -> dict[str, float]:
    frame, held_out = purchases(1000, 6, seed=1), purchases(200, 6, seed=2)
    torch.manual_seed(3)  # the weights to begin with; noise never comes from here
    clients = fl.data.by_user(frame, user="customer", inputs=COLUMNS, target="spend")
    task = fl.Task(
        nn.Linear(3, 1),
        clients,
        loss=functional.mse_loss,
        optimizer=fl.sgd(0.1),
        metrics={"mae": functional.l1_loss},
        validation=(held_out[COLUMNS].to_numpy(), held_out["spend"].to_numpy()),
    )
    plan = sk.Plan(
        dimension=task.dimension, clip=0.2, cohort=100, population=len(clients), rounds=rounds
    ).calibrated(epsilon=2, delta=1e-4)
    errors = {}
    for name, aggregate in {"private": fl.unmasked(), "without privacy": fl.non_private()}.items():
        history = fl.train(
            task, plan, aggregate=aggregate, entropy=sk.SystemEntropy(), every=rounds
        )
        errors[name] = history.records[-1].validation["mae"]
        print(f"{name}: mean absolute error {errors[name]:.3f}")
    return errors


if __name__ == "__main__":
    main()
