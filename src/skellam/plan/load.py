"""What the modulus must carry, and the error that the decoded mean will have.

After a random rotation every coordinate of a vector of norm ``c`` is close to a normal variable of
variance ``c^2/d``; that model predicts errors and wrap-around. Privacy never rests on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from skellam import codec


@dataclass(frozen=True, slots=True)
class Load:
    """One round's vectors as the ring sees them."""

    dimension: int
    """Coordinates after padding and rotation."""
    kept: int
    """Coordinates that travel."""
    cohort: int
    clip: float
    bits: int
    mean_norm_ratio: float = 1.0
    """Norm of the mean update over the clip; 1 when all clients agree, the worst case."""
    surplus: float = 1.0
    """Variance that arrives when nobody drops out, over the variance that is guaranteed."""

    @property
    def kept_clip(self) -> float:
        """The clip of the coordinates that travel (theory of compression: c sqrt(d'/d))."""
        return self.clip * math.sqrt(self.kept / self.dimension)

    @property
    def modulus(self) -> int:
        """The number of residues."""
        return 1 << self.bits

    def rounding_variance(self, scale: float) -> float:
        """Return the variance that rounding adds to a coordinate of the sum, integer domain."""
        return self.cohort * rounding_variance(scale * self.kept_clip / math.sqrt(self.kept))

    def spread(self, scale: float, multiplier: float) -> float:
        """Return the standard deviation of a coordinate of the sum, integer domain."""
        signal = (self.mean_norm_ratio * self.cohort) ** 2 / self.kept
        noise = self.surplus * multiplier**2
        square = (scale * self.kept_clip) ** 2 * (signal + noise)
        return math.sqrt(square + self.rounding_variance(scale))


@dataclass(frozen=True, slots=True)
class PredictedError:
    """Expected squared error of a coordinate of the decoded mean, by its causes."""

    noise: float
    rounding: float = 0.0
    wrap: float = 0.0
    cut: float = 0.0
    """What the clip of single rotated coordinates takes away."""
    compression: float = 0.0

    @property
    def total(self) -> float:
        """The sum of the parts."""
        return self.noise + self.rounding + self.wrap + self.cut + self.compression


def rounding_variance(deviation: float) -> float:
    """Return E[f (1-f)] for the fractional part f of a normal variable of this deviation.

    f(1-f) = 1/6 - sum_k cos(2 pi k x)/(pi k)^2, so the mean increases to 1/6. Where the series
    would be long, |x| <= 1 but for 6e-7 of the mass, and f(1-f) = |x| - x^2.
    """
    if deviation < 0.2:
        return deviation * math.sqrt(2 / math.pi) - deviation**2
    waves = (
        math.exp(-2 * (math.pi * k * deviation) ** 2) / (math.pi * k) ** 2 for k in range(1, 7)
    )
    return 1 / 6 - sum(waves)


def cut_square(multiple: float) -> float:
    """Return E(|x| - multiple)+^2 of a standard normal variable x."""
    tail = math.erfc(multiple / math.sqrt(2))
    density = math.exp(-0.5 * multiple**2) * math.sqrt(2 / math.pi)
    return max(0.0, (1 + multiple**2) * tail - multiple * density)


def wrap_square(spread: float, modulus: int) -> float:
    """Return the expected squared jump of a centred normal variable modulo ``modulus``."""
    total, j = 0.0, 1
    while True:
        beyond = math.erfc((2 * j - 1) * modulus / (2 * spread) / math.sqrt(2))
        total += (2 * j - 1) * beyond * modulus**2
        if beyond < 1e-16 or j > 1000:
            return total
        j += 1


def wrap_probability(load: Load, scale: float, multiplier: float) -> float:
    """Return the chance that one coordinate of the sum wraps around."""
    return math.erfc(load.modulus / (2 * load.spread(scale, multiplier)) / math.sqrt(2))


def largest_scale(load: Load, multiplier: float, signal_multiple: float) -> float:
    """Return the scale at which ``signal_multiple`` deviations of the sum fill half the modulus."""
    room = load.modulus / (2 * signal_multiple)
    per_unit = load.kept_clip * math.sqrt(
        (load.mean_norm_ratio * load.cohort) ** 2 / load.kept + load.surplus * multiplier**2
    )
    highest = room / per_unit

    def excess(scale: float) -> float:
        return load.spread(scale, multiplier) - room

    from scipy.optimize import brentq

    return highest if excess(highest) <= 0 else float(brentq(excess, 0.0, highest, rtol=1e-12))


def paper_scale(load: Load, multiplier: float, signal_multiple: float) -> float:
    """Return the scale of the paper's Algorithm 1, which allows for the largest rounding error."""
    deviation = math.sqrt(load.surplus / load.cohort) * multiplier * load.kept_clip
    return codec.paper_scale(
        deviation=deviation,
        clip=load.mean_norm_ratio * load.kept_clip,
        bits=load.bits,
        clients=load.cohort,
        dimension=load.kept,
        k=signal_multiple,
    )


def predicted_error(
    load: Load, scale: float, multiplier: float, largest: float | None = None
) -> PredictedError:
    """Return the expected squared error of a coordinate of the mean, by its causes."""
    stretch = load.dimension / load.kept
    to_mean = stretch / (scale * load.cohort) ** 2
    mean_square = (load.mean_norm_ratio * load.clip) ** 2
    deviation = scale * load.kept_clip / math.sqrt(load.kept)
    beyond = cut_square(largest / deviation) if largest else 0.0
    return PredictedError(
        noise=load.surplus * (multiplier * load.clip / load.cohort) ** 2,
        rounding=load.rounding_variance(scale) * to_mean,
        wrap=wrap_square(load.spread(scale, multiplier), load.modulus) * to_mean,
        cut=beyond * mean_square / load.kept,
        compression=(1 / load.kept - 1 / load.dimension) * mean_square,
    )
