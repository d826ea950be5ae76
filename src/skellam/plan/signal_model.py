"""The signal model: what the modulus must hold, and the error that the decoded mean will have.

After a random rotation every coordinate of a vector of norm ``c`` is close to a normal variable of
variance ``c^2/d``; that model predicts errors and wrap-around. Privacy never rests on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, assert_never

from skellam import codec
from skellam.errors import InfeasibleError
from skellam.plan import correlation, integers, sizes
from skellam.plan.choices import Rounding, Signal

if TYPE_CHECKING:
    from skellam.plan.plan import CalibratedPlan, Plan

COORDINATE_MULTIPLES: Final = (3.0, 3.5, 4.0, 4.5, 5.0, 6.0)
"""Deviations beyond which a rotated coordinate may be cut; 3 shrink a vector by 0.27 %."""


@dataclass(frozen=True, slots=True)
class SignalModel:
    """One round's vectors as the ring sees them."""

    padded_dim: int
    """Coordinates after padding and rotation."""
    sent_dim: int
    """Coordinates that are sent."""
    cohort: int
    clip: float
    bits: int
    mean_norm: float = 1.0
    """Norm of the mean update over the clip; 1 when all clients agree, the worst case."""
    surplus: float = 1.0
    """Variance of all the noise over the variance that is guaranteed."""
    leading: int = 1
    """What multiplies a round's sum in the ring: the first coefficient of the band."""
    estimate_noise: float = 1.0
    """Variance of the noise in the estimate of a round's sum over that of the noise drawn."""
    model_noise: float = 1.0
    """Variance of the noise in the model over what independent rounds of the same noise leave."""

    @classmethod
    def of(cls, plan: CalibratedPlan) -> SignalModel:
        """Return the model of a calibrated plan."""
        model = cls.asked(plan, sizes.surplus(plan, plan.min_cohort), plan.band)
        return replace(model, padded_dim=plan.padded_dim, sent_dim=plan.sent_dim)

    @classmethod
    def asked(cls, plan: Plan, surplus: float, band: tuple[int, ...] = (1,)) -> SignalModel:
        """Return the model of what a plan asks for, before compression."""
        dim = plan.dimension if integers.is_integer(plan) else padded_dim(plan.dimension)
        in_estimate = in_model = 1.0
        if band != (1,):
            in_estimate, in_model = correlation.noise_ratios(
                band, plan.rounds, plan.server_momentum
            )
        return cls(
            padded_dim=dim,
            sent_dim=dim,
            cohort=plan.cohort,
            clip=plan.clip,
            bits=plan.bits,
            mean_norm=mean_norm(plan),
            surplus=surplus,
            leading=band[0],
            estimate_noise=in_estimate,
            model_noise=in_model,
        )

    @property
    def sent_clip(self) -> float:
        """The clip of the coordinates that are sent (theory of compression: c sqrt(d'/d))."""
        return self.clip * math.sqrt(self.sent_dim / self.padded_dim)

    @property
    def modulus(self) -> int:
        """The number of residues."""
        return 1 << self.bits

    def rounding_variance(self, scale: float) -> float:
        """Return the variance that rounding adds to a coordinate of the sum, integer domain."""
        return self.cohort * rounding_variance(scale * self.sent_clip / math.sqrt(self.sent_dim))

    def spread(self, scale: float, multiplier: float) -> float:
        """Return the standard deviation of what the ring holds in a coordinate: of the sum.

        With a band it is the estimate of a round's sum, times the band's first coefficient.
        """
        square = (scale * self.sent_clip * self.unit_spread(multiplier)) ** 2
        return self.leading * math.sqrt(square + self.rounding_variance(scale))

    def unit_spread(self, multiplier: float) -> float:
        """Return the deviation of a coordinate of the sum in clips, without rounding."""
        signal = (self.mean_norm * self.cohort) ** 2 / self.sent_dim
        return math.sqrt(signal + self.surplus * self.estimate_noise * multiplier**2)


def mean_norm(plan: Plan) -> float:
    """Return the norm of the mean update, over the clip, that a plan's ``signal`` stands for."""
    match plan.signal:
        case Signal.ALIGNED:
            return 1.0
        case Signal.INDEPENDENT:
            return 1 / math.sqrt(plan.cohort)
        case ratio:
            return ratio


def padded_dim(dimension: int) -> int:
    """Return the rotated length: a power of two unless that wastes more than a tenth.

    >>> padded_dim(1_018_174), padded_dim(2**22 + 1)
    (1048576, 4325376)
    """
    power = 1 << (dimension - 1).bit_length()
    return power if power <= 1.1 * dimension else codec.padded_length(dimension)


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


def wrap_probability(model: SignalModel, scale: float, multiplier: float) -> float:
    """Return the chance that one coordinate of the sum wraps around."""
    return math.erfc(model.modulus / (2 * model.spread(scale, multiplier)) / math.sqrt(2))


def max_scale(model: SignalModel, multiplier: float, signal_multiple: float) -> float:
    """Return the scale at which ``signal_multiple`` deviations of the sum fill half the modulus."""
    headroom = model.modulus / (2 * signal_multiple)
    highest = headroom / (model.leading * model.sent_clip * model.unit_spread(multiplier))

    def excess(scale: float) -> float:
        return model.spread(scale, multiplier) - headroom

    from scipy.optimize import brentq

    return highest if excess(highest) <= 0 else float(brentq(excess, 0.0, highest, rtol=1e-12))


def paper_scale(model: SignalModel, multiplier: float, signal_multiple: float) -> float:
    """Return the scale of the paper's Algorithm 1, which allows for the largest rounding error."""
    noise = model.surplus * model.estimate_noise / model.cohort
    deviation = math.sqrt(noise) * multiplier * model.sent_clip
    return codec.paper_scale(
        deviation=deviation,
        clip=model.mean_norm * model.sent_clip,
        bits=model.bits,
        clients=model.cohort,
        dimension=model.sent_dim,
        k=signal_multiple * model.leading,
    )


def chosen_scale(
    model: SignalModel, rounding: Rounding, multiplier: float, signal_multiple: float
) -> float:
    """Return the scale that ``rounding`` takes, at this noise and signal multiple."""
    match rounding:
        case Rounding.UNBIASED:
            return max_scale(model, multiplier, signal_multiple)
        case Rounding.CONDITIONAL:
            return paper_scale(model, multiplier, signal_multiple)
        case Rounding.INTEGER:
            return 1.0
        case _ as never:
            assert_never(never)


def coordinate_multiple(model: SignalModel, block: int, multiplier: float) -> float:
    """Return where to cut: a closer cut loses more of the mean and asks for less noise."""
    noise = model.surplus * model.model_noise * block * (multiplier / model.cohort) ** 2
    return min(
        COORDINATE_MULTIPLES,
        key=lambda m: noise * m**2 + model.mean_norm**2 * cut_square(m),
    )


def sent_dim(plan: Plan, padded_dim: int, multiplier: float) -> int:
    """Return how many coordinates are sent.

    Sending d' of d adds (1/d' - 1/d) (n |mean| / (z c))^2 to the error, relative to the noise.
    """
    if plan.compression is None or plan.noise.continuous:
        return padded_dim
    if plan.compression != "auto":
        return min(padded_dim, int(plan.compression))
    signal = (mean_norm(plan) * plan.cohort / multiplier) ** 2
    return math.ceil(1 / (plan.compression_error / signal + 1 / padded_dim)) if signal else 1


def require_ring(plan: CalibratedPlan) -> None:
    """Raise where a band's sums may wrap: a coordinate that does stays wrong to the end."""
    spread = SignalModel.of(plan).spread(plan.scale, plan.noise_multiplier)
    needed = correlation.signal_multiple(plan, plan.sent_dim)
    if plan.modulus < 2 * needed * spread * (1 - 1e-6):
        raise InfeasibleError(
            f"half the modulus holds {plan.modulus / 2 / spread:.3g} deviations and a band needs "
            f"{needed:.3g}, lest a coordinate wrap in any round; take a smaller scale, or leave it "
            "open"
        )


def predicted_error(
    model: SignalModel, scale: float, multiplier: float, coordinate_bound: float | None = None
) -> PredictedError:
    """Return the expected squared error of a coordinate of the mean, by its causes."""
    stretch = model.padded_dim / model.sent_dim
    to_mean = stretch / (scale * model.cohort) ** 2
    mean_square = (model.mean_norm * model.clip) ** 2
    deviation = scale * model.sent_clip / math.sqrt(model.sent_dim)
    beyond = cut_square(coordinate_bound / deviation) if coordinate_bound else 0.0
    return PredictedError(
        noise=model.surplus * model.model_noise * (multiplier * model.clip / model.cohort) ** 2,
        rounding=model.rounding_variance(scale) * to_mean,
        wrap=wrap_square(model.spread(scale, multiplier), model.modulus)
        * to_mean
        / model.leading**2,
        cut=beyond * mean_square / model.sent_dim,
        compression=(1 / model.sent_dim - 1 / model.padded_dim) * mean_square,
    )
