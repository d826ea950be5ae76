"""What the server does with a released mean update: (init, apply), state in and state out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from skellam import _checks
from skellam.errors import ShapeError
from skellam.federated.models import Vector


@dataclass(frozen=True, slots=True, eq=False)
class ServerState:
    """The model after ``step`` updates, and what the optimiser remembers."""

    model: Vector
    memory: tuple[Vector, ...] = ()
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
    """With which power of the updates' unit each part of the memory grows."""

    def rescaled(self, state: ServerState, ratio: float) -> ServerState:
        """Return ``state`` as if all updates that it remembers had been ``ratio`` times as long."""
        parts = zip(state.memory, self.powers, strict=True)
        return replace(state, memory=tuple(part * np.float32(ratio**p) for part, p in parts))


def fedavg(*, rate: float = 1.0, momentum: float = 0.0) -> ServerOptimiser:
    """Return averaging with momentum: v <- momentum v + update, model <- model + rate v."""
    step = np.float32(_checks.positive("rate", rate))
    kept = np.float32(_checks.between("momentum", momentum, 0, 1))

    def init(model: Vector) -> ServerState:
        return ServerState(model, (np.zeros_like(model),))

    def apply(state: ServerState, update: Vector) -> ServerState:
        _require_like(state, update)
        velocity = kept * state.memory[0] + update
        return ServerState(state.model + step * velocity, (velocity,), state.step + 1)

    return ServerOptimiser(f"fedavg(rate={rate!r}, momentum={momentum!r})", init, apply)


def adam(
    *, rate: float, first: float = 0.9, second: float = 0.99, floor: float = 1e-3
) -> ServerOptimiser:
    """Return Adam on mean updates (Reddi et al. 2021, FedAdam, with Kingma and Ba's correction)."""
    _checks.positive("rate", rate)
    _checks.between("first", first, 0, 1 - 1e-9)
    _checks.between("second", second, 0, 1 - 1e-9)
    _checks.positive("floor", floor)

    def init(model: Vector) -> ServerState:
        return ServerState(model, (np.zeros_like(model), np.zeros_like(model)))

    def apply(state: ServerState, update: Vector) -> ServerState:
        _require_like(state, update)
        count = state.step + 1
        mean = np.float32(first) * state.memory[0] + np.float32(1 - first) * update
        square = np.float32(second) * state.memory[1] + np.float32(1 - second) * update**2
        scaled = np.sqrt(square / np.float32(1 - second**count)) + np.float32(floor)
        move = np.float32(rate / (1 - first**count)) * mean / scaled
        return ServerState(state.model + move, (mean, square), count)

    settings = f"rate={rate!r}, first={first!r}, second={second!r}, floor={floor!r}"
    return ServerOptimiser(f"adam({settings})", init, apply, powers=(1, 2))


def _require_like(state: ServerState, update: Vector) -> None:
    if update.shape != state.model.shape or update.dtype != np.float32:
        raise ShapeError(
            f"an update of {update.dtype} {update.shape} does not go with {state.model.shape}"
        )
