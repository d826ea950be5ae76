import numpy as np
import pytest
import torch
from torch import nn

from oracles.tiny_task import seeded
from skellam import federated as fl
from skellam.errors import DomainError, ShapeError
from skellam.federated import modules

X = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(7, 3), nn.Linear(3, 7, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens):
        return self.out(self.embed(tokens))


class Counter(nn.Module):
    """A buffer that training changes, and that no check can know of."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.seen += x.sum()
        return self.layer(x)


def test_the_vector_is_what_requires_a_gradient():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    model[0].requires_grad_(False)
    assert modules.size(model) == 8
    modules.load(model, np.arange(8, dtype=np.float32))
    assert model[1].weight.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert modules.flatten(model).tolist() == list(range(8))
    with pytest.raises(ShapeError, match="8 trained parameters"):
        modules.load(model, np.zeros(3, dtype=np.float32))


def test_tied_weights_are_counted_once_and_stay_tied():
    model = Tied()
    assert modules.size(model) == 21
    modules.load(model, np.ones(21, dtype=np.float32))
    made = modules.with_weights(model, np.full(21, 2, dtype=np.float32))
    assert made.out.weight is made.embed.weight
    assert model.out.weight.sum() == 21
    assert fl.private_ready(model) == []


def test_a_model_in_double_precision_is_a_vector_of_single_ones():
    model = nn.Linear(4, 3).double()
    vector = modules.flatten(model)
    assert vector.dtype == np.float32
    modules.load(model, vector)
    assert model.weight.dtype == torch.float64
    assert fl.private_ready(model) == []


def overlapping():
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = nn.Parameter(model[0].weight.data)
    return model


def not_finite():
    model = nn.Linear(2, 2)
    model.bias.data[0] = torch.nan
    return model


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)), r"1 \(BatchNorm1d\).*fl\.fix"),
        (nn.InstanceNorm1d(3, affine=True, track_running_stats=True), r"it \(InstanceNorm1d\)"),
        (nn.Linear(2, 2).requires_grad_(False), "unfreeze"),
        (nn.Linear(2, 2).half(), r"weight is float16.*model\.float"),
        (nn.Linear(2, 2).bfloat16(), "weight is bfloat16"),
        (nn.LazyLinear(3), "weight has no shape yet"),
        (overlapping(), r"1\.weight shares memory with 0\.weight"),
        (not_finite(), "bias has weights that are not finite"),
    ],
)
def test_what_is_wrong_is_listed_and_refused_with_what_to_do(model, match):
    found = "; ".join(fl.private_ready(model))
    assert len(found) > 20
    with pytest.raises(DomainError, match=match):
        fl.Task(model, {"a": (X, X)})


def test_frozen_half_precision_is_fine():
    model = nn.Sequential(nn.Linear(4, 4).half().requires_grad_(False), nn.Linear(4, 2))
    assert fl.private_ready(model) == []


@pytest.mark.parametrize("channels", [6, 32, 48, 1])
def test_batch_norm_becomes_group_norm_with_its_learnt_scale_in_a_copy(channels):
    model = nn.Sequential(nn.Conv2d(1, channels, 3), nn.BatchNorm2d(channels), nn.Flatten())
    model[1].weight.data.fill_(3.0)
    model[1].bias.requires_grad_(False)
    fixed = fl.fix(model)
    assert fl.private_ready(fixed) == []
    assert isinstance(fixed[1], nn.GroupNorm)
    assert isinstance(model[1], nn.BatchNorm2d)
    assert fixed[1].weight.tolist() == [3.0] * channels
    assert not fixed[1].bias.requires_grad
    assert fixed[1].weight is not model[1].weight
    assert torch.isfinite(fixed(torch.ones(2, 1, 5, 5))).all()
    assert modules.size(fixed) == modules.size(model)


def test_a_module_that_is_itself_a_batch_norm_and_instance_norms_are_fixed_too():
    assert isinstance(fl.fix(nn.BatchNorm1d(4)), nn.GroupNorm)
    tracked = nn.Sequential(nn.InstanceNorm1d(3, affine=True, track_running_stats=True))
    fixed = fl.fix(tracked)
    assert fl.private_ready(fixed) == []
    assert fixed(torch.ones(2, 3, 4)).shape == (2, 3, 4)


def test_buffers_that_training_changes_are_refused_in_the_rehearsal():
    task = fl.Task(Counter(), {"a": (X.numpy(), np.arange(5) % 3)})
    start = task.initial(entropy=None)
    with pytest.raises(DomainError, match="buffer 'seen'"):
        task.worker().rehearse(start, entropy=seeded())


def test_a_buffer_tells_the_next_client_nothing():
    task = fl.Task(Counter(), {"a": (X.numpy(), np.arange(5) % 3)})
    worker = task.worker()
    worker.update(task.initial(entropy=None), "a", 0, entropy=seeded())
    assert worker._model.seen == 0


def test_an_update_that_moves_frozen_weights_is_refused_in_the_rehearsal():
    def wrong(model, batches, round_):
        model[0].weight.data += 1

    model = nn.Sequential(nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 3))
    task = fl.Task(model, {"a": (X.numpy(), np.arange(5) % 3)}, update=wrong)
    with pytest.raises(DomainError, match=r"frozen weight '0\.weight'"):
        task.worker().rehearse(task.initial(entropy=None), entropy=seeded())


def test_a_first_step_that_is_not_finite_is_refused_in_the_rehearsal():
    held = (X.numpy() * np.float32(1e30), np.arange(5) % 3)
    task = fl.Task(nn.Linear(4, 3), {"a": held}, optimizer=fl.sgd(1e30))
    with pytest.raises(DomainError, match="not finite"):
        task.worker().rehearse(task.initial(entropy=None), entropy=seeded())


def test_other_frozen_weights_are_another_task():
    frozen = [nn.Sequential(nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 3)) for _ in "ab"]
    first, second = (fl.Task(model, {"a": (X, X)}) for model in frozen)
    assert first.fixed != second.fixed
    assert first.fixed == fl.Task(frozen[0], {"b": (X, X)}).fixed
