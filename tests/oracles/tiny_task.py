"""A task that trains in milliseconds: three classes of four numbers, twelve clients and more."""

import numpy as np
import torch
from torch import nn

import skellam as sk
from skellam import federated as fl

CENTRES = np.array([[2, 0, 0, 1], [0, 2, 0, -1], [0, 0, 2, 0]], dtype=np.float32)


def examples(count, seed):
    rng = np.random.default_rng(seed)
    targets = rng.integers(0, 3, count)
    return CENTRES[targets] + rng.normal(0, 0.5, (count, 4)).astype(np.float32), targets


def linear():
    """A linear model that is the same in every process."""
    model = nn.Linear(4, 3)
    with torch.no_grad():
        model.weight.copy_(torch.linspace(-0.5, 0.5, 12).reshape(3, 4))
        model.bias.zero_()
    return model


def task(count=12, **changes):
    settings = {
        "model": linear(),
        "clients": fl.data.arrays({f"c{n:02d}": examples(6, n) for n in range(count)}),
        "validation": examples(60, 10_001),
        "test": examples(60, 10_002),
        "optimizer": fl.sgd(0.5),
        "batch_size": 3,
        "name": "tiny",
    }
    return fl.Task(**{**settings, **changes})


def plan(delta=1e-3, **changes):
    settings = {
        "dimension": 15,
        "clip": 1.0,
        "cohort": 8,
        "population": 12,
        "rounds": 5,
        "bits": 16,
        "dropout": 0.2,
        "expected_dropout": 0.0,
    }
    return sk.Plan(**{**settings, **changes}).with_noise(1.0, delta=delta)


def seeded(context="tiny"):
    return sk.SeededEntropy(bytes(32), context)
