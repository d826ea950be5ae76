"""A task that trains in milliseconds: three classes of four numbers, twelve clients and more."""

import numpy as np
from torch import nn

import skellam as sk
from skellam.federated import LocalTraining, Task
from skellam.federated.data import Splits, client_data

CENTRES = np.array([[2, 0, 0, 1], [0, 2, 0, -1], [0, 0, 2, 0]], dtype=np.float32)


def examples(count, seed):
    rng = np.random.default_rng(seed)
    targets = rng.integers(0, 3, count)
    return CENTRES[targets] + rng.normal(0, 0.5, (count, 4)).astype(np.float32), targets


def task(clients=12, **changes):
    splits = Splits(
        client_data({f"c{n:02d}": examples(6, n) for n in range(clients)}),
        client_data({"validation": examples(60, 10_001)}),
        client_data({"test": examples(60, 10_002)}),
        classes=3,
    )
    settings = {
        "name": "tiny",
        "splits": splits,
        "model": lambda: nn.Linear(4, 3),
        "training": LocalTraining(rate=0.5, batch=3),
    }
    return Task(**{**settings, **changes})


def plan(**changes):
    settings = {
        "dimension": 15,
        "clip": 1.0,
        "cohort": 6,
        "population": 12,
        "rounds": 5,
        "bits": 16,
        "dropout": 0.2,
        "delta": 1e-3,
    }
    return sk.Plan(**{**settings, **changes}).with_noise(1.0)


def seeded(context="tiny"):
    return sk.SeededEntropy(bytes(32), context)
