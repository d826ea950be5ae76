"""Many clients at once train as one by one; what cannot be mapped is found out by itself."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import skellam as sk
from federated.test_bring_your_own import Transformer, sentences
from oracles import tiny_task
from skellam import federated as fl
from skellam import tasks
from skellam.errors import TrainingError
from skellam.tasks import models


def entropy(context):
    return sk.SeededEntropy(bytes(32), context)


def rehearsed(task):
    worker, start = task.worker(), task.initial(entropy=entropy("model"))
    worker.rehearse(start, entropy=entropy("rehearsal"))
    return worker, start


def images(count):
    rng = np.random.default_rng(count)
    inputs = rng.normal(size=(count, 28, 28)).astype(np.float32)
    return inputs, rng.integers(0, 10, count)


def cnn(**settings):
    clients = {str(n): images(9 + n % 4) for n in range(6)}
    return fl.Task(models.small_cnn(10), clients, **{"optimizer": fl.sgd(0.1), **settings})


def transformer(**settings):
    clients = {str(n): sentences(6 + n % 3, n) for n in range(8)}
    return fl.Task(Transformer(), clients, **{"optimizer": fl.sgd(0.3), **settings})


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)


class Two(nn.Module):
    """A frozen layer, a weight that two layers share, and one that nothing uses."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(4, 8).requires_grad_(False)
        self.one, self.other, self.unused = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.other.weight = self.one.weight
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        return self.out(torch.tanh(self.other(torch.tanh(self.one(self.frozen(x))))))


def regression():
    rng = np.random.default_rng(5)
    clients = {str(n): (rng.normal(size=(5, 2)), rng.normal(size=5)) for n in range(6)}
    return fl.Task(nn.Linear(2, 1), clients, loss=functional.mse_loss, optimizer=fl.sgd(0.1))


@pytest.mark.parametrize(
    "make",
    [
        lambda: tasks.digits(clients=200),
        lambda: cnn(batch_size=4),
        lambda: cnn(batch_size=4, optimizer=momentum),
        lambda: transformer(batch_size=3, epochs=2),
        lambda: transformer(batch_size=3, schedule=lambda number: 1 / (1 + number)),
        lambda: tiny_task.task(model=Two(), batch_size=4),
        regression,
    ],
    ids=["digits", "cnn", "momentum", "transformer", "schedule", "special", "regression"],
)
def test_updates_are_those_of_one_client_after_the_other_to_1e_5(make):
    task = make()
    worker, start = rehearsed(task)
    names = list(task.clients)[:20]
    assert worker.at_once > 1
    found = worker.updates(start, names, 1, entropy=[entropy(name) for name in names])
    for name, vector in zip(names, found, strict=True):
        alone = worker.update(start, name, 1, entropy=entropy(name))
        assert np.abs(alone).max() > 1e-4
        assert np.abs(vector - alone).max() <= 1e-5


class DataDependent(nn.Linear):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else 2 * super().forward(x)


class HiddenDropout(nn.Linear):
    def forward(self, x):
        return functional.dropout(super().forward(x), 0.3, self.training)


class WithBuffer(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.register_buffer("mask", torch.ones(3))


@pytest.mark.parametrize(
    "settings",
    [
        {"model": nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.2))},
        {"model": DataDependent(4, 3)},
        {"model": HiddenDropout(4, 3)},
        {"model": WithBuffer(4, 3)},
        {"optimizer": lambda p: torch.optim.AdamW(p, lr=0.01)},
        {"update": lambda model, batches, round_: None},
        {"loss": lambda y, t: functional.cross_entropy(y, t) * (1 + t.float().mean().item())},
        {"vmap": False},
    ],
    ids=["dropout", "branch", "hidden", "buffer", "adamw", "update", "item", "off"],
)
def test_what_cannot_be_mapped_or_shall_not_be_is_trained_one_by_one(settings):
    task = tiny_task.task(**settings)
    worker, _ = rehearsed(task)
    assert worker.at_once == 1
    history = fl.train(
        task, tiny_task.plan(), aggregate=fl.unmasked(), entropy=tiny_task.seeded(), every=5
    )
    assert history.records[-1].evaluated


def test_a_dropout_of_zero_is_no_randomness():
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.0))
    assert rehearsed(tiny_task.task(model=model))[0].at_once > 1


def test_one_clients_bad_data_is_its_own_failure(tmp_path):
    made = tiny_task.task()
    clients = {name: made.clients[name] for name in made.clients}
    clients["c03"] = ([[1.0]], [0])
    clients["c05"] = 7
    net = nn.Sequential(nn.Linear(4, 33), nn.Tanh(), nn.LayerNorm(33), nn.Linear(33, 3))
    worker, start = rehearsed(fl.Task(net, clients, optimizer=made.optimizer, batch_size=3))
    names = list(clients)
    found = worker.updates(start, names, 0, entropy=[entropy(name) for name in names])
    failed = [name for name, each in zip(names, found, strict=True) if isinstance(each, Exception)]
    assert failed == ["c03", "c05"]
    sound = [name for name in names if name not in failed]
    expected = worker.updates(start, sound, 0, entropy=[entropy(name) for name in sound])
    others = [each for each in found if not isinstance(each, Exception)]
    assert all(map(np.array_equal, others, expected))
    task = fl.Task(made.model, clients, optimizer=made.optimizer, batch_size=3)
    settings = {"aggregate": fl.unmasked(), "entropy": tiny_task.seeded()}
    with pytest.raises(TrainingError, match="first failure"):
        fl.train(task, tiny_task.plan(), **settings, max_failures=0.0)
    history = fl.train(task, tiny_task.plan(), **settings, max_failures=1.0)
    assert len(history.records) == 5


def test_a_run_is_the_same_mapped_or_not_and_mapped_secure_or_not():
    def run(aggregate, **settings):
        return fl.train(
            tiny_task.task(**settings),
            tiny_task.plan(),
            aggregate=aggregate,
            entropy=tiny_task.seeded(),
            every=5,
        ).model

    dropout = {0: (3,), 2: (5,), 3: range(12)}
    mapped = run(fl.unmasked(dropout=dropout))
    assert np.array_equal(mapped, run(fl.secure(dropout=dropout)))
    assert np.allclose(mapped, run(fl.unmasked(dropout=dropout), vmap=False), atol=1e-3)
