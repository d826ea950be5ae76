import numpy as np
import pytest
import torch

from skellam.entropy import SeededEntropy
from skellam.errors import ShapeError
from skellam.federated import models

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
    assert models.size(model) == parameters
    assert models.flatten(model).shape == (parameters,)


def test_images_and_text_go_in_and_logits_come_out():
    assert models.linear()(IMAGES).shape == (3, 10)
    assert models.small_cnn(7)(IMAGES).shape == (3, 7)
    assert models.paper_cnn()(IMAGES).shape == (3, 62)
    assert models.character_model()(TEXT).shape == (3, 11, 90)
    assert models.word_model(200)(TEXT).shape == (3, 11, 200)


def test_one_bias_a_gate_as_an_obvious_recurrence_has_it():
    model = models.Recurrent(3, 5, layers=2)
    models.initialise(model, entropy=entropy())
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
    models.load(model, np.ones(models.size(model), dtype=np.float32))
    assert not any("bias_hh" in name for name in model.state_dict())
    for layer in model[1].layers:
        assert torch.equal(layer.bias_hh_l0, torch.zeros(16))


def test_the_same_entropy_gives_the_same_model_whatever_torch_was_doing():
    vectors = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        model = models.paper_cnn()
        models.initialise(model, entropy=entropy())
        vectors.append(models.flatten(model))
    np.testing.assert_array_equal(*vectors)
    models.initialise(model, entropy=entropy(1))
    assert not np.array_equal(models.flatten(model), vectors[0])


def test_weights_start_within_glorots_limits_and_forgetting_starts_open():
    """The mean of 1,024 uniforms on (-l, l) is beyond 0.12 l with probability below 1e-10."""
    model = models.character_model(hidden=16)
    models.initialise(model, entropy=entropy())
    weights = model[1].layers[1].weight_hh_l0.detach().numpy()
    limit = np.sqrt(6 / (64 + 16))
    assert 0.95 * limit < np.abs(weights).max() <= limit * (1 + 1e-6)
    assert abs(weights.mean()) < 0.12 * limit
    bias = model[1].layers[0].bias_ih_l0.detach().numpy().reshape(4, 16)
    assert bias.tolist() == [[0.0] * 16, [1.0] * 16, [0.0] * 16, [0.0] * 16]


def test_what_is_flattened_can_be_loaded_and_nothing_else():
    model, other = models.small_cnn(10), models.small_cnn(10)
    models.initialise(model, entropy=entropy())
    models.load(other, models.flatten(model))
    assert torch.equal(model(IMAGES), other(IMAGES))
    with pytest.raises(ShapeError, match="55098 parameters"):
        models.load(model, np.zeros(3, dtype=np.float32))


def test_dropout_draws_from_its_own_bits_and_only_in_training():
    layer = models.Dropout(0.25)
    ones = torch.ones(10_000)
    assert torch.equal(layer.eval()(ones), ones)
    layer.train()
    drawn = []
    for number in (0, 0, 1):
        models.seed_dropout(layer, entropy=entropy(number))
        drawn.append(layer(ones))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert drawn[0].unique().tolist() == [0.0, pytest.approx(4 / 3)]
    # Ten standard deviations: false alarms are below 1e-20.
    assert abs((drawn[0] == 0).float().mean() - 0.25) < 10 * np.sqrt(0.25 * 0.75 / 10_000)
