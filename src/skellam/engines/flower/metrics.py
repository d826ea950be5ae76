"""Private metrics: client losses, accuracies and counts as coordinates of the summed vector.

Each metric has a range. A client clips its value to the range, maps it onto [-w, w] and appends it
to its update, which it clips to a norm of ``clip / sqrt(1 + share)``; with
``m w**2 = clip**2 share / (1 + share)`` for m metrics the whole vector has norm ``clip`` at most.
So the plan's guarantee, for ``dimension + m`` coordinates of that clip, covers the metrics: they
cost what the larger clip costs, a factor ``sqrt(1 + share)`` in the noise of the update.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.errors import DomainError, ShapeError
from skellam.plan import CalibratedPlan, Plan

DEFAULT_SHARE = 0.2
_NORMAL_95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class MetricRanges:
    """Names of metrics with their ranges, and the share of the clip that they take."""

    names: tuple[str, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    share: float = DEFAULT_SHARE

    def __post_init__(self) -> None:
        if not self.names or len(set(self.names)) != len(self.names):
            raise DomainError(f"metrics must have names that differ, got {list(self.names)}")
        if not len(self.names) == len(self.lows) == len(self.highs):
            raise ShapeError("every metric must have one range")
        for name, low, high in zip(self.names, self.lows, self.highs, strict=True):
            width = _checks.number(name, high) - _checks.number(name, low)
            _checks.positive(f"the width of the range of {name!r}", width)
        _checks.positive("share", self.share)

    @classmethod
    def of(
        cls, ranges: Mapping[str, tuple[float, float]], *, share: float = DEFAULT_SHARE
    ) -> MetricRanges:
        """Return the ranges of ``{"loss": (0, 10), "accuracy": (0, 1)}``.

        >>> MetricRanges.of({"accuracy": (0, 1)}).names
        ('accuracy',)
        """
        lows = tuple(float(low) for low, _ in ranges.values())
        highs = tuple(float(high) for _, high in ranges.values())
        return cls(tuple(ranges), lows, highs, share)

    def to_fields(self) -> list[Any]:
        """Return what travels."""
        return [list(self.names), list(self.lows), list(self.highs), self.share]

    @classmethod
    def from_fields(cls, fields: Sequence[Any]) -> MetricRanges:
        """Return the ranges that `to_fields` wrote, or raise."""
        names, lows, highs, share = fields
        if not all(isinstance(name, str) for name in names):
            raise DomainError("names of metrics must be text")
        return cls(tuple(names), tuple(lows), tuple(highs), share)

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def planned(self, plan: Plan) -> Plan:
        """Return ``plan``, which has no noise yet, with a coordinate more for each metric."""
        if isinstance(plan, CalibratedPlan):
            raise DomainError("add the metrics before .calibrated(), which pays for them")
        clip = plan.clip * math.sqrt(1 + self.share)
        return replace(plan, dimension=plan.dimension + len(self), clip=clip)

    def joined(
        self, update: NDArray[np.floating[Any]], values: Mapping[str, object], clip: float
    ) -> NDArray[np.float64]:
        """Return ``update``, clipped, with the metrics after it; an evaluation has no update."""
        x = np.asarray(update, dtype=np.float64)
        norm = float(np.linalg.norm(x))
        bound = clip / math.sqrt(1 + self.share)
        clipped = x * (bound / norm) if norm > bound else x
        return np.concatenate([clipped, self._weight(clip, len(x)) * self._unit(values)])

    def released(
        self, sums: NDArray[np.float64], *, dimension: int, clip: float, clients: int, error: float
    ) -> dict[str, float]:
        """Return the mean of each metric over ``clients``, with the ends of a 95 % interval.

        ``error`` is the deviation of a coordinate of the mean. The interval is of the noise; a
        client that sent zeros counts as the middle of the range.
        """
        weight = self._weight(clip, dimension)
        found: dict[str, float] = {}
        for name, low, high, total in zip(self.names, self.lows, self.highs, sums, strict=True):
            half = (high - low) / 2
            mean = low + half * (1 + float(total) / (weight * clients))
            spread = _NORMAL_95 * half * error / weight
            found |= {name: mean, f"{name}-low": mean - spread, f"{name}-high": mean + spread}
        return found

    def _unit(self, values: Mapping[str, object]) -> NDArray[np.float64]:
        """Return the metrics on [-1, 1]; what is missing or no number is 0."""
        found = np.zeros(len(self))
        for at, (name, low, high) in enumerate(zip(self.names, self.lows, self.highs, strict=True)):
            value = values.get(name)
            if isinstance(value, int | float) and math.isfinite(value):
                found[at] = 2 * (min(max(value, low), high) - low) / (high - low) - 1
        return found

    def _weight(self, clip: float, dimension: int) -> float:
        part = self.share / (1 + self.share) if dimension else 1.0
        return clip * math.sqrt(part / len(self))


Ranges: TypeAlias = Mapping[str, tuple[float, float]] | MetricRanges | None
"""Metrics as users name them."""


def ranges_of(metrics: Ranges) -> MetricRanges | None:
    """Return the ranges that a user named, if any."""
    return MetricRanges.of(metrics) if isinstance(metrics, Mapping) else metrics
