"""Against the table of hyperparameters in the paper's appendix and its authors' code."""

import numpy as np
import pytest

import skellam as sk
from skellam import federated as fl
from skellam import tasks
from skellam.errors import DomainError
from skellam.federated.data import arrays
from skellam.federated.modules import size
from skellam.tasks import models

PAPER = {
    #                parameters  clips       n    population rounds delta     server rates
    "emnist":        (1_018_174, (0.03,), 100, 3400, 1500, 1 / 3400, (1.0,)),
    "shakespeare":   (820_522, (0.25, 0.5), 100, 1_000_000, 1200, 1e-6, (0.32,)),
    "stackoverflow": (4_050_748, (0.3,), 100, 342_477, 1600, 1e-6, (0.3, 1.0)),
}  # fmt: skip
TRAINING = {
    "emnist": {"learning_rate": 0.32, "batch_size": 20},
    "shakespeare": {"learning_rate": 1.0, "batch_size": 4},
    "stackoverflow": {"learning_rate": 0.5, "batch_size": 16, "max_examples": 256},
}
MODELS = {
    "emnist": models.paper_cnn,
    "shakespeare": models.character_model,
    "stackoverflow": models.word_model,
}


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_settings_are_these(name):
    dimension, clips, cohort, population, rounds, delta, rates = PAPER[name]
    found = tasks.preset(name)
    assert (found.clips, found.learning_rates, found.momentum) == (clips, rates, 0.9)
    assert (found.cohort, found.population, found.rounds) == (cohort, population, rounds)
    assert found.delta == delta
    assert size(MODELS[name]()) == dimension


@pytest.mark.parametrize("name", tasks.PRESETS)
def test_every_preset_names_a_task(name):
    assert callable(getattr(tasks, name))
    assert tasks.preset(name).server().name.startswith("fedavg(")


def test_an_unknown_preset_is_refused():
    with pytest.raises(DomainError, match="emnist"):
        tasks.preset("cifar")


def synthetic(name, clients):
    """A few examples a client, of the shapes that the real data has."""
    rng = np.random.default_rng(5)
    shape, classes = {
        "emnist": ((28, 28), 62),
        "shakespeare": ((80,), 90),
        "stackoverflow": ((20,), 10_004),
    }[name]

    def examples():
        if name == "emnist":
            return rng.random((2, *shape), dtype=np.float32), rng.integers(0, classes, 2)
        return rng.integers(0, classes, (2, *shape)), rng.integers(1, classes, (2, *shape))

    train = arrays({f"{n:04d}": examples() for n in range(clients)})
    splits = tasks.Splits(
        train, arrays({"v": examples()}), arrays({"t": examples()}), classes=classes
    )
    build = tasks.image_task if name == "emnist" else tasks.text_task
    return build(name, splits, MODELS[name](), **TRAINING[name])


class KilledError(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPER)
def test_full_settings_start_checkpoint_and_resume(name, tmp_path):
    """The paper's model, clip, cohort, rounds and delta; a round of it, a kill, another round.

    The data is synthetic: 110 clients of two examples, a hypothetical population.
    """
    settings = tasks.preset(name)
    task = synthetic(name, 110)
    plan = settings.plan(task, epsilon=10 if name == "emnist" else 5, bits=16)
    assert (plan.rounds, plan.population) == (settings.rounds, settings.population)

    def run(stop):
        def watch(record):
            if record.round == stop:
                raise KilledError

        fl.train(
            task,
            plan,
            aggregate=fl.unmasked(),
            entropy=sk.SeededEntropy(bytes(32), name),
            server=settings.server(),
            folder=tmp_path,
            resume=True,
            watch=watch,
        )

    for stop in (0, 1):
        with pytest.raises(KilledError):
            run(stop)
    history = (tmp_path / "history.jsonl").read_text().splitlines()
    assert len(history) == 2
    assert "hypothetical population" in (tmp_path / "run.json").read_text()
