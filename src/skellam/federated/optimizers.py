"""Optimisers of clients, and schedules of their learning rates."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, final

import torch
from torch import nn

from skellam import _checks
from skellam.errors import DomainError
from skellam.federated.history import Record


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
