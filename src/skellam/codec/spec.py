"""What determines a round's arithmetic: one frozen value, the same for every client and the server.

Notation of the paper's Algorithm 1: ``c`` is the clip, ``s`` the scale, ``d`` the padded length,
``b`` the bits. All noise is stated in the integer domain, after scaling by ``s``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from skellam import _checks
from skellam.codec.rotation import MOST_BLOCKS, block_of
from skellam.errors import DomainError, KindError, ThresholdError

MOST_LARGEST = 1 << 30
"""The largest whole number that a vector may hold."""
COMPONENT_UNIT = 100
"""Removable noise is counted in hundredths of a base share."""


@dataclass(frozen=True, slots=True)
class Unbiased:
    """Plain stochastic rounding of a real vector with scaled coordinates of at most ``largest``."""

    largest: float | None = None

    def __post_init__(self) -> None:
        if self.largest is not None:
            object.__setattr__(self, "largest", _checks.positive("largest", self.largest))


@dataclass(frozen=True, slots=True)
class Conditional:
    """The paper's rounding, repeated until `rounded_norm_bound` holds with the bias ``beta``."""

    beta: float

    def __post_init__(self) -> None:
        beta = _checks.between("beta", self.beta, 0, math.nextafter(1, 0))
        object.__setattr__(self, "beta", beta)


@dataclass(frozen=True, slots=True)
class Whole:
    """No rotation and no rounding: whole numbers of at most ``largest``, at most ``l1`` in sum.

    Both bound magnitudes. The ``clip`` of such a spec bounds the L2 norm and its ``scale`` is 1; a
    vector beyond a bound is refused, not shrunk.
    """

    largest: int
    l1: int

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "largest", _checks.integer("largest", self.largest, 1, MOST_LARGEST)
        )
        object.__setattr__(self, "l1", _checks.integer("l1", self.l1, self.largest))


Rounding = Unbiased | Conditional | Whole


@dataclass(frozen=True, slots=True)
class SkellamShares:
    """Skellam noise of ``variance`` in total, one of ``shares`` parts from every client.

    With ``components`` every client adds that many removable draws on top; component ``j`` has
    ``2**j`` hundredths of a share's variance. After dropouts the survivors reveal the seeds of the
    components that `superfluous` names, and what stays is at least ``variance``.
    """

    variance: float
    shares: int
    components: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "variance", _checks.positive("variance", self.variance))
        object.__setattr__(self, "shares", _checks.integer("shares", self.shares, 1))
        object.__setattr__(
            self, "components", _checks.integer("components", self.components, 0, 16)
        )

    @property
    def share(self) -> float:
        """The variance of one base share; rounded up, so that all of them carry ``variance``."""
        return math.nextafter(self.variance / self.shares, math.inf)

    def component(self, j: int) -> float:
        """Return the variance of removable component ``j``, rounded up."""
        return math.nextafter(self.share * 2**j / COMPONENT_UNIT, math.inf)

    def superfluous(self, dropped: int) -> tuple[int, ...]:
        """Return the components to remove when ``dropped`` of the clients never sent theirs."""
        survivors = self.shares - _checks.integer("dropped", dropped, 0, self.shares)
        # (n - D) (1 + u/100) >= n  iff  u >= 100 D / (n - D).
        units = -(-COMPONENT_UNIT * dropped // survivors) if survivors else 1 << self.components
        if units >> self.components:
            raise ThresholdError(
                f"{dropped} of {self.shares} clients dropped out, more than {self.components} "
                "removable components make up for; nothing may be decoded"
            )
        return tuple(j for j in range(self.components) if not units >> j & 1)


@dataclass(frozen=True, slots=True)
class DiscreteGaussianShares:
    """Discrete Gaussian noise of parameter ``sigma`` from every client."""

    sigma: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", _checks.positive("sigma", self.sigma))


@dataclass(frozen=True, slots=True)
class CentralSkellam:
    """Skellam noise of ``variance``, added once to the aggregate by a trusted server."""

    variance: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "variance", _checks.positive("variance", self.variance))


@dataclass(frozen=True, slots=True)
class CentralDiscreteGaussian:
    """Discrete Gaussian noise of parameter ``sigma``, added once to the aggregate."""

    sigma: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", _checks.positive("sigma", self.sigma))


@dataclass(frozen=True, slots=True)
class NoNoise:
    """Nothing is added, and nothing is private."""


Noise = SkellamShares | DiscreteGaussianShares | CentralSkellam | CentralDiscreteGaussian | NoNoise


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecSpec:
    """Everything that determines a round's arithmetic but its public seed.

    A vector of ``dimension`` floats of norm at most ``clip`` is padded to ``padded`` (see
    `padded_length`), rotated, reduced to ``kept`` coordinates where that is given, scaled by
    ``scale``, rounded, and sent modulo ``2**bits``.
    """

    dimension: int
    clip: float
    scale: float
    bits: int
    rounding: Rounding
    noise: Noise
    padded: int
    kept: int | None = None
    within: Noise | None = field(default=None, repr=False)
    """Noise of one more whole number: the clients within the clip less those beyond it."""

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "dimension", _checks.integer("dimension", self.dimension, 1, 1 << 40))
        put(self, "clip", _checks.positive("clip", self.clip))
        put(self, "scale", _checks.between("scale", self.scale, 2.0**-64, 2.0**64))
        put(self, "bits", _checks.integer("bits", self.bits, 2, 32))
        put(self, "padded", _checks.integer("padded", self.padded, self.dimension))
        if self.kept is not None:
            put(self, "kept", _checks.integer("kept", self.kept, 1, self.padded))
        if not isinstance(self.rounding, Rounding):
            raise KindError(
                f"rounding must be Unbiased, Conditional or Whole, got {self.rounding!r}"
            )
        if not isinstance(self.noise, Noise):
            raise KindError(f"noise must be one of skellam.codec's noises, got {self.noise!r}")
        if not isinstance(self.within, Noise | None):
            raise KindError(f"within must be one of skellam.codec's noises, got {self.within!r}")
        self._require_arithmetic_fits()

    def _require_arithmetic_fits(self) -> None:
        if isinstance(self.rounding, Whole):
            self._require_as_it_is()
        elif self.padded // block_of(self.padded) > MOST_BLOCKS:
            raise DomainError(
                f"padded must be a power of two times at most {MOST_BLOCKS}, got {self.padded}; "
                "padded_length(dimension) is"
            )
        # Whole numbers fit int32, and float32 denormals are far below what `shrink` takes off.
        _checks.between(
            "scale * clip", self.radius, 2.0**-64, 2.0**30, way_out="choose another scale"
        )

    def _require_as_it_is(self) -> None:
        bare = self.kept is None and self.within is None
        if not (self.scale == 1 and self.padded == self.dimension and bare):
            raise DomainError(
                "whole numbers travel as they are: scale must be 1, padded the dimension, "
                "kept and within None"
            )

    @property
    def length(self) -> int:
        """The number of integers that a message holds, each with noise of its own."""
        return self.carried + (self.within is not None)

    @property
    def carried(self) -> int:
        """The number of integers that stand for the vector."""
        return self.padded if self.kept is None else self.kept

    @property
    def radius(self) -> float:
        """The largest L2 norm of what is rounded: ``s c``, less where coordinates are left out."""
        return self.scale * self.clip * math.sqrt(self.carried / self.padded)
