"""Mapped training: the steps of many clients at once, by ``torch.func``.

Every client's weights are one slice of stacked tensors, and one call of ``vmap`` takes the same
step in all of them. The arithmetic is that of one client after the other but for the last bits.
It is used where that is so: no randomness and no buffers in the module, an optimiser that takes
gradients linearly (SGD), and two clients whose updates agree in the rehearsal.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.dropout import _DropoutNd

from skellam.errors import KindError
from skellam.federated import modules
from skellam.federated.aggregation import Vector

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
    return getattr(optimizer, "learning_rate", None)


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
