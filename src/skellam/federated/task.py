"""Tasks: a module, the clients' data, how a client trains, and what is measured.

`train` needs no more of a task than the two protocols `Trainable` and `Worker`; `Task` is both for
supervised learning with any torch module, loss, optimiser and data.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from itertools import islice
from typing import Any, Protocol, TypeAlias, final, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from skellam import _checks
from skellam.entropy import Entropy
from skellam.errors import DataError, DomainError, KindError
from skellam.federated import modules
from skellam.federated.aggregation import Vector
from skellam.federated.data.examples import (
    MEASURED_AT_ONCE,
    TrainingBatches,
    as_clients,
    count,
    head,
    one_pass,
    public,
)
from skellam.federated.history import Record
from skellam.federated.optimizers import (
    SGD,
    MappedTraining,
    Optimizer,
    Schedule,
    agree,
    can_be_mapped,
    described,
    described_optimizer,
    require_own,
)

Measures: TypeAlias = dict[str, float]
Loss: TypeAlias = Callable[[Any, Any], Tensor]
Metric: TypeAlias = Callable[[Any, Any], Any]
"""From outputs and targets to a number for the batch, or to one value for each thing measured."""
Batches: TypeAlias = Iterable[Any]
_REHEARSED_CLIENTS, _REHEARSED_STEPS = 2, 3
_FUNCTIONS = {
    "loss": "outputs and targets to a number, such as nn.CrossEntropyLoss()",
    "optimizer": "parameters to an optimiser, such as lambda p: torch.optim.SGD(p, lr=0.1)",
    "schedule": "a round's number to a factor",
    "update": "module, batches and round to nothing: it trains the module",
    "evaluate": "module and batches to numbers by name",
    "initializer": "a module to nothing: it draws its weights",
}
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClientRound:
    """The round that a client trains in: its number, and the schedule's factor of its rate."""

    number: int
    factor: float = 1.0


LocalUpdate: TypeAlias = Callable[[nn.Module, Batches, ClientRound], object]
"""Trains a module, which holds the global weights, in place on one client's batches."""
Evaluation: TypeAlias = Callable[[nn.Module, Batches], Mapping[str, float]]


class Worker(Protocol):
    """Trains one client after the other, and measures models."""

    def update(self, start: Vector, client: str, number: int, *, entropy: Entropy) -> Vector:
        """Return how far ``client``'s training in round ``number`` moves the model."""

    def measure(self, model: Vector) -> tuple[Measures, Measures]:
        """Return the measures on public test and validation data."""

    def observe(self, record: Record) -> None:
        """Take note of a round that is over."""

    def rehearse(self, start: Vector, *, entropy: Entropy) -> None:
        """Train and measure on one batch, and raise whatever is wrong as it is."""


@runtime_checkable
class GroupWorker(Worker, Protocol):
    """A worker that may train several clients together."""

    @property
    def at_once(self) -> int:
        """How many clients it trains together; one, if it cannot."""

    def updates(
        self, start: Vector, clients: Sequence[str], number: int, *, entropy: Sequence[Entropy]
    ) -> list[Vector | Exception]:
        """Return for each client what `update` returns or raises."""


class Trainable(Protocol):
    """What is trained, and on whose data."""

    @property
    def name(self) -> str:
        """What it is called in files and reports."""

    @property
    def training(self) -> str:
        """How clients train, in words; a run goes on only with the same."""

    @property
    def clients(self) -> Mapping[str, Any]:
        """The clients by name."""

    @property
    def dimension(self) -> int:
        """The length of an update."""

    @property
    def fixed(self) -> str:
        """A digest of what training leaves alone, such as frozen weights."""

    def initial(self, *, entropy: Entropy) -> Vector:
        """Return the model that the run begins with."""

    def worker(self) -> Worker:
        """Return a worker with a model of its own."""

    def torch_model(self, model: Vector) -> nn.Module | None:
        """Return a module with these weights, if the task has one."""


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return for each target whether its class has the largest output."""
    return (outputs.argmax(1) == targets).float()


@final
@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Supervised training of a torch module, from the weights that it came with.

    What ``requires_grad`` is trained; the module itself is left as it is
    (`History.torch_model` has the trained one). ``clients`` maps a client to a torch ``Dataset``,
    to arrays (inputs, targets), or to an iterable of batches. A batch is (inputs, targets), on
    ``device``; inputs that are a mapping or a tuple are spread over the module's arguments.

    ``loss`` and every metric take (outputs, targets). A metric returns a number for the batch, or
    one value for each thing that it measures; shown is the mean over all data. ``optimizer`` makes
    a new optimiser of the parameters for every client and round. ``schedule`` multiplies its
    learning rate. ``update`` replaces the whole of a client's training, ``evaluate`` all measures.
    ``initializer`` draws new weights when a run begins. ``threads`` are torch's in local training:
    small batches do not repay more than one.
    """

    model: nn.Module
    clients: Mapping[str, Any]
    _: KW_ONLY
    loss: Loss = functional.cross_entropy
    optimizer: Callable[[list[nn.Parameter]], Optimizer] = field(default=SGD(0.1))
    schedule: Schedule | None = None
    batch_size: int = 16
    epochs: int = 1
    max_examples: int | None = None
    """Examples that a client trains on in an epoch, at most."""
    metrics: Mapping[str, Metric] | None = None
    """By name; one called ``loss`` is shown in place of the loss. Accuracy, with cross-entropy."""
    validation: Any = None
    test: Any = None
    """Public data: what a client may hold, or a mapping of clients."""
    device: str | torch.device = "cpu"
    update: LocalUpdate | None = None
    evaluate: Evaluation | None = None
    initializer: Callable[[nn.Module], object] | None = None
    threads: int = 1
    vmap: bool = True
    """Train many clients at once by ``torch.func.vmap``, where that gives the same updates."""
    name: str = "task"

    def __post_init__(self) -> None:
        if not isinstance(self.model, nn.Module):
            raise DomainError(
                f"model must be a torch.nn.Module, got {type(self.model).__name__}; "
                "call the function that makes it"
            )
        modules.require_ready(self.model)
        _checks.assign(self, clients=as_clients(self.clients))
        _require_functions(self)
        _checks.integer("batch_size", self.batch_size, 1)
        _checks.integer("epochs", self.epochs, 1)
        _checks.integer("threads", self.threads, 1)
        if self.max_examples is not None:
            _checks.integer("max_examples", self.max_examples, 1)
        if self.metrics is None:
            classes = (
                self.loss is functional.cross_entropy or type(self.loss) is nn.CrossEntropyLoss
            )
            _checks.assign(self, metrics={"accuracy": accuracy} if classes else {})

    @property
    def dimension(self) -> int:
        """The number of trained parameters."""
        return modules.size(self.model)

    @property
    def training(self) -> str:
        """How clients train, in words."""
        parts = {
            "update": None if self.update is None else described(self.update),
            "loss": described(self.loss),
            "optimizer": described_optimizer(self.optimizer),
            "schedule": None if self.schedule is None else described(self.schedule),
            "batch_size": self.batch_size,
            "epochs": self.epochs,
            "max_examples": self.max_examples,
            "initializer": None if self.initializer is None else described(self.initializer),
        }
        if self.update is not None:
            del parts["loss"], parts["optimizer"]
        return ", ".join(f"{name}={value}" for name, value in parts.items() if value is not None)

    @property
    def fixed(self) -> str:
        """A digest of frozen weights and buffers."""
        return modules.untrained_digest(self.model)

    def initial(self, *, entropy: Entropy) -> Vector:
        """Return the module's own weights, or new ones by the ``initializer``."""
        if self.initializer is None:
            return modules.flatten(self.model)
        made = copy.deepcopy(self.model).cpu()
        with modules.seeded_torch(entropy, torch.device("cpu")):
            self.initializer(made)
        return modules.flatten(made)

    def worker(self) -> TaskWorker:
        """Return a worker with a copy of the module; threads cannot share one."""
        return TaskWorker(self)

    def torch_model(self, model: Vector) -> nn.Module:
        """Return a copy of the module with these weights."""
        return modules.with_weights(self.model, model)


def _require_functions(task: Task) -> None:
    """Raise `KindError` where a class or an object stands for a function."""
    parts = {name: getattr(task, name) for name in _FUNCTIONS}
    if not isinstance(task.metrics, Mapping | None):
        raise KindError(
            f"metrics must be functions by name, got {type(task.metrics).__name__}; "
            'use {"accuracy": fl.accuracy}'
        )
    parts |= {f"metrics[{name!r}]": metric for name, metric in (task.metrics or {}).items()}
    for name, part in parts.items():
        made = name == "optimizer" or not isinstance(part, type)
        if part is not None and not (callable(part) and made):
            given = part.__name__ if isinstance(part, type) else type(part).__name__
            hint = _FUNCTIONS.get(name, "outputs and targets to a number")
            raise KindError(f"{name} must be a function from {hint}, got {given}")


@final
class TaskWorker:
    """One worker's copy of a task's module."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._device = torch.device(task.device)
        self._model = copy.deepcopy(task.model).to(self._device)
        self._untouched = modules.Snapshot(self._model)
        self._schedule = copy.deepcopy(task.schedule)
        self._dtype = next((p.dtype for p in modules.trained(self._model)), torch.float32)
        self._public = [public(held) for held in (task.test, task.validation)]
        self._mapped: MappedTraining | None = None

    @property
    def at_once(self) -> int:
        """How many clients are trained together; one unless the rehearsal found that it can be."""
        return 1 if self._mapped is None else self._mapped.at_once

    def updates(
        self, start: Vector, clients: Sequence[str], number: int, *, entropy: Sequence[Entropy]
    ) -> list[Vector | Exception]:
        """Return for each client how far its training moves the weights, or what it raised."""
        with _threads(self._task.threads):
            held = [
                self._collected(client, bits) for client, bits in zip(clients, entropy, strict=True)
            ]
            try:
                return self._together(start, held, number)
            except Exception:  # noqa: BLE001  (one by one shows whose data it was)
                alone = [self._alone(start, each, number) for each in held]
            # Who fails must not change the last bits of the others: they are trained together.
            held = [
                found if isinstance(found, Exception) else each
                for found, each in zip(alone, held, strict=True)
            ]
            try:
                return self._together(start, held, number)
            except Exception:  # noqa: BLE001
                return alone

    def _collected(self, client: str, entropy: Entropy) -> list[Any] | Exception:
        try:
            with modules.seeded_torch(entropy, self._device):
                return [*self._batches(client, entropy)]
        except Exception as error:  # noqa: BLE001  (whatever a client's data raises is its failure)
            return error

    def _together(
        self, start: Vector, held: Sequence[list[Any] | Exception], number: int
    ) -> list[Vector | Exception]:
        if self._mapped is None:
            raise DomainError("this module's clients are trained one by one")
        batches = [each for each in held if isinstance(each, list)]
        moved = iter(self._mapped.updates(start, batches, factor=self._factor(number)))
        return [next(moved) if isinstance(each, list) else each for each in held]

    def _alone(self, start: Vector, held: list[Any] | Exception, number: int) -> Vector | Exception:
        if isinstance(held, Exception):
            return held
        try:
            return self._trained(start, held, number)
        except Exception as error:  # noqa: BLE001  (whatever a client's data does to its training)
            return error

    def update(self, start: Vector, client: str, number: int, *, entropy: Entropy) -> Vector:
        """Return how far ``client``'s training in round ``number`` moves the trained weights."""
        with _threads(self._task.threads), modules.seeded_torch(entropy, self._device):
            return self._trained(start, self._batches(client, entropy), number)

    def observe(self, record: Record) -> None:
        """Tell the schedule of a round that is over."""
        if (observe := getattr(self._schedule, "observe", None)) is not None:
            observe(record)

    def measure(self, model: Vector) -> tuple[Measures, Measures]:
        """Return the measures on test and on validation data; none where there is no data."""
        modules.load(self._model, model)
        test, validation = (self._measures(held, None) for held in self._public)
        return test, validation

    def rehearse(self, start: Vector, *, entropy: Entropy) -> None:
        """Train the first client that has data on one batch, and measure one, before any cost."""
        frozen = self._untouched.frozen()
        with _threads(self._task.threads), modules.seeded_torch(entropy, self._device):
            vector = self._moved(start, [self._first_batch(entropy)], 0)
        self._untouched.require_same(frozen)
        if not np.isfinite(vector).all():
            raise DomainError(
                "one batch of training gives weights that are not finite; lower the learning "
                "rate, or look at the data"
            )
        if not vector.any():
            log.warning("one batch of training moves no weight; look at loss, data and update")
        written = self._untouched.written()
        self._untouched.restore()
        self._mapped = None if written else self._mapping(start, entropy)
        modules.load(self._model, start)
        for held in self._public:
            self._measures(held, 1)

    def _mapping(self, start: Vector, entropy: Entropy) -> MappedTraining | None:
        """Return the training of many clients at once, if two of them move as they do alone."""
        task = self._task
        if not task.vmap or task.update or not can_be_mapped(self._model, task.optimizer):
            return None
        made = MappedTraining(
            self._model, loss=task.loss, optimizer=task.optimizer, forward=_forward
        )
        few = [*islice(task.clients, _REHEARSED_CLIENTS)]
        held = [self._collected(client, entropy) for client in few]
        tried = [batches[:_REHEARSED_STEPS] for batches in held if isinstance(batches, list)]
        try:
            with _threads(task.threads):
                together = made.updates(start, tried, factor=self._factor(0))
                alone = [self._trained(start, batches, 0) for batches in tried]
        except Exception:  # noqa: BLE001  (whatever cannot be mapped is trained one by one)
            return None
        return made if all(map(agree, together, alone)) else None

    def _first_batch(self, entropy: Entropy) -> Any:  # noqa: ANN401
        for client in self._task.clients:
            for batch in self._batches(client, entropy):
                return batch
        raise DataError(
            f"none of {len(self._task.clients)} clients has an example to train on; a client's "
            "data must give at least one batch"
        )

    def _batches(self, client: str, entropy: Entropy) -> TrainingBatches:
        task = self._task
        held = task.clients[client]
        if isinstance(held, Iterator) and task.clients[client] is held:
            raise DataError(
                f"client {client!r} holds a {type(held).__name__}, which can be read only once; "
                "use a list, or fl.data.clients(names, load)"
            )
        return TrainingBatches(
            held,
            batch_size=task.batch_size,
            epochs=task.epochs,
            max_examples=task.max_examples,
            placed=self._placed,
            entropy=entropy,
        )

    def _trained(self, start: Vector, batches: Batches, number: int) -> Vector:
        try:
            return self._moved(start, batches, number)
        finally:
            self._untouched.restore()

    def _moved(self, start: Vector, batches: Batches, number: int) -> Vector:
        modules.load(self._model, start)
        self._model.train()
        train = self._task.update or self._supervised
        train(self._model, batches, ClientRound(number, self._factor(number)))
        return modules.flatten(self._model) - start

    def _factor(self, number: int) -> float:
        return 1.0 if self._schedule is None else self._schedule(number)

    def _supervised(self, model: nn.Module, batches: Batches, round_: ClientRound) -> None:
        optimizer = self._task.optimizer(modules.trained(model))
        require_own(optimizer, modules.trained(model))
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * round_.factor
        for batch in batches:
            outputs, targets = _forward(model, batch)
            optimizer.zero_grad()
            self._task.loss(outputs, targets).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        for parameter in modules.trained(model):
            parameter.grad = None

    @torch.no_grad()
    def _measures(self, held: Any, max_batches: int | None) -> Measures:  # noqa: ANN401
        if held is None:
            return {}
        self._model.eval()
        batches = head(map(self._placed, one_pass(held, MEASURED_AT_ONCE)), max_batches)
        if self._task.evaluate is not None:
            return {k: float(v) for k, v in self._task.evaluate(self._model, batches).items()}
        metrics: dict[str, Metric] = {"loss": self._task.loss, **(self._task.metrics or {})}
        sums = {name: np.zeros(2) for name in metrics}
        for batch in batches:
            outputs, targets = _forward(self._model, batch)
            for name, metric in metrics.items():
                sums[name] += _weighted(metric(outputs, targets), count(targets))
        return {name: float(total / max(count, 1)) for name, (total, count) in sums.items()}

    def _placed(self, tensors: Any) -> Any:  # noqa: ANN401
        """Return ``tensors`` on the task's device, floats in the module's precision."""
        if isinstance(tensors, np.ndarray):
            tensors = torch.from_numpy(tensors)
        if isinstance(tensors, Tensor):
            kind = self._dtype if tensors.is_floating_point() else tensors.dtype
            return tensors.to(self._device, kind)
        if isinstance(tensors, Mapping):
            return {key: self._placed(value) for key, value in tensors.items()}
        if isinstance(tensors, (tuple, list)):
            return tuple(self._placed(value) for value in tensors)
        return tensors


def _forward(model: Callable[..., Any], examples: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """Return outputs and targets; float targets of as many numbers take the outputs' shape."""
    if not (isinstance(examples, tuple) and len(examples) == 2):
        raise DataError(
            f"a batch must be (inputs, targets), got {type(examples).__name__}; "
            "pass update= and evaluate= for other ones"
        )
    inputs, targets = examples
    if isinstance(inputs, Mapping):
        outputs = model(**inputs)
    else:
        outputs = model(*inputs) if isinstance(inputs, tuple) else model(inputs)
    # (n, 1) against (n,) would be broadcast to (n, n), and trained on that.
    if (
        isinstance(outputs, Tensor)
        and isinstance(targets, Tensor)
        and targets.is_floating_point()
        and outputs.numel() == targets.numel()
    ):
        targets = targets.reshape(outputs.shape)
    return outputs, targets


def _weighted(value: Any, examples: int) -> tuple[float, int]:  # noqa: ANN401
    """Return a sum and how many it is over: a number counts for all examples of its batch."""
    values = torch.as_tensor(value)
    if values.ndim == 0:
        return float(values) * examples, examples
    return float(values.sum()), values.numel()


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Small batches do not repay torch's threads, which wait for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
