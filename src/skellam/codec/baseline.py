"""Gaussian baseline: clip, add, and real noise once, with no ring and no rounding.

What every other mechanism is measured against. It needs a trusted server, and floating-point noise
is not safe against an attacker who reads the last bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from skellam import _checks
from skellam.codec.arithmetic import finite_peak, upper_norm
from skellam.codec.spec import ASSUMPTIONS, RealSensitivity
from skellam.entropy import Entropy
from skellam.errors import ShapeError
from skellam.noise import GaussianSampler
from skellam.vectors import Reals, Tensors, flatten


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianBaseline:
    """Sums of vectors of ``dimension`` clipped to ``clip``, with N(0, ``deviation``**2) added once.

    Everything is in real units; a ``deviation`` of 0 adds nothing.
    """

    dimension: int
    clip: float
    deviation: float

    def __post_init__(self) -> None:
        _checks.integer("dimension", self.dimension, 1)
        _checks.positive("clip", self.clip)
        _checks.non_negative("deviation", self.deviation)

    @property
    def sensitivity(self) -> RealSensitivity:
        """The bounds that every clipped vector keeps to, in real units."""
        return RealSensitivity(
            l2=self.clip,
            coordinate_bound=self.clip,
            dimension=self.dimension,
            assumptions=(*ASSUMPTIONS[:1], "real numbers; floating-point noise is not safe"),
        )

    def encode(self, x: Tensors) -> Reals:
        """Return ``x`` clipped, in float64, or raise for bad input."""
        vector = flatten(x)
        if len(vector) != self.dimension:
            raise ShapeError(f"x must hold {self.dimension} numbers, got {len(vector)}")
        peak = finite_peak(vector)
        values = vector.astype(np.float64)
        if peak > self.clip:
            values *= self.clip / peak
        norm = upper_norm(values)
        if norm > self.clip:
            # `norm` is above the true one by more than the roundings of factor and products.
            values *= self.clip / norm
        return Reals(values)

    def add(self, messages: Iterable[Reals]) -> Reals:
        """Return the sum of ``messages``."""
        total = np.zeros(self.dimension)
        replayable = False
        for message in messages:
            if len(message) != self.dimension:
                raise ShapeError(f"a message must have length {self.dimension}, got {len(message)}")
            total += message.values
            replayable |= message.replayable
        return Reals(total, replayable)

    def add_central_noise(self, total: Reals, *, entropy: Entropy) -> Reals:
        """Return ``total`` with the noise: what may be looked at."""
        if self.deviation == 0:
            return total
        noise = GaussianSampler(self.deviation).draw(self.dimension, entropy=entropy)
        return Reals(total.values + noise.values, total.replayable or noise.replayable)
