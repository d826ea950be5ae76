import os
from pathlib import Path

import numpy as np
import pytest

from skellam.entropy import SeededEntropy
from skellam.federated import tasks
from skellam.federated.data import Examples, Splits, client_data, pooled
from skellam.federated.local import LocalTraining
from skellam.federated.models import linear
from skellam.federated.server import fedavg

FOLDER = Path(os.environ.get("SKELLAM_DATA", "../shared/data"))


def entropy(context="test"):
    return SeededEntropy(bytes(32), context)


def train(task, rounds, clients):
    """Plain federated averaging over the first clients, no privacy."""
    learner, optimiser, bits = task.learner(), fedavg(momentum=0.5), entropy("training")
    state = optimiser.init(task.initial(entropy=entropy()))
    ids = list(task.splits.train)[:clients]
    for _ in range(rounds):
        updates = [
            learner.update(state.model, task.splits.train[client], task.training, entropy=bits)
            for client in ids
        ]
        state = optimiser.apply(state, np.mean(updates, axis=0, dtype=np.float32))
    return learner.evaluate(state.model, pooled(task.splits.test))


def test_digits_are_learnt_in_seconds_without_a_file():
    task = tasks.digits()
    assert task.dimension == 7850
    assert task.unigram_accuracy() < 0.15
    assert train(task, rounds=8, clients=300).accuracy > 0.7


def test_a_user_brings_data_and_model():
    rows = np.eye(28 * 28, dtype=np.float32)[:40].reshape(40, 28, 28)
    mine = {str(n): (rows[n::8], np.arange(40)[n::8] % 10) for n in range(8)}
    data = client_data(mine)
    task = tasks.Task("mine", Splits(data, data, data, classes=10), linear, LocalTraining(5.0, 1))
    assert train(task, rounds=20, clients=8).accuracy == 1.0


def test_the_same_entropy_starts_the_same_model():
    task = tasks.digits()
    np.testing.assert_array_equal(task.initial(entropy=entropy()), task.initial(entropy=entropy()))


def test_unigram_accuracy_counts_measured_targets_alone():
    held = client_data({"a": Examples(np.zeros((2, 3), int), np.array([[1, 1, 0], [2, 9, 9]]))})
    splits = Splits(held, held, held, classes=10)
    task = tasks.Task("text", splits, linear, LocalTraining(1.0, 1), padding=0, unmeasured=(9,))
    assert task.unigram_accuracy() == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("name", "dimension"),
    [
        ("unipen", 59_310),
        ("mnist_writers", 55_098),
        ("shakespeare_roles", 49_770),
        ("stackexchange", 54_908),
    ],
)
def test_stand_ins_fit_small_models_below_two_to_the_sixteen(name, dimension):
    if not FOLDER.is_dir():
        pytest.skip("set SKELLAM_DATA to the folder with the stand-ins")
    task = getattr(tasks, name)(FOLDER)
    assert task.dimension == dimension < 2**16
    learner, start = task.learner(), task.initial(entropy=entropy())
    client = next(iter(task.splits.train))
    update = learner.update(start, task.splits.train[client], task.training, entropy=entropy())
    assert update.shape == (dimension,)
    assert 0 < np.linalg.norm(update) < np.inf
