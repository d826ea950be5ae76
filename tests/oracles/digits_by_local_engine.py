"""The example's run, round by round, on the local engine, for the same entropy."""

import importlib
import sys

import numpy as np

from oracles.flower_guide import ROOT
from skellam import SeededEntropy
from skellam.engines import local


def example():
    folder = str(ROOT / "examples" / "flower-digits")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module("digits_app.task"), importlib.import_module(
        "digits_app.server_app"
    )


def rounds(plan, partitions, cast, recorded, failed=()):
    """Yield what each round releases; ``cast`` has, for each round, participants and survivors.

    ``partitions`` maps a client's number to its partition; ``recorded`` has digests of contents;
    ``failed`` has the rounds and clients whose training failed, which send zeros.
    """
    task, _ = example()
    model = task.initial_model()
    for number, (participants, survivors) in enumerate(cast, start=1):
        content = bytes(recorded[f"content-{number}"].tolist())
        silent = set(participants) - set(survivors)
        this = local.Round(number, content, tuple(participants), silent)
        before = flat(model)

        def update(n, number=number, model=model, before=before):
            if (number, n) in failed:
                return np.zeros_like(before)
            data = task.examples_of(partitions(n), partitions.count)
            return flat(task.train(model, *data)) - before

        found = local.secure(plan, this, update, entropy=replay)
        yield found, update
        after = before + found.total.values / plan.cohort
        model = {
            "weight": after[: 16 * 10].reshape(16, 10).astype(np.float32),
            "bias": after[16 * 10 :].astype(np.float32),
        }


def replay(purpose):
    return SeededEntropy(bytes(32), purpose)


def flat(model):
    return np.concatenate([array.ravel() for array in model.values()])


class Partitions:
    """From a client's number to its partition: the number minus ``first``."""

    def __init__(self, count, first):
        self.count, self.first = count, first

    def __call__(self, number):
        return number - self.first
