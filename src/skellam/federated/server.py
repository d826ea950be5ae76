"""Server optimisers: what is done with a released mean update, state in and state out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.errors import ShapeError

Vector: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class ServerState:
    """The model after ``step`` updates, and the optimiser's moments of the updates."""

    model: Vector
    moments: tuple[Vector, ...] = ()
    step: int = 0


@dataclass(frozen=True, slots=True)
class ServerOptimiser:
    """``init`` makes the first state of a model, ``apply`` the next one from a mean update.

    ``name`` tells it from others: a run goes on with the optimiser that it began with.
    """

    name: str
    init: Callable[[Vector], ServerState]
    apply: Callable[[ServerState, Vector], ServerState]
    powers: tuple[int, ...] = (1,)
    """With which power of the updates' unit each of the moments grows."""

    def rescaled(self, state: ServerState, ratio: float) -> ServerState:
        """Return ``state`` as if all updates so far had been ``ratio`` times as long."""
        parts = zip(state.moments, self.powers, strict=True)
        return replace(state, moments=tuple(part * np.float32(ratio**p) for part, p in parts))


def fedavg(*, learning_rate: float = 1.0, momentum: float = 0.0) -> ServerOptimiser:
    """Return averaging with momentum: v <- momentum v + update, model <- model + rate v."""
    step = np.float32(_checks.positive("learning_rate", learning_rate))
    kept = np.float32(_checks.between("momentum", momentum, 0, 1))

    def init(model: Vector) -> ServerState:
        return ServerState(model, (np.zeros_like(model),))

    def apply(state: ServerState, update: Vector) -> ServerState:
        _require_like(state, update)
        velocity = kept * state.moments[0] + update
        return ServerState(state.model + step * velocity, (velocity,), state.step + 1)

    settings = f"learning_rate={learning_rate!r}, momentum={momentum!r}"
    return ServerOptimiser(f"fedavg({settings})", init, apply)


def adam(
    *, learning_rate: float, beta1: float = 0.9, beta2: float = 0.99, eps: float = 1e-3
) -> ServerOptimiser:
    """Return Adam on mean updates (Reddi et al. 2021, FedAdam, with Kingma and Ba's correction)."""
    _checks.positive("learning_rate", learning_rate)
    _checks.between("beta1", beta1, 0, 1 - 1e-9)
    _checks.between("beta2", beta2, 0, 1 - 1e-9)
    _checks.positive("eps", eps)

    def init(model: Vector) -> ServerState:
        return ServerState(model, (np.zeros_like(model), np.zeros_like(model)))

    def apply(state: ServerState, update: Vector) -> ServerState:
        _require_like(state, update)
        count = state.step + 1
        mean = np.float32(beta1) * state.moments[0] + np.float32(1 - beta1) * update
        square = np.float32(beta2) * state.moments[1] + np.float32(1 - beta2) * update**2
        scaled = np.sqrt(square / np.float32(1 - beta2**count)) + np.float32(eps)
        move = np.float32(learning_rate / (1 - beta1**count)) * mean / scaled
        return ServerState(state.model + move, (mean, square), count)

    settings = f"learning_rate={learning_rate!r}, beta1={beta1!r}, beta2={beta2!r}, eps={eps!r}"
    return ServerOptimiser(f"adam({settings})", init, apply, powers=(1, 2))


def _require_like(state: ServerState, update: Vector) -> None:
    if update.shape != state.model.shape or update.dtype != np.float32:
        raise ShapeError(
            f"an update of {update.dtype} {update.shape} does not go with {state.model.shape}"
        )
