"""Client optimisers: schedules of learning rates, and the steps of many clients at once.

*Mapped training.* Every client's weights are one slice of stacked tensors, and one call of ``vmap``
takes the same step in all of them. The arithmetic is that of one client after the other but for the
last bits. It is used where that is so: no randomness and no buffers in the module, an optimiser
that takes gradients linearly (SGD), and two clients whose updates agree in the rehearsal.
"""

from __future__ import annotations

import functools
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.dropout import _DropoutNd

from skellam import _checks
from skellam.errors import DomainError, KindError
from skellam.federated import modules
from skellam.federated.aggregation import Vector
from skellam.federated.history import Record

MAX_CLIENTS = 64
_MAX_NUMBERS = 1 << 22
"""Weights of all clients together; more of them leave the cache, and win nothing."""
_AGREEMENT = 1e-5
_LINEAR = (torch.optim.SGD,)
"""Optimisers that scale no rounding error up: Adam divides a gradient near zero by its size."""
_RANDOM = (_DropoutNd, nn.RNNBase, nn.RReLU)

Batch: TypeAlias = Any
Stacked: TypeAlias = dict[str, Tensor]
Forward: TypeAlias = Callable[[Callable[..., Any], Batch], tuple[Any, Any]]


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


def require_own(optimizer: Optimizer, parameters: Iterable[nn.Parameter]) -> None:
    """Raise `DomainError` for an optimiser of another module: it would train nothing at all."""
    known = set(map(id, parameters))
    if any(id(p) not in known for group in optimizer.param_groups for p in group["params"]):
        raise DomainError(
            "optimizer must be of the parameters that it is given, a copy of the module's; "
            "use lambda p: torch.optim.SGD(p, lr=0.1)"
        )


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


class Stepper(Protocol):
    """Moves some of the stacked weights by their gradients."""

    def __call__(self, rows: list[int], gradients: Stacked) -> None:
        """Take a step for the clients ``rows``."""


@final
class MappedTraining:
    """Trains clients of one module, loss and optimiser together."""

    def __init__(
        self,
        model: nn.Module,
        *,
        loss: Callable[[Any, Any], Tensor],
        optimizer: Callable[[list[nn.Parameter]], Any],
        forward: Forward,
    ) -> None:
        self._model, self._optimizer = model, optimizer
        self._names = [name for name, p in model.named_parameters() if p.requires_grad]

        def loss_of(weights: Stacked, examples: Batch) -> Tensor:
            def called(*inputs: Any, **named: Any) -> Any:  # noqa: ANN401
                return torch.func.functional_call(model, weights, inputs, named)

            return loss(*forward(called, examples))

        self._gradients = torch.func.vmap(torch.func.grad(loss_of), randomness="different")

    @property
    def at_once(self) -> int:
        """How many clients are trained together."""
        return max(1, min(MAX_CLIENTS, _MAX_NUMBERS // modules.size(self._model)))

    def updates(
        self, start: Vector, clients: Sequence[Sequence[Batch]], *, factor: float
    ) -> list[Vector]:
        """Return how far each client's batches move ``start``; raises where it cannot be mapped."""
        with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH):  # the others are not mapped
            warnings.simplefilter("error")  # torch warns where it maps by a loop
            found: list[Vector] = [np.zeros_like(start)] * len(clients)
            for rows in self._groups(clients):
                moved = self._trained(start, [clients[row] for row in rows], factor)
                for row, vector in zip(rows, moved, strict=True):
                    found[row] = vector
            return found

    def _groups(self, clients: Sequence[Sequence[Batch]]) -> Iterator[list[int]]:
        """Yield the clients that share an optimiser: all; or, where it has state, in step."""
        if _sgd_rate(self._optimizer) is not None:
            yield [*range(len(clients))]
            return
        alike = defaultdict(list)
        for row, batches in enumerate(clients):
            alike[tuple(map(_shape, batches))].append(row)
        yield from alike.values()

    def _trained(
        self, start: Vector, clients: Sequence[Sequence[Batch]], factor: float
    ) -> NDArray[np.float32]:
        self._model.train()
        weights = self._stacked(start, len(clients))
        step = self._stepper(weights, factor)
        for number in range(max(map(len, clients), default=0)):
            alike = defaultdict(list)
            for row, batches in enumerate(clients):
                if number < len(batches):
                    alike[_shape(batches[number])].append(row)
            for rows in alike.values():
                batch = _stack([clients[row][number] for row in rows])
                every = len(rows) == len(clients)
                taken = weights if every else {k: w[rows] for k, w in weights.items()}
                detached = {name: weight.detach() for name, weight in taken.items()}
                step(rows, self._gradients(detached, batch))
        flat = [weights[name].detach().reshape(len(clients), -1) for name in self._names]
        moved: NDArray[np.float32] = torch.cat(flat, dim=1).to("cpu", torch.float32).numpy() - start
        return moved

    def _stacked(self, start: Vector, count: int) -> Stacked:
        modules.load(self._model, start)
        named = dict(self._model.named_parameters())
        return {
            name: named[name].detach().expand(count, *named[name].shape).clone()
            for name in self._names
        }

    def _stepper(self, weights: Stacked, factor: float) -> Stepper:
        rate = _sgd_rate(self._optimizer)
        if rate is not None:
            return lambda rows, gradients: _descend(weights, rows, gradients, rate * factor)
        parameters = {name: nn.Parameter(weight) for name, weight in weights.items()}
        weights.update(parameters)
        optimizer = self._optimizer([*parameters.values()])
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * factor

        def step(rows: list[int], gradients: Stacked) -> None:  # noqa: ARG001  (all of them)
            for name, parameter in parameters.items():
                parameter.grad = gradients[name]
            optimizer.step()

        return step


def can_be_mapped(model: nn.Module, optimizer: Callable[[list[nn.Parameter]], Any]) -> bool:
    """Return whether nothing is known that keeps clients from being trained together."""
    if next(iter(model.buffers()), None) is not None:
        return False
    if any(isinstance(each, _RANDOM) and _draws(each) for each in model.modules()):
        return False
    if _sgd_rate(optimizer) is not None:
        return True
    return type(optimizer([nn.Parameter(torch.zeros(1))])) in _LINEAR


def agree(found: Vector, expected: Vector) -> bool:
    """Return whether two updates are the same to 1e-5 of the larger of 1 and the update."""
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    return bool(np.abs(found - expected).max(initial=0.0) <= _AGREEMENT * scale)


def _draws(module: nn.Module) -> bool:
    """Return whether a module draws when it trains; recurrent ones cannot be mapped at all."""
    return not isinstance(module, _DropoutNd) or module.p > 0


def _sgd_rate(optimizer: Callable[..., Any]) -> float | None:
    """Return the learning rate of `fl.sgd`, which has no state."""
    return optimizer.learning_rate if isinstance(optimizer, SGD) else None


@torch.no_grad()
def _descend(weights: Stacked, rows: list[int], gradients: Stacked, learning_rate: float) -> None:
    for name, gradient in gradients.items():
        if len(rows) == len(weights[name]):
            weights[name].sub_(gradient, alpha=learning_rate)
        else:
            weights[name].index_add_(
                0, torch.tensor(rows, device=gradient.device), gradient, alpha=-learning_rate
            )


def _shape(part: Any) -> Any:  # noqa: ANN401
    if isinstance(part, Tensor):
        return tuple(part.shape), part.dtype
    if isinstance(part, Mapping):
        return tuple((key, _shape(value)) for key, value in part.items())
    if isinstance(part, tuple):
        return tuple(map(_shape, part))
    raise KindError(f"a batch must be tensors to be mapped, got {type(part).__name__}")


def _stack(parts: Sequence[Any]) -> Any:  # noqa: ANN401
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.stack([*parts])
    if isinstance(first, Mapping):
        return {key: _stack([part[key] for part in parts]) for key in first}
    return tuple(_stack(column) for column in zip(*parts, strict=True))
