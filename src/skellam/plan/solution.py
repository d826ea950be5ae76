"""The numbers of the integer domain that a planner found: all that a round's arithmetic needs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from skellam import _checks
from skellam.errors import DomainError
from skellam.plan.choices import Rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """One way to carry the vectors through the ring."""

    scale: float
    variance: float
    """Of the noise that is guaranteed in a coordinate of the sum, integer domain."""
    rounding: Rounding
    block: int
    tail: float
    """Mass that a block of coordinates leaves uncertified, charged to delta."""
    largest: float | None
    """Clip of each rotated, scaled coordinate; blocks of more than one need it."""
    signal_multiple: float
    """Deviations of the sum that half the modulus holds."""
    rotated: int
    """Coordinates after padding and rotation."""
    kept: int
    """Rotated coordinates that travel."""

    def __post_init__(self) -> None:
        if self.rounding not in tuple(Rounding):
            raise DomainError(f"rounding must be one of {', '.join(Rounding)}")
        object.__setattr__(self, "rounding", Rounding(self.rounding))
        _checks.positive("scale", self.scale)
        _checks.non_negative("variance", self.variance)
        _checks.integer("rotated", self.rotated, 1)
        _checks.integer("kept", self.kept, 1, self.rotated)
        if self.largest is not None:
            _checks.positive("largest", self.largest)
        _checks.integer("block", self.block, 1, self.kept)
        _checks.open_unit("tail", self.tail)
        _checks.positive("signal_multiple", self.signal_multiple)

    def kept_clip(self, clip: float) -> float:
        """Return the clip of the coordinates that travel."""
        return clip * math.sqrt(self.kept / self.rotated)

    def noise_multiplier(self, clip: float) -> float:
        """Return the standard deviation of the guaranteed noise over the clip."""
        return math.sqrt(self.variance) / (self.scale * self.kept_clip(clip))
