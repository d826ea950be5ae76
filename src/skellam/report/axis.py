"""Axes with ticks at round numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_MAX_LOG_TICKS = 7


@dataclass(frozen=True, slots=True)
class Axis:
    """An interval with its ticks; ``log`` says that equal ratios are equally far apart."""

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def at(self, x: float) -> float:
        """Return where ``x`` lies: 0 at the low end, 1 at the high end."""
        if self.log:
            return math.log(x / self.low) / math.log(self.high / self.low)
        return (x - self.low) / (self.high - self.low)


def linear(values: Iterable[float], *, count: int = 5) -> Axis:
    """Return an axis from 0 through all of ``values``, none negative, with about ``count`` steps.

    >>> linear([0.31, 0.868]).ticks
    (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    """
    high = max(values, default=0.0) or 1.0
    step = _round_up(high / count)
    steps = math.ceil(high / step * (1 - 1e-12))
    ticks = tuple(float(f"{i * step:.12g}") for i in range(steps + 1))
    return Axis(0.0, ticks[-1], ticks)


def logarithmic(values: Iterable[float]) -> Axis:
    """Return an axis whose ends are 1, 2 or 5 times a power of ten, around all of ``values``.

    >>> logarithmic([0.9, 11.5]).ticks
    (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
    """
    found = [x for x in values if x > 0] or [1.0]
    first, last = math.floor(math.log10(min(found))), math.ceil(math.log10(max(found)))
    steps = [float(f"{m}e{k}") for k in range(first, last + 1) for m in (1, 2, 5)]
    low = max(x for x in steps if x <= min(found) * (1 + 1e-12))
    high = min(x for x in steps if x >= max(found) * (1 - 1e-12) and x > low)
    ticks = tuple(x for x in steps if low <= x <= high)
    if len(ticks) > _MAX_LOG_TICKS:
        ticks = tuple(x for x in ticks if math.log10(x).is_integer())
    return Axis(low, high, ticks, log=True)


def _round_up(x: float) -> float:
    """Return the least of 1, 2, 5 times a power of ten that is at least ``x``."""
    power = 10.0 ** math.floor(math.log10(x))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= x * (1 - 1e-12))
