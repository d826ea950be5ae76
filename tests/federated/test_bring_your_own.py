"""What users of PyTorch bring: each test has its own code in ten lines or fewer."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import skellam as sk
from oracles.tiny_task import examples, seeded
from skellam import federated as fl
from skellam.errors import DomainError

CLIENTS = {f"c{n:02d}": examples(12, n) for n in range(16)}
HELD_OUT = examples(300, 99)


def plan_for(task, **changes):
    settings = {"clip": 1.0, "cohort": 16, "sampling": "all", "rounds": 4, **changes}
    return sk.Plan(dimension=task.dimension, **settings).with_noise(0.5, delta=1e-3)


def train(task, aggregate=None, server=None, **changes):
    return fl.train(
        task,
        plan_for(task, **changes),
        aggregate=aggregate or fl.non_private(),
        entropy=seeded(),
        server=server or fl.fedavg(),
        every=100,
    )


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 3))


@pytest.fixture(autouse=True)
def _one_thread():
    """torch's threads wait for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def states_agree(one, other, atol):
    states = one.state_dict(), other.state_dict()
    return all(torch.allclose(states[0][k], states[1][k], atol=atol, rtol=0) for k in states[1])


# From its own weights.


def test_a_pretrained_module_is_unchanged_after_a_round_at_a_tiny_rate(tmp_path):
    net = network()
    before = copy.deepcopy(net)
    task = fl.Task(net, CLIENTS, optimizer=fl.sgd(1e-9), test=HELD_OUT)
    history = train(task, rounds=1)
    assert states_agree(history.torch_model(), before, 1e-6)
    assert states_agree(net, before, 0)


def test_weights_go_in_and_out_by_state_dict_and_the_folders_file_is_safe_to_load(tmp_path):
    task = fl.Task(network(), CLIENTS, optimizer=fl.sgd(0.1))
    history = fl.train(
        task, plan_for(task), aggregate=fl.unmasked(), entropy=seeded(), folder=tmp_path
    )
    net = network()
    net.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    assert states_agree(net, history.torch_model(), 0)
    assert not states_agree(net, network(), 1e-3)


class Transformer(nn.Module):
    """Names the commonest of three tokens."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.embed = nn.Embedding(3, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.out = nn.Linear(16, 3)

    def forward(self, tokens):
        return self.out(self.encoder(self.embed(tokens)).mean(1))


def sentences(count, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    tokens = rng.integers(0, 3, (count, 8))
    tokens[:, :5] = labels[:, None]
    return rng.permuted(tokens, axis=1), labels


def by_hand(model, clients, rounds, rate):
    """Federated averaging in a plain loop, without the library: whole batches, all clients."""
    for _ in range(rounds):
        moved = []
        for inputs, targets in clients.values():
            local = copy.deepcopy(model)
            optimizer = torch.optim.SGD(local.parameters(), lr=rate)
            functional.cross_entropy(local(torch.tensor(inputs)), torch.tensor(targets)).backward()
            optimizer.step()
            moved.append(local.state_dict())
        mean = {k: torch.stack([state[k] for state in moved]).mean(0) for k in moved[0]}
        model.load_state_dict(mean)
    return model


def accuracy(model, held_out):
    model.eval()
    with torch.no_grad():
        named = model(torch.tensor(held_out[0])).argmax(1).numpy()
    return float((named == held_out[1]).mean())


@pytest.mark.parametrize(
    ("build", "clients", "held_out", "rate"),
    [
        (network, CLIENTS, HELD_OUT, 0.3),
        (Transformer, {str(n): sentences(20, n) for n in range(16)}, sentences(300, 99), 0.3),
    ],
)
def test_layer_norms_and_transformers_learn_as_by_hand(build, clients, held_out, rate):
    task = fl.Task(build(), clients, optimizer=fl.sgd(rate), batch_size=64, test=held_out)
    history = train(task, rounds=12)
    expected = accuracy(by_hand(build(), clients, 12, rate), held_out)
    assert expected > 0.8
    assert history.records[-1].test_accuracy == pytest.approx(expected, abs=0.03)
    assert accuracy(history.torch_model(), held_out) == history.records[-1].test_accuracy


def test_with_little_noise_privacy_costs_little(tmp_path):
    task = fl.Task(network(), CLIENTS, optimizer=fl.sgd(0.3), batch_size=64, test=HELD_OUT)
    assert train(task, fl.secure(), rounds=20).records[-1].test_accuracy > 0.8


# Modules with something special.


def test_batch_norm_is_refused_with_the_fix_and_trains_once_fixed():
    net = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    with pytest.raises(DomainError, match=r"fl\.fix"):
        fl.Task(net, CLIENTS)
    task = fl.Task(fl.fix(net), CLIENTS, optimizer=fl.sgd(0.3), test=HELD_OUT)
    assert train(task, rounds=20).records[-1].test_accuracy > 0.8


def test_a_frozen_layer_stays_and_is_no_part_of_the_dimension():
    net = network()
    net[0].requires_grad_(False)
    task = fl.Task(net, CLIENTS, optimizer=fl.sgd(0.3))
    trained = train(task).torch_model()
    assert task.dimension == 16 + 16 + 51
    assert states_agree(trained[0], net[0], 0)
    assert not states_agree(trained[3], net[3], 1e-3)


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = network(), nn.Linear(4, 3)

    def forward(self, x):
        return self.used(x)


def test_an_unused_layer_stays_where_it_is():
    net = Unused()
    trained = train(fl.Task(net, CLIENTS, optimizer=fl.sgd(0.3))).torch_model()
    assert states_agree(trained.unused, net.unused, 1e-6)
    assert not states_agree(trained.used, net.used, 1e-3)


def test_half_precision_is_refused_and_double_trains():
    with pytest.raises(DomainError, match=r"float16.*model\.float\(\)"):
        fl.Task(network().half(), CLIENTS)
    task = fl.Task(network().double(), CLIENTS, optimizer=fl.sgd(0.3), test=HELD_OUT)
    history = train(task, rounds=20)
    assert history.records[-1].test_accuracy > 0.8
    assert next(history.torch_model().parameters()).dtype == torch.float64


def test_an_empty_client_sends_zeros_even_if_it_is_the_first():
    clients = {"a": (np.zeros((0, 4), np.float32), np.zeros(0, int)), **CLIENTS}
    task = fl.Task(network(), clients, optimizer=fl.sgd(0.3), test=HELD_OUT)
    assert train(task, rounds=20, cohort=17).records[-1].test_accuracy > 0.8


# Local training.


def test_adamw_is_an_optimiser_like_any_other():
    def adamw(parameters):
        return torch.optim.AdamW(parameters, lr=0.01)

    task = fl.Task(network(), CLIENTS, optimizer=adamw, batch_size=4, test=HELD_OUT)
    assert train(task, rounds=10).records[-1].test_accuracy > 0.8


def fedprox(model, batches, round_, weight=1.0):
    start = [p.detach().clone() for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * round_.factor)
    for inputs, targets in batches:
        optimizer.zero_grad()
        away = sum(((p - q) ** 2).sum() for p, q in zip(model.parameters(), start, strict=True))
        (functional.cross_entropy(model(inputs), targets) + weight / 2 * away).backward()
        optimizer.step()


def test_fedprox_is_an_update_of_ones_own_and_stays_nearer_to_the_start():
    def moved(weight):
        task = fl.Task(
            network(), CLIENTS, update=lambda *a: fedprox(*a, weight=weight), batch_size=2
        )
        worker, start = task.worker(), task.initial(entropy=seeded())
        return np.linalg.norm(worker.update(start, "c00", 0, entropy=seeded()))

    assert moved(10.0) < 0.9 * moved(0.0)
    task = fl.Task(network(), CLIENTS, update=fedprox, batch_size=2, test=HELD_OUT)
    assert train(task, rounds=10).records[-1].test_accuracy > 0.8
    assert "update=fedprox" in task.training


def table(users=40, rows=12):
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(rng.normal(size=(users * rows, 2)), columns=["age", "income"])
    frame["customer"] = np.repeat([f"u{n}" for n in range(users)], rows)
    frame["spend"] = 2 * frame["age"] - frame["income"] + 0.1 * rng.normal(size=len(frame))
    return frame


def test_regression_on_a_data_frame_with_a_loss_and_two_metrics_of_ones_own():
    frame = table()
    held_out = (frame[["age", "income"]].to_numpy(), frame["spend"].to_numpy())
    clients = fl.data.by_user(frame, user="customer", inputs=["age", "income"], target="spend")
    task = fl.Task(
        nn.Linear(2, 1),
        clients,
        loss=functional.mse_loss,
        optimizer=fl.sgd(0.1),
        metrics={"mae": functional.l1_loss, "worst": lambda y, t: (y - t).abs().max()},
        validation=held_out,
    )
    history = train(task, cohort=40, rounds=30)
    assert history.records[-1].validation["mae"] < 0.1 < history.records[-1].validation["worst"]
    assert history.records[-1].validation["loss"] < 0.02
    assert np.allclose(history.model, [2, -1, 0], atol=0.05)


def test_a_schedule_over_rounds_reaches_the_clients():
    rates = []

    def update(model, batches, round_):
        rates.append((round_.number, round_.factor))

    task = fl.Task(network(), CLIENTS, update=update, schedule=lambda t: 1 / (1 + t))
    train(task, rounds=3)
    assert sorted(set(rates)) == [(0, 1.0), (1, 1 / 2), (2, 1 / 3)]


# Data.


@pytest.mark.parametrize("form", ["dataset", "function", "batches"])
def test_torch_data_sets_functions_and_batches_train_alike(form):
    def dataset(name):
        inputs, targets = map(torch.from_numpy, CLIENTS[name])
        return TensorDataset(inputs, targets) if form != "batches" else [(inputs, targets)]

    clients = {name: dataset(name) for name in CLIENTS}
    if form == "function":
        clients = fl.data.clients(list(CLIENTS), dataset)
    task = fl.Task(network(), clients, optimizer=fl.sgd(0.3), test=TensorDataset(*tensors()))
    assert train(task, rounds=20).records[-1].test_accuracy > 0.8


def tensors():
    return map(torch.from_numpy, HELD_OUT)


# Going on after a kill.


class CutOffError(Exception):
    pass


def test_a_run_with_dropout_adamw_and_a_stateful_schedule_goes_on_as_if_never_cut_off(tmp_path):
    def build():
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 3))
        return fl.Task(
            net,
            CLIENTS,
            optimizer=lambda p: torch.optim.AdamW(p, lr=0.01),
            schedule=fl.torch_schedule(
                lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, factor=0.5, patience=0),
                metric="validation_loss",
            ),
            batch_size=4,
            validation=HELD_OUT,
        )

    def run(folder, watch=None):
        made = plan_for(build(), rounds=6)
        settings = {"aggregate": fl.unmasked(), "entropy": seeded(), "watch": watch}
        return fl.train(build(), made, folder=tmp_path / folder, resume=True, **settings)

    def cut_off(record):
        if record.round in (1, 3):
            raise CutOffError

    expected = run("whole")
    for _ in range(2):
        with pytest.raises(CutOffError):
            run("cut", cut_off)
    found = run("cut")
    assert np.array_equal(found.model, expected.model)
    assert found.records == expected.records
