import copy

import numpy as np
import pytest
import torch

from skellam import federated as fl
from skellam.entropy import SeededEntropy
from skellam.federated.modules import flatten, load, size
from skellam.tasks import models

IMAGES = torch.rand(3, 28, 28, generator=torch.Generator().manual_seed(1))
TEXT = torch.randint(0, 90, (3, 11), generator=torch.Generator().manual_seed(1))


def entropy(number=0):
    return SeededEntropy(bytes([number]) * 32, "test")


@pytest.mark.parametrize(
    ("build", "parameters"),
    [
        (models.linear, 7_850),
        (models.small_cnn, 59_310),
        (models.paper_cnn, 1_018_174),
        (models.character_model, 820_522),
        (models.word_model, 4_050_748),
    ],
)
def test_models_have_exactly_the_stated_number_of_parameters(build, parameters):
    model = build()
    assert size(model) == parameters
    assert flatten(model).shape == (parameters,)


def test_images_and_text_go_in_and_logits_come_out():
    assert models.linear()(IMAGES).shape == (3, 10)
    assert models.small_cnn(7)(IMAGES).shape == (3, 7)
    assert models.paper_cnn()(IMAGES).shape == (3, 62)
    assert models.character_model()(TEXT).shape == (3, 11, 90)
    assert models.word_model(200)(TEXT).shape == (3, 11, 200)


def test_one_bias_a_gate_as_an_obvious_recurrence_has_it():
    model = models.Recurrent(3, 5, layers=2)
    models.keras_weights(model)
    x = torch.linspace(-1, 1, 2 * 4 * 3).reshape(2, 4, 3)
    expected = x
    for layer in model.layers:
        h, c, steps = torch.zeros(2, 5), torch.zeros(2, 5), []
        for t in range(4):
            gates = expected[:, t] @ layer.weight_ih_l0.T + h @ layer.weight_hh_l0.T
            i, f, g, o = (gates + layer.bias_ih_l0).chunk(4, dim=1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            steps.append(h)
        expected = torch.stack(steps, dim=1)
    torch.testing.assert_close(model(x), expected)


def test_the_second_bias_stays_zero_however_the_model_is_moved_and_loaded():
    model = models.character_model(20, hidden=4).double().float()
    load(model, np.ones(size(model), dtype=np.float32))
    assert not any("bias_hh" in name for name in model.state_dict())
    for layer in model[1].layers:
        assert torch.equal(layer.bias_hh_l0, torch.zeros(16))


def test_a_copy_of_a_recurrent_model_is_a_model_of_its_own():
    model = models.character_model(20, hidden=4)
    copied = copy.deepcopy(model)
    assert torch.equal(copied(TEXT[:, :5] % 20), model(TEXT[:, :5] % 20))
    load(copied, np.zeros(size(model), dtype=np.float32))
    assert torch.equal(copied(TEXT[:, :5] % 20), torch.zeros(3, 5, 20))
    assert flatten(model).any()


@pytest.mark.parametrize("draw", [models.keras_weights, models.shakespeare_weights])
def test_the_same_entropy_gives_the_same_model_whatever_torch_was_doing(draw):
    vectors = []
    for seed, number in ((1, 0), (2, 0), (2, 1)):
        torch.manual_seed(seed)
        task = fl.Task(models.character_model(20, hidden=4), {"a": (TEXT, TEXT)}, initializer=draw)
        before = torch.get_rng_state()
        vectors.append(task.initial(entropy=entropy(number)))
        assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(*vectors[:2])
    assert not np.array_equal(*vectors[1:])


def test_weights_are_drawn_as_keras_draws_them():
    """The deviation of 1,024 values is within 20 % of its law's with probability above 1 - 1e-15.

    In units of their standard errors, (2 * 1024)**-0.5, that is nine.
    """
    model = models.character_model(hidden=16)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        models.keras_weights(model)
        kernel, recurrent = (getattr(model[1].layers[1], f"weight_{n}_l0") for n in ("ih", "hh"))
        limit = np.sqrt(6 / (64 + 16))
        assert 0.95 * limit < kernel.abs().max() <= limit * (1 + 1e-6)
        torch.testing.assert_close(recurrent.T @ recurrent, torch.eye(16), atol=1e-5, rtol=0)
        assert 0.045 < model[0].weight.abs().max() <= 0.05
        bias = model[1].layers[0].bias_ih_l0.detach().numpy().reshape(4, 16)
        assert bias.tolist() == [[0.0] * 16, [1.0] * 16, [0.0] * 16, [0.0] * 16]
        assert not model[2].bias.any()
        models.shakespeare_weights(model)
        assert kernel.std().item() == pytest.approx(np.sqrt(2 / 16), rel=0.2)
        assert kernel.abs().max() <= 2 * np.sqrt(2 / 16) / 0.8796
        assert model[2].weight.std().item() == pytest.approx(np.sqrt(2 / (16 + 90)), rel=0.2)
