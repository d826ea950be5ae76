import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from oracles.tiny_task import examples, linear, plan, seeded, task
from skellam import federated as fl
from skellam.entropy import SeededEntropy
from skellam.errors import DataError, DomainError
from skellam.federated.data import arrays
from skellam.federated.data import examples as data_examples

INPUTS, TARGETS = examples(7, 3)
START = np.zeros(15, dtype=np.float32)


def entropy(number=0):
    return SeededEntropy(bytes([number]) * 32, "test")


def update(start=START, held=(INPUTS, TARGETS), number=0, bits=0, **settings):
    settings = {"optimizer": fl.sgd(0.1), "batch_size": 100, **settings}
    clients = fl.data.clients(["me"], held) if callable(held) else {"me": held}
    worker = fl.Task(settings.pop("model", None) or linear(), clients, **settings).worker()
    return worker.update(start, "me", number, entropy=entropy(bits))


def test_one_batch_is_one_gradient_step():
    """Softmax regression from zero: the gradient is (1/3 - onehot) times the input, by hand."""
    error = (1 / 3 - np.eye(3)[TARGETS]) / len(TARGETS)
    expected = -0.1 * np.concatenate(((error.T @ INPUTS).ravel(), error.sum(0)))
    np.testing.assert_allclose(update(), expected, atol=1e-6)


def test_our_descent_is_torchs():
    settings = {"batch_size": 2, "epochs": 2}
    torchs = update(optimizer=lambda p: torch.optim.SGD(p, lr=0.1), **settings)
    np.testing.assert_allclose(update(**settings), torchs, atol=1e-6)


def test_the_same_bits_give_the_same_update_and_leave_the_start_and_torch_alone():
    """With dropout, so that torch's own randomness is drawn from too."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    start = np.linspace(-1, 1, 67, dtype=np.float32)
    kept, state = start.copy(), torch.get_rng_state()
    same, again, other = (
        update(start, model=model, batch_size=2, epochs=2, bits=bits) for bits in (0, 0, 1)
    )
    np.testing.assert_array_equal(start, kept)
    np.testing.assert_array_equal(same, again)
    assert not np.array_equal(same, other)
    assert torch.equal(torch.get_rng_state(), state)


def seen(held, **settings):
    """The batches that a custom update is given."""
    found = []
    update(held=held, update=lambda model, got, round_: found.extend(got), **settings)
    return found


class Rows(Dataset):
    def __len__(self):
        return 7

    def __getitem__(self, row):
        return INPUTS[row], TARGETS[row]


TENSORS = torch.from_numpy(INPUTS), torch.from_numpy(TARGETS)
HELD = {
    "arrays": (INPUTS, TARGETS),
    "lists": (INPUTS.tolist(), TARGETS.tolist()),
    "tensors": TENSORS,
    "examples": fl.data.Examples(INPUTS, TARGETS),
    "tensor data set": TensorDataset(*TENSORS),
    "data set": Rows(),
    "loader": DataLoader(Rows(), batch_size=3),
    "batches": [(INPUTS[:3], TARGETS[:3]), (INPUTS[3:], TARGETS[3:])],
    "function": lambda _: ((INPUTS[i : i + 1], TARGETS[i : i + 1]) for i in range(7)),
}


@pytest.mark.parametrize("kind", HELD)
def test_whatever_a_client_holds_it_trains_on_all_of_it_in_every_epoch(kind):
    found = seen(HELD[kind], batch_size=3, epochs=2)
    inputs = torch.cat([batch[0] for batch in found])
    assert inputs.dtype == torch.float32
    assert inputs.shape == (14, 4)
    rows = sorted(map(tuple, inputs.tolist()))
    assert rows == sorted(2 * [*map(tuple, INPUTS.tolist())])


@pytest.mark.parametrize("kind", ["arrays", "data set", "tensors"])
def test_epochs_and_the_cap_say_how_many_steps_are_taken(kind):
    found = seen(HELD[kind], batch_size=2, epochs=3, max_examples=5)
    assert [len(targets) for _, targets in found] == [2, 2, 1] * 3
    assert len({tuple(row) for inputs, _ in found[:3] for row in inputs.tolist()}) == 5


def test_batches_are_cut_off_where_the_cap_is_reached():
    assert len(seen(HELD["batches"], max_examples=3)) == 1
    assert len(seen(HELD["batches"], max_examples=4)) == 2


@pytest.mark.parametrize("held", [(INPUTS[:0], TARGETS[:0]), []])
def test_a_client_without_examples_moves_nothing(held):
    np.testing.assert_array_equal(update(held=held), START)


@pytest.mark.parametrize(
    ("held", "match"),
    [
        (7, "got int"),
        ((INPUTS, TARGETS[:2]), "as many of one"),
        ([INPUTS], r"\(inputs, targets\), got Tensor"),
        ([{"x": INPUTS}], "update="),
    ],
)
def test_what_cannot_be_trained_on_is_refused(held, match):
    with pytest.raises(DataError, match=match):
        update(held=held)


class Named(nn.Linear):
    """Takes its inputs by name, as language models do."""

    def forward(self, values, mask):
        return super().forward(values * mask)


def test_arrays_by_name_are_divided_into_batches_and_measured_by_example():
    inputs = {"values": INPUTS, "mask": torch.ones(7, 1)}
    settings = {"model": Named(4, 3), "batch_size": 3}
    found = update(held=(inputs, TARGETS), **settings)
    assert np.array_equal(found, update(batch_size=3))
    made = fl.Task(
        Named(4, 3),
        {"me": (inputs, {"kind": TARGETS})},
        loss=lambda y, t: nn.functional.cross_entropy(y, t["kind"]),
        metrics={"share": lambda y, t: (t["kind"] == 0).float().mean()},
        test=[
            ({k: v[:2] for k, v in inputs.items()}, {"kind": TARGETS[:2]}),
            (inputs, {"kind": TARGETS}),
        ],
    )
    expected = (np.sum(TARGETS[:2] == 0) + np.sum(TARGETS == 0)) / 9
    assert made.worker().measure(START)[0]["share"] == pytest.approx(expected)
    with pytest.raises(DataError, match="as many of one"):
        update(held=({"values": INPUTS, "mask": torch.ones(6, 1)}, TARGETS), **settings)


def test_a_client_that_can_be_read_only_once_is_refused():
    batches_once = iter([(torch.from_numpy(INPUTS), torch.from_numpy(TARGETS))])
    with pytest.raises(DataError, match="read only once"):
        update(held=batches_once)


def test_an_optimiser_of_another_module_is_refused():
    """It would train nothing, and the run would spend its budget on noise."""
    net = linear()
    with pytest.raises(DomainError, match="parameters that it is given"):
        update(model=net, optimizer=lambda _: torch.optim.SGD(net.parameters(), lr=0.1))


def test_cross_entropy_as_a_module_shows_the_accuracy_too():
    assert set(task(loss=nn.CrossEntropyLoss()).metrics) == {"accuracy"}
    assert task(loss=nn.MSELoss()).metrics == {}


def test_a_first_batch_that_moves_nothing_is_said(caplog):
    made = task(update=lambda model, got, round_: copy.deepcopy(model))
    made.worker().rehearse(made.initial(entropy=entropy()), entropy=entropy())
    assert "moves no weight" in caplog.text


def test_inputs_may_be_several_arguments_of_the_module():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = linear()

        def forward(self, first, second):
            return self.layer(first + second)

    halves = (INPUTS / 2, INPUTS / 2)
    expected = update()
    spread = update(model=Two(), held=[(halves, TARGETS)])
    named = {"first": halves[0], "second": halves[1]}
    np.testing.assert_allclose(spread, expected, atol=1e-6)
    np.testing.assert_allclose(update(model=Two(), held=[(named, TARGETS)]), expected, atol=1e-6)


def test_a_schedule_multiplies_the_learning_rate_of_its_round():
    halved = update(number=1, schedule=lambda number: 0.5**number)
    np.testing.assert_allclose(halved, update() / 2, atol=1e-7)


def test_a_schedule_of_torchs_steps_once_a_round_and_hears_of_its_metric():
    steps = fl.torch_schedule(lambda o: torch.optim.lr_scheduler.StepLR(o, 2, gamma=0.1))
    plateau = fl.torch_schedule(
        lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, factor=0.5, patience=0),
        metric="validation_loss",
    )
    factors = []
    for number, loss in enumerate((1.0, 1.0, 0.5, 0.6)):
        factors.append((steps(number), plateau(number)))
        for schedule in (steps, plateau):
            schedule.observe(fl.Record(round=number, validation={"loss": loss}))
    assert factors == [(1, 1), (1, 1), (pytest.approx(0.1), 0.5), (pytest.approx(0.1), 0.5)]
    assert plateau(4) == 0.25


def test_a_schedule_is_told_apart_by_its_settings():
    made = [
        task(schedule=fl.torch_schedule(lambda o, n=n: torch.optim.lr_scheduler.StepLR(o, n)))
        for n in (2, 3)
    ]
    assert made[0].training != made[1].training
    assert "StepLR" in made[0].training


def test_training_in_words_names_loss_optimiser_and_batches():
    made = task(optimizer=lambda p: torch.optim.AdamW(p, lr=0.003), max_examples=9)
    for part in ("loss=cross_entropy", "AdamW(", "lr=0.003", "batch_size=3", "max_examples=9"):
        assert part in made.training
    assert "optimizer=sgd(0.5)" in task().training


def test_measures_are_means_over_all_data_by_name():
    def per_example(outputs, targets):
        return (outputs.argmax(1) == targets).float()

    made = task(
        metrics={"mine": per_example, "scalar": lambda o, t: per_example(o, t).mean()},
        test=examples(1100, 5),  # three batches, the last one shorter
        validation=None,
    )
    test, validation = made.worker().measure(made.initial(entropy=entropy()))
    assert validation == {}
    assert test["mine"] == pytest.approx(test["scalar"])
    inputs, targets = (torch.from_numpy(part) for part in examples(1100, 5))
    outputs = linear()(inputs).detach()
    assert test["mine"] == pytest.approx(float(per_example(outputs, targets).mean()))
    loss = float(nn.functional.cross_entropy(outputs, targets))
    assert test["loss"] == pytest.approx(loss, rel=1e-5)


def test_all_measures_may_be_replaced():
    made = task(evaluate=lambda model, data: {"count": sum(len(t) for _, t in data)})
    assert made.worker().measure(START) == ({"count": 60.0}, {"count": 60.0})


def test_public_data_of_many_clients_is_measured_by_its_first_clients(monkeypatch):
    monkeypatch.setattr(data_examples, "MAX_MEASURED", 100)
    many = arrays({f"{n:03d}": examples(30, n) for n in range(50)})
    made = task(
        test=many,
        validation={"only": HELD["batches"]},
        evaluate=lambda model, data: {"count": sum(len(t) for _, t in data)},
    )
    assert made.worker().measure(START) == ({"count": 120.0}, {"count": 7.0})


def test_everything_goes_to_the_device_in_the_modules_precision():
    """The device "meta" has no numbers, so that the update cannot come back from it."""
    found = []

    def look(model, got, round_):
        found.extend((*model.parameters(), *next(iter(got))))

    with pytest.raises(NotImplementedError):
        update(device="meta", update=look, model=linear().double())
    assert {tensor.device.type for tensor in found} == {"meta"}
    assert [tensor.dtype for tensor in found] == [torch.float64] * 3 + [torch.int64]


def test_training_lowers_the_loss():
    made = task(epochs=10)
    start = made.initial(entropy=entropy())
    worker = made.worker()
    moved = worker.update(start, "c00", 0, entropy=entropy())
    assert worker.measure(start + moved)[0]["loss"] < worker.measure(start)[0]["loss"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 0},
        {"epochs": 0},
        {"max_examples": 0},
        {"threads": 0},
        {"model": linear},
        {"clients": [1, 2]},
        {"loss": nn.CrossEntropyLoss},
        {"loss": "mse"},
        {"optimizer": torch.optim.SGD(linear().parameters(), lr=0.1)},
        {"schedule": 0.9},
        {"metrics": [fl.accuracy]},
        {"metrics": {"accuracy": 0.5}},
        {"update": 3},
    ],
)
def test_bad_settings_are_refused(wrong):
    with pytest.raises(DomainError):
        task(**wrong)


@pytest.mark.parametrize("rate", [0.0, -1, float("nan")])
def test_a_learning_rate_is_positive(rate):
    with pytest.raises(DomainError, match="learning_rate"):
        fl.sgd(rate)


def test_a_task_of_ones_own_needs_no_module():
    """The protocol itself: the mean of the clients' numbers, without torch."""

    class Mean:
        name, training, fixed, dimension = "mean", "none", "", 15
        clients = {str(n): n for n in range(12)}  # noqa: RUF012

        def initial(self, *, entropy):
            return START

        def worker(self):
            return self

        def rehearse(self, start, *, entropy):
            pass

        def update(self, start, client, number, *, entropy):
            return np.full(15, self.clients[client], dtype=np.float32) - start

        def measure(self, model):
            return {"mean": float(model[0])}, {}

        def observe(self, record):
            pass

        def torch_model(self, model):
            return None

    made = plan(rounds=1, sampling="all", population=None, cohort=12)
    settings = {"aggregate": fl.non_private(), "entropy": seeded(), "server": fl.fedavg()}
    history = fl.train(Mean(), made, **settings)
    assert history.records[0].test == {"mean": pytest.approx(5.5)}
    with pytest.raises(DomainError, match=r"history\.model"):
        history.torch_model()
