"""Tasks: a module, the clients' data, how a client trains, and what is measured.

`train` needs no more of a task than the two protocols `Trainable` and `Worker`; `Task` is both for
supervised learning with any torch module, loss, optimiser and data.
"""

from __future__ import annotations

import copy
import functools
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
from skellam.errors import DataError, DomainError
from skellam.federated import modules
from skellam.federated.aggregation import Vector
from skellam.federated.data.examples import (
    MEASURED_AT_ONCE,
    TrainingBatches,
    as_clients,
    head,
    one_pass,
    public,
)
from skellam.federated.history import Record
from skellam.federated.mapped import MappedTraining, agree, can_be_mapped

Measures: TypeAlias = dict[str, float]
Loss: TypeAlias = Callable[[Any, Any], Tensor]
Metric: TypeAlias = Callable[[Any, Any], Any]
"""From outputs and targets to a number for the batch, or to one value for each thing measured."""
Batches: TypeAlias = Iterable[Any]
_REHEARSED_CLIENTS, _REHEARSED_STEPS = 2, 3


class Optimizer(Protocol):
    """What a client's training needs of an optimiser; all of ``torch.optim`` have it."""

    param_groups: list[dict[str, Any]]

    def zero_grad(self) -> None:
        """Forget the gradients."""

    def step(self) -> Any:  # noqa: ANN401
        """Move the parameters."""


class Schedule(Protocol):
    """From a round's number to what the client's learning rate is multiplied by in it.

    One with a method ``observe(record)`` is given every record, from the first one on, also when a
    run goes on after a kill: so its state needs no file.
    """

    def __call__(self, number: int, /) -> float:
        """Return the factor of round ``number``."""


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


@final
@dataclass(frozen=True, slots=True)
class SGD:
    """Gradient descent without momentum, as `sgd` makes it; a little faster than torch's."""

    learning_rate: float

    def __call__(self, parameters: Iterable[nn.Parameter]) -> _Descent:
        """Return the optimiser of ``parameters``."""
        return _Descent(parameters, self.learning_rate)


def sgd(learning_rate: float) -> SGD:
    """Return the optimiser of clients: gradient descent with this learning rate."""
    return SGD(_checks.positive("learning_rate", learning_rate))


@final
class _Descent:
    def __init__(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> None:
        self.param_groups: list[dict[str, Any]] = [
            {"params": list(parameters), "lr": learning_rate}
        ]

    def zero_grad(self) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        group = self.param_groups[0]
        for parameter in group["params"]:
            if parameter.grad is not None:
                parameter.sub_(parameter.grad, alpha=group["lr"])


@final
@dataclass(slots=True)
class _TorchSchedule:
    """A scheduler of ``torch.optim.lr_scheduler``, stepped once a round."""

    build: Callable[[torch.optim.Optimizer], Any]
    metric: str | None = None
    _optimizer: torch.optim.Optimizer | None = field(default=None, init=False, repr=False)
    _scheduler: Any = field(default=None, init=False, repr=False)

    def __call__(self, number: int, /) -> float:  # noqa: ARG002  (its state is at that round)
        return float(self._started().param_groups[0]["lr"])

    def observe(self, record: Record) -> None:
        self._started().step()  # torch warns of a schedule without steps
        if self.metric is None:
            self._scheduler.step()
        elif (value := record.measured(self.metric)) is not None:
            self._scheduler.step(value)

    def _started(self) -> torch.optim.Optimizer:
        if self._optimizer is None:
            self._optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
            self._scheduler = self.build(self._optimizer)
        return self._optimizer


def torch_schedule(
    build: Callable[[torch.optim.Optimizer], Any], *, metric: str | None = None
) -> Schedule:
    """Return a scheduler of torch's, over rounds: ``lambda opt: StepLR(opt, 10)``.

    ``metric``, such as ``"validation_loss"``, is what `ReduceLROnPlateau` follows.
    """
    return _TorchSchedule(build, metric)


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
    optimizer: Callable[[list[nn.Parameter]], Optimizer] = SGD(0.1)
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
        _checks.integer("batch_size", self.batch_size, 1)
        _checks.integer("epochs", self.epochs, 1)
        _checks.integer("threads", self.threads, 1)
        if self.max_examples is not None:
            _checks.integer("max_examples", self.max_examples, 1)
        if self.metrics is None:
            usual = {"accuracy": accuracy} if self.loss is functional.cross_entropy else {}
            _checks.assign(self, metrics=usual)

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
            found: list[Vector | Exception] = []
            try:
                found += self._together(start, [h for h in held if isinstance(h, list)], number)
            except Exception:  # noqa: BLE001  (one by one shows whose data it was)
                found += [self._alone(start, h, number) for h in held if isinstance(h, list)]
            moved = iter(found)
            return [next(moved) if isinstance(h, list) else h for h in held]

    def _collected(self, client: str, entropy: Entropy) -> list[Any] | Exception:
        try:
            with modules.seeded_torch(entropy, self._device):
                return [*self._batches(client, entropy)]
        except Exception as error:  # noqa: BLE001  (whatever a client's data raises is its failure)
            return error

    def _together(self, start: Vector, held: Sequence[list[Any]], number: int) -> list[Vector]:
        if self._mapped is None:
            raise DomainError("this module's clients are trained one by one")
        return self._mapped.updates(start, held, factor=self._factor(number))

    def _alone(self, start: Vector, batches: list[Any], number: int) -> Vector | Exception:
        try:
            return self._trained(start, batches, number)
        except Exception as error:  # noqa: BLE001  (whatever a client's data does to its training)
            return error

    def update(self, start: Vector, client: str, number: int, *, entropy: Entropy) -> Vector:
        """Return how far ``client``'s training in round ``number`` moves the trained weights."""
        with _threads(self._task.threads), modules.seeded_torch(entropy, self._device):
            try:
                batches = self._batches(client, entropy)
                return self._trained(start, batches, number)
            finally:
                self._untouched.restore_buffers()

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
            vector = self._trained(start, [self._first_batch(entropy)], 0)
        self._untouched.require_same(frozen)
        if not np.isfinite(vector).all():
            raise DomainError(
                "one batch of training gives weights that are not finite; lower the learning "
                "rate, or look at the data"
            )
        self._mapped = self._mapping(start, entropy)
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
        raise DataError("no client has any data to train on")

    def _batches(self, client: str, entropy: Entropy) -> TrainingBatches:
        task = self._task
        return TrainingBatches(
            task.clients[client],
            batch_size=task.batch_size,
            epochs=task.epochs,
            max_examples=task.max_examples,
            placed=self._placed,
            entropy=entropy,
        )

    def _trained(self, start: Vector, batches: Batches, number: int) -> Vector:
        modules.load(self._model, start)
        self._model.train()
        train = self._task.update or self._supervised
        train(self._model, batches, ClientRound(number, self._factor(number)))
        return modules.flatten(self._model) - start

    def _factor(self, number: int) -> float:
        return 1.0 if self._schedule is None else self._schedule(number)

    def _supervised(self, model: nn.Module, batches: Batches, round_: ClientRound) -> None:
        optimizer = self._task.optimizer(modules.trained(model))
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
                sums[name] += _weighted(metric(outputs, targets), len(targets))
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


def described(part: Any) -> str:  # noqa: ANN401
    """Return a function or an object in words that are the same in another process."""
    if isinstance(part, functools.partial):
        settings = [*map(repr, part.args), *(f"{k}={v!r}" for k, v in part.keywords.items())]
        return f"{described(part.func)}({', '.join(settings)})"
    if isinstance(part, _TorchSchedule):
        built = part.build(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0))
        plain = {k: v for k, v in built.state_dict().items() if isinstance(v, int | float | str)}
        return f"{type(built).__name__}({_settings(plain)})"
    name = getattr(part, "__qualname__", None)
    if name is not None:
        return str(name)
    return type(part).__qualname__ if " at 0x" in repr(part) else repr(part)


def described_optimizer(factory: Callable[[list[nn.Parameter]], Optimizer]) -> str:
    """Return an optimiser's name and settings."""
    if isinstance(factory, SGD):
        return f"sgd({factory.learning_rate!r})"
    made = factory([nn.Parameter(torch.zeros(1))])
    defaults = getattr(made, "defaults", {})
    plain = {k: v for k, v in defaults.items() if isinstance(v, int | float | str | tuple)}
    return f"{type(made).__name__}({_settings(plain)})"


def _settings(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in sorted(values.items()))
