import warnings

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


class MovingMean(nn.Linear):
    """A buffer, or a mere attribute, that is set anew instead of being changed."""

    def __init__(self, *, buffer):
        super().__init__(4, 3)
        self.register_buffer("mean", torch.zeros(4)) if buffer else setattr(
            self, "mean", torch.zeros(4)
        )

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return super().forward(x - self.mean)


class Remembering(nn.Linear):
    """Keeps what it saw last in attributes that were not there before, or were empty."""

    def __init__(self):
        super().__init__(4, 3)
        self.seen = []

    def forward(self, x):
        if self.training:
            self.last = x.detach()
            self.seen.append(x.detach().mean(0))
        return super().forward(x + sum(self.seen))


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


def scripted():
    with warnings.catch_warnings(action="ignore"):
        return torch.jit.script(nn.Linear(2, 2))


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
        (scripted(), r"torch\.jit.*bring the module itself"),
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


def test_a_layer_that_is_used_twice_stays_one_layer():
    norm = nn.BatchNorm1d(4)
    fixed = fl.fix(nn.Sequential(nn.Linear(4, 4), norm, nn.Linear(4, 4), norm))
    assert fl.private_ready(fixed) == []
    assert isinstance(fixed[1], nn.GroupNorm)
    assert fixed[1] is fixed[3]


def test_parameters_side_by_side_in_one_memory_are_not_tied():
    """As cuDNN lays out recurrent weights."""
    memory, model = torch.ones(18), nn.Sequential(*(nn.Linear(3, 3, bias=False) for _ in "ab"))
    for n, layer in enumerate(model):
        layer.weight = nn.Parameter(memory[9 * n : 9 * n + 9].view(3, 3))
    assert fl.private_ready(model) == []
    model[1].weight = nn.Parameter(memory[8:17].view(3, 3))
    assert "shares memory" in fl.private_ready(model)[0]


@pytest.mark.parametrize(
    ("model", "name"),
    [(Counter(), "seen"), (MovingMean(buffer=True), "mean"), (MovingMean(buffer=False), "mean")],
    ids=["changed", "set anew", "attribute"],
)
def test_buffers_that_training_changes_are_refused_in_the_rehearsal(model, name):
    task = fl.Task(model, {"a": (X.numpy(), np.arange(5) % 3)})
    start = task.initial(entropy=None)
    with pytest.raises(DomainError, match=f"buffer '{name}'"):
        task.worker().rehearse(start, entropy=seeded())


@pytest.mark.parametrize(
    "model",
    [Counter(), MovingMean(buffer=True), MovingMean(buffer=False), Remembering()],
    ids=["changed", "set anew", "attribute", "new attribute"],
)
def test_what_a_module_keeps_of_one_client_the_next_never_meets(model):
    held = {"a": (1e3 * X.numpy(), np.arange(5) % 3), "b": (X.numpy(), np.arange(5) % 3)}
    task = fl.Task(model, held)
    start = task.initial(entropy=None)
    alone = task.worker().update(start, "b", 0, entropy=seeded())
    worker = task.worker()
    worker.update(start, "a", 0, entropy=seeded())
    assert np.array_equal(worker.update(start, "b", 0, entropy=seeded()), alone)


def test_a_module_that_sets_attributes_is_trained_one_client_after_the_other():
    """In a mapped call an attribute would hold the data of all clients."""
    task = fl.Task(Remembering(), {name: (X.numpy(), np.arange(5) % 3) for name in "abc"})
    worker, start = task.worker(), task.initial(entropy=None)
    worker.rehearse(start, entropy=seeded())
    assert worker.at_once == 1
    assert worker._model.seen == []
    assert not hasattr(worker._model, "last")


def test_an_update_that_moves_frozen_weights_is_refused_in_the_rehearsal():
    def wrong(model, batches, round_):
        model[0].weight.data += 1

    model = nn.Sequential(nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 3))
    task = fl.Task(model, {"a": (X.numpy(), np.arange(5) % 3)}, update=wrong)
    with pytest.raises(DomainError, match=r"frozen weight '0\.weight'"):
        task.worker().rehearse(task.initial(entropy=None), entropy=seeded())


def test_a_first_step_that_is_not_finite_is_refused_in_the_rehearsal():
    held, linear = (X.numpy() * np.float32(1e30), np.arange(5) % 3), nn.Linear(4, 3)
    nn.init.zeros_(linear.weight)  # all classes are as likely, so that no gradient is zero
    task = fl.Task(linear, {"a": held}, optimizer=fl.sgd(1e30))
    with pytest.raises(DomainError, match="not finite"):
        task.worker().rehearse(task.initial(entropy=None), entropy=seeded())


def test_other_frozen_weights_are_another_task():
    frozen = [nn.Sequential(nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 3)) for _ in "ab"]
    first, second = (fl.Task(model, {"a": (X, X)}) for model in frozen)
    assert first.fixed != second.fixed
    assert first.fixed == fl.Task(frozen[0], {"b": (X, X)}).fixed
