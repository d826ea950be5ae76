import numpy as np
import pytest
import torch

from skellam.entropy import SeededEntropy
from skellam.errors import DomainError
from skellam.federated import models
from skellam.federated.data import Examples
from skellam.federated.local import Learner, LocalTraining


def entropy(number=0):
    return SeededEntropy(bytes([number]) * 32, "test")


def some_examples(count=7):
    bits = np.empty((count, 28, 28), dtype=np.uint8)
    SeededEntropy(bytes(32), "images").fill(bits)
    return Examples(bits / np.float32(255), np.arange(count) % 10)


ZEROS = np.zeros(7850, dtype=np.float32)
ALL_AT_ONCE = LocalTraining(rate=0.1, batch=100)


def test_one_batch_is_one_gradient_step():
    """Softmax regression from zero: the gradient is (1/10 - onehot) times the input, by hand."""
    examples = some_examples()
    update = Learner(models.linear()).update(ZEROS, examples, ALL_AT_ONCE, entropy=entropy())
    onehot = np.eye(10)[examples.targets]
    error = (0.1 - onehot) / len(examples)
    weight = error.T @ examples.inputs.reshape(7, -1)
    expected = -0.1 * np.concatenate((weight.ravel(), error.sum(0)))
    np.testing.assert_allclose(update, expected, atol=1e-6)


def test_the_same_bits_give_the_same_update_and_leave_the_start_alone():
    training = LocalTraining(rate=0.1, batch=2, epochs=2)
    start = models.flatten(models.paper_cnn(10))
    kept, updates = start.copy(), []
    for number in (0, 0, 1):
        learner = Learner(models.paper_cnn(10))
        updates.append(learner.update(start, some_examples(4), training, entropy=entropy(number)))
    np.testing.assert_array_equal(start, kept)
    np.testing.assert_array_equal(updates[0], updates[1])
    assert not np.array_equal(updates[0], updates[2])


def test_epochs_and_the_cap_say_how_many_steps_are_taken(monkeypatch):
    seen = []
    forward = Learner._forward
    monkeypatch.setattr(Learner, "_forward", lambda s, e: seen.append(e.targets) or forward(s, e))
    training = LocalTraining(rate=0.1, batch=2, epochs=3, most=5)
    Learner(models.linear()).update(ZEROS, some_examples(7), training, entropy=entropy())
    assert [len(targets) for targets in seen] == [2, 2, 1] * 3
    epoch = np.concatenate(seen[:3])
    assert len(set(epoch.tolist())) == 5


def test_a_client_without_examples_moves_nothing():
    update = Learner(models.linear()).update(
        ZEROS, some_examples(0), ALL_AT_ONCE, entropy=entropy()
    )
    np.testing.assert_array_equal(update, ZEROS)


def test_padding_is_neither_learnt_nor_measured():
    model = models.character_model(10, hidden=4)
    models.initialise(model, entropy=entropy())
    start = models.flatten(model)
    short = Examples(np.array([[5, 6, 7]]), np.array([[6, 7, 8]]))
    padded = Examples(np.array([[5, 6, 7, 0, 0]]), np.array([[6, 7, 8, 0, 0]]))
    learner = Learner(model, padding=0)
    updates = [learner.update(start, e, ALL_AT_ONCE, entropy=entropy()) for e in (short, padded)]
    np.testing.assert_allclose(*updates, atol=1e-6)
    measures = [learner.evaluate(start, examples) for examples in (short, padded)]
    assert measures[0].loss == pytest.approx(measures[1].loss)
    assert measures[0].count == measures[1].count == 3


def test_a_measure_is_the_mean_over_what_is_measured():
    """A bias towards class 2 names class 2 always; 1 is learnt but not measured."""
    vector = ZEROS.copy()
    vector[-10 + 2] = 1.0
    blank = Examples(np.zeros((600, 28, 28), np.float32), np.repeat([2, 2, 1, 3], 150))
    measure = Learner(models.linear(), unmeasured=(1,)).evaluate(vector, blank)
    assert measure.count == 450
    assert measure.accuracy == pytest.approx(2 / 3)
    log_total = np.log(9 + np.e)
    assert measure.loss == pytest.approx((2 * (log_total - 1) + 2 * log_total) / 4, rel=1e-5)


def test_training_lowers_the_loss():
    examples = some_examples(40)
    learner = Learner(models.small_cnn(10))
    start = models.flatten(models.small_cnn(10))
    training = LocalTraining(rate=0.05, batch=10, epochs=10)
    update = learner.update(start, examples, training, entropy=entropy())
    assert learner.evaluate(start + update, examples).loss < learner.evaluate(start, examples).loss
    assert torch.isfinite(torch.from_numpy(update)).all()


@pytest.mark.parametrize(
    "wrong", [{"rate": 0.0}, {"rate": float("nan")}, {"batch": 0}, {"epochs": 0}, {"most": 0}]
)
def test_bad_settings_are_refused(wrong):
    with pytest.raises(DomainError):
        LocalTraining(**{"rate": 0.1, "batch": 1} | wrong)
