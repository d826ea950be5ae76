import os
from pathlib import Path

import numpy as np
import pytest

from skellam import federated as fl
from skellam import tasks
from skellam.entropy import SeededEntropy
from skellam.errors import DomainError
from skellam.federated.data import Examples, arrays
from skellam.tasks.models import character_model, linear

FOLDER = os.environ.get("SKELLAM_DATA")


def entropy(context="test"):
    return SeededEntropy(bytes(32), context)


def train(task, rounds, clients):
    """Plain federated averaging over the first clients, no privacy."""
    worker, optimiser, bits = task.worker(), fl.fedavg(momentum=0.5), entropy("training")
    state = optimiser.init(task.initial(entropy=entropy()))
    names = list(task.clients)[:clients]
    for number in range(rounds):
        updates = [worker.update(state.model, name, number, entropy=bits) for name in names]
        state = optimiser.apply(state, np.mean(updates, axis=0, dtype=np.float32))
    return worker.measure(state.model)[0]


def test_digits_are_learnt_in_seconds_without_a_file():
    task = tasks.digits()
    assert task.dimension == 7850
    assert tasks.unigram_accuracy(task) < 0.15
    assert train(task, rounds=8, clients=300)["accuracy"] > 0.7


def test_the_same_entropy_starts_the_same_model():
    task = tasks.digits()
    np.testing.assert_array_equal(task.initial(entropy=entropy()), task.initial(entropy=entropy()))


def text(inputs, targets):
    held = arrays({"a": Examples(np.array(inputs), np.array(targets))})
    return tasks.Splits(held, held, held, classes=10)


def test_unigram_accuracy_counts_measured_targets_alone():
    splits = text(np.zeros((2, 3), int), [[1, 1, 0], [2, 9, 9]])
    settings = {"learning_rate": 1.0, "unmeasured": (9,)}
    task = tasks.text_task("text", splits, character_model(10, hidden=4), **settings)
    assert tasks.unigram_accuracy(task) == pytest.approx(2 / 3)
    with pytest.raises(DomainError, match="test clients"):
        tasks.unigram_accuracy(fl.Task(linear(), splits.train))


def test_padding_is_neither_learnt_nor_measured():
    short = text([[5, 6, 7]], [[6, 7, 8]])
    padded = text([[5, 6, 7, 0, 0]], [[6, 7, 8, 0, 0]])
    model, updates, measures = character_model(10, hidden=4), [], []
    for splits in (short, padded):
        task = tasks.text_task("text", splits, model, learning_rate=0.1)
        start = task.initial(entropy=entropy())
        updates.append(task.worker().update(start, "a", 0, entropy=entropy()))
        measures.append(task.worker().measure(start)[0])
    np.testing.assert_allclose(*updates, atol=1e-6)
    assert measures[0] == pytest.approx(measures[1])


def test_a_measure_is_the_mean_over_what_is_measured():
    """A bias towards token 2 names token 2 always; 1 is learnt but not measured."""
    splits = text(np.zeros((600, 1), int), np.repeat([2, 2, 1, 3], 150)[:, None])
    task = tasks.text_task("text", splits, character_model(10), learning_rate=1, unmeasured=(1,))
    vector = np.zeros(task.dimension, dtype=np.float32)
    vector[-10 + 2] = 1.0
    measures = task.worker().measure(vector)[0]
    assert measures["accuracy"] == pytest.approx(2 / 3)
    vector[-10 + 1] = 2.0  # it names the unmeasured token, which is an answer, and a wrong one
    assert task.worker().measure(vector)[0]["accuracy"] == 0.0
    log_total = np.log(9 + np.e)
    assert measures["loss"] == pytest.approx((2 * (log_total - 1) + 2 * log_total) / 4, rel=1e-5)


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
    if FOLDER is None or not Path(FOLDER).is_dir():
        pytest.skip("set SKELLAM_DATA to the folder with the stand-ins")
    task = getattr(tasks, name)(FOLDER)
    assert task.dimension == dimension < 2**16
    start = task.initial(entropy=entropy())
    update = task.worker().update(start, next(iter(task.clients)), 0, entropy=entropy())
    assert update.shape == (dimension,)
    assert 0 < np.linalg.norm(update) < np.inf
