"""Codec specifications: everything that determines a round's arithmetic, and its sensitivity.

Notation of the paper's Algorithm 1: ``c`` is the clip, ``s`` the scale, ``d`` the padded dimension,
``b`` the bits. All noise is stated in the integer domain, after scaling by ``s``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import sha256
from typing import Final, assert_never

from skellam import _checks
from skellam.errors import DomainError, InfeasibleError, KindError

MAX_BLOCKS: Final = 63
"""The rotation takes lengths of a power of two times at most this."""
MAX_INTEGER: Final = 1 << 30
"""The largest integer that a vector may hold."""
MAX_RADIUS: Final = 2.0**30
"""The largest L2 norm of what is rounded."""
ASSUMPTIONS: Final = (
    "the neighbour is the same cohort with one client's vector zeroed and its noise kept",
    "the rounding coins are secret",
)


def public_seed(*, plan: bytes, model: bytes, round_: int) -> bytes:
    """Return the seed that the digests of plan and model fix for a round's rotation and subset.

    Nobody can choose it after seeing the updates; privacy would hold even then, accuracy might not.
    It says nothing about who takes part or how many: a released vector shows its rotation, so a
    guess at anything that entered the seed could be confirmed from the release.
    """
    digest = sha256(b"skellam/2/public-seed")
    for name, value in (("plan", plan), ("model", model)):
        if not isinstance(value, bytes):
            raise KindError(f"{name} must be a digest in bytes, got {type(value).__name__}")
        digest.update(len(value).to_bytes(8, "big") + value)
    digest.update(_checks.integer("round_", round_, 0, (1 << 63) - 1).to_bytes(8, "big"))
    return digest.digest()


def padded_length(dimension: int) -> int:
    """Return the least length of at least ``dimension`` that can be rotated, at most 1/32 more."""
    size = _checks.integer("dimension", dimension, 1)
    block = 1 << max(0, (size - 1).bit_length() - 6)
    return -(-size // block) * block


def block_of(padded_dim: int) -> int:
    """Return the largest power of two that divides ``padded_dim``."""
    return padded_dim & -padded_dim


@dataclass(frozen=True, slots=True)
class Unbiased:
    """Stochastic rounding of scaled coordinates, each cut to ``coordinate_bound`` first."""

    coordinate_bound: float | None = None

    def __post_init__(self) -> None:
        if self.coordinate_bound is not None:
            bound = _checks.positive("coordinate_bound", self.coordinate_bound)
            _checks.assign(self, coordinate_bound=bound)


@dataclass(frozen=True, slots=True)
class Conditional:
    """The paper's rounding, repeated until `rounded_norm_bound` holds with the bias ``beta``."""

    beta: float

    def __post_init__(self) -> None:
        _checks.assign(self, beta=_checks.between("beta", self.beta, 0, math.nextafter(1, 0)))


@dataclass(frozen=True, slots=True)
class Integer:
    """No rotation and no rounding: integers of at most ``coordinate_bound``, ``l1`` in sum.

    Both bound magnitudes. The ``clip`` of such a spec bounds the L2 norm and its ``scale`` is 1; a
    vector beyond a bound is refused, not shrunk.
    """

    coordinate_bound: int
    l1: int

    def __post_init__(self) -> None:
        bound = _checks.integer("coordinate_bound", self.coordinate_bound, 1, MAX_INTEGER)
        _checks.assign(self, coordinate_bound=bound, l1=_checks.integer("l1", self.l1, bound))


RoundingSpec = Unbiased | Conditional | Integer


@dataclass(frozen=True, slots=True)
class SkellamShares:
    """Skellam noise of ``variance`` in ``shares`` equal parts, one from every client.

    ``shares`` is the fewest clients whose sum may be decoded: the cohort less the dropouts that it
    tolerates. A sum of more messages has more noise. If the noise is ``removable``, each client
    draws its share from one secret seed, the seeds of the surplus clients are opened, and what
    stays is exactly ``shares`` parts.
    """

    variance: float
    shares: int
    removable: bool = False

    def __post_init__(self) -> None:
        _checks.assign(
            self,
            variance=_checks.positive("variance", self.variance),
            shares=_checks.integer("shares", self.shares, 1),
            removable=_checks.boolean("removable", self.removable),
        )

    @property
    def share(self) -> Fraction:
        """The variance of one share, exactly: ``shares`` of them are ``variance``."""
        return Fraction(self.variance) / self.shares


@dataclass(frozen=True, slots=True)
class DiscreteGaussianShares:
    """Discrete Gaussian noise of parameter ``sigma`` from every client, ``shares`` in the sum.

    ``shares`` and ``removable`` mean what they mean for `SkellamShares`.
    """

    sigma: float
    shares: int
    removable: bool = False

    def __post_init__(self) -> None:
        _checks.assign(
            self,
            sigma=_checks.positive("sigma", self.sigma),
            shares=_checks.integer("shares", self.shares, 1),
            removable=_checks.boolean("removable", self.removable),
        )


@dataclass(frozen=True, slots=True)
class CentralSkellam:
    """Skellam noise of ``variance``, added once to the aggregate by a trusted server."""

    variance: float

    def __post_init__(self) -> None:
        _checks.assign(self, variance=_checks.positive("variance", self.variance))


@dataclass(frozen=True, slots=True)
class CentralDiscreteGaussian:
    """Discrete Gaussian noise of parameter ``sigma``, added once to the aggregate."""

    sigma: float

    def __post_init__(self) -> None:
        _checks.assign(self, sigma=_checks.positive("sigma", self.sigma))


@dataclass(frozen=True, slots=True)
class NoNoise:
    """Nothing is added, and nothing is private."""


_Shares = SkellamShares | DiscreteGaussianShares
_Central = CentralSkellam | CentralDiscreteGaussian
NoiseSpec = (
    SkellamShares | DiscreteGaussianShares | CentralSkellam | CentralDiscreteGaussian | NoNoise
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecSpec:
    """Everything that determines a round's arithmetic but its public seed.

    A vector of ``dimension`` floats of norm at most ``clip`` is padded to ``padded_dim`` (see
    `padded_length`), rotated, reduced to ``sent_dim`` coordinates (0, the default: all of them),
    scaled by ``scale``, rounded, and sent modulo ``2**bits``.
    """

    dimension: int
    clip: float
    scale: float
    bits: int
    rounding: RoundingSpec
    noise: NoiseSpec
    padded_dim: int
    sent_dim: int = 0
    clip_count: NoiseSpec | None = field(default=None, repr=False)
    """Noise of one more integer: the clients within the clip less those beyond it."""
    central: bool = field(init=False, repr=False, compare=False)
    """Whether the server adds the noise."""
    shares: int = field(init=False, repr=False, compare=False)
    """The fewest messages whose sum may be decoded; 0 where clients add no noise."""
    removable: bool = field(init=False, repr=False, compare=False)
    """Whether the noise of a message comes from a seed that can be opened."""
    radius: float = field(init=False, repr=False, compare=False)
    """The largest L2 norm of what is rounded: ``s c``, less where coordinates are left out."""

    def __post_init__(self) -> None:
        dimension = _checks.integer("dimension", self.dimension, 1, 1 << 40)
        padded_dim = _checks.integer("padded_dim", self.padded_dim, dimension)
        _checks.assign(
            self,
            dimension=dimension,
            clip=_checks.positive("clip", self.clip),
            scale=_checks.between("scale", self.scale, 2.0**-64, 2.0**64),
            bits=_checks.integer("bits", self.bits, 2, 32),
            padded_dim=padded_dim,
            sent_dim=_checks.integer("sent_dim", self.sent_dim, 0, padded_dim) or padded_dim,
        )
        if not isinstance(self.rounding, RoundingSpec):
            raise KindError(
                f"rounding must be Unbiased, Conditional or Integer, got {self.rounding!r}"
            )
        if not isinstance(self.noise, NoiseSpec):
            raise KindError(f"noise must be one of skellam.codec's noises, got {self.noise!r}")
        self._require_clip_count_fits()
        central, shares, removable = _parties(self.noise)
        radius = self.scale * self.clip * math.sqrt(self.sent_dim / padded_dim)
        _checks.assign(self, central=central, shares=shares, removable=removable, radius=radius)
        self._require_arithmetic_fits()

    def _require_clip_count_fits(self) -> None:
        if not isinstance(self.clip_count, NoiseSpec | None):
            raise KindError(
                f"clip_count must be one of skellam.codec's noises, got {self.clip_count!r}"
            )
        if self.clip_count is not None and _parties(self.clip_count) != _parties(self.noise):
            raise DomainError(
                f"clip_count must get its noise from whom the vector gets it, in as many shares; "
                f"got {self.clip_count!r} beside {self.noise!r}"
            )

    def _require_arithmetic_fits(self) -> None:
        if isinstance(self.rounding, Integer):
            self._require_as_it_is()
        elif self.padded_dim // block_of(self.padded_dim) > MAX_BLOCKS:
            raise DomainError(
                f"padded_dim must be a power of two times at most {MAX_BLOCKS}, "
                f"got {self.padded_dim}; padded_length(dimension) is"
            )
        # Integers fit int32, and float32 denormals are far below what `shrink` takes off.
        _checks.between(
            "scale * clip", self.radius, 2.0**-64, MAX_RADIUS, hint="choose another scale"
        )

    def _require_as_it_is(self) -> None:
        everything = self.dimension == self.padded_dim == self.sent_dim
        if not (self.scale == 1 and everything and self.clip_count is None):
            raise DomainError(
                "integers are sent as they are: scale must be 1, padded_dim and sent_dim the "
                "dimension, clip_count None"
            )

    @property
    def message_len(self) -> int:
        """The number of integers that a message holds, each with noise of its own."""
        return self.sent_dim + (self.clip_count is not None)


def _parties(noise: NoiseSpec) -> tuple[bool, int, bool]:
    """Return whether the server adds the noise, in how many shares clients do, and if removably."""
    if isinstance(noise, _Shares):
        return False, noise.shares, noise.removable
    return isinstance(noise, _Central), 0, False


@dataclass(frozen=True, slots=True, kw_only=True)
class RealSensitivity:
    """A real vector within these bounds is rounded without bias; the coins are the mechanism's.

    That coins have 32 bits costs nothing: what is rounded is the vector cut to 32 binary places
    towards zero, which has no larger coordinates (see `skellam._kernels.round_stochastic`).
    """

    l2: float
    coordinate_bound: float
    dimension: int
    assumptions: tuple[str, ...] = ASSUMPTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerSensitivity:
    """An integer vector within these bounds is what the noise is added to."""

    l2: float
    l1: float
    dimension: int
    assumptions: tuple[str, ...] = ASSUMPTIONS


Sensitivity = RealSensitivity | IntegerSensitivity


def rounded_norm_bound(l2: float, dimension: int, beta: float) -> float:
    """Return the L2 norm that a vector of norm ``l2`` keeps to when rounded with bias ``beta``.

    The smaller branch of Algorithm 1's condition (Kairouz, Liu, Steinke 2021); at ``beta`` 0 only
    the second one holds, and it holds always.
    """
    return math.sqrt(rounded_norm_square(l2, dimension, beta))


def rounded_norm_square(l2: float, dimension: int, beta: float) -> float:
    """Return the square of `rounded_norm_bound`: the condition that is really tested."""
    norm = _checks.non_negative("l2", l2)
    root = math.sqrt(_checks.integer("dimension", dimension, 1))
    always = (norm + root) ** 2
    if _checks.between("beta", beta, 0, math.nextafter(1, 0)) == 0:
        return always
    usual = norm**2 + root**2 / 4 + math.sqrt(-2 * math.log(beta)) * (norm + root / 2)
    return min(usual, always)


def paper_scale(
    *, deviation: float, clip: float, bits: int, clients: int, dimension: int, k: float
) -> float:
    """Return the scale at which ``k`` deviations of the aggregate fill half of ``2**bits``.

    Algorithm 1 with its missing factor put right: ``s**2 (c**2 n**2 / d + n sigma**2) + n / 4 =
    (2**b / 2k)**2``, where ``deviation`` is one client's sigma in real units.
    """
    n = _checks.integer("clients", clients, 1)
    spare = (
        2 ** _checks.integer("bits", bits, 2, 32) / (2 * _checks.positive("k", k))
    ) ** 2 - n / 4
    if not spare > 0:
        raise InfeasibleError(
            f"{bits} bits do not hold the rounding of {n} clients at k = {k:g}; "
            f"take at least {_min_bits(n, k)} bits"
        )
    signal = (_checks.positive("clip", clip) * n) ** 2 / _checks.integer("dimension", dimension, 1)
    return math.sqrt(spare / (signal + n * _checks.non_negative("deviation", deviation) ** 2))


def sensitivity(spec: CodecSpec) -> Sensitivity:
    """Return the bounds that every message keeps to, whatever the input and the public seed.

    The clip count, where ``spec.clip_count`` gives it noise, is not part of them: it is at most 1.
    """
    match spec.rounding:
        case Unbiased(bound):
            peak = spec.radius if bound is None else min(bound, spec.radius)
            return RealSensitivity(l2=spec.radius, coordinate_bound=peak, dimension=spec.sent_dim)
        case Conditional(beta):
            l2 = _up(rounded_norm_bound(spec.radius, spec.sent_dim, beta))
            # Integers: |z| <= z**2, so the L1 norm is at most the square of the L2 norm.
            l1 = _up(l2 * min(math.sqrt(spec.sent_dim), l2))
            return IntegerSensitivity(l2=l2, l1=l1, dimension=spec.sent_dim)
        case Integer(l1=l1):
            return IntegerSensitivity(
                l2=min(integer_norm(spec.clip), l1),
                l1=l1,
                dimension=spec.sent_dim,
                assumptions=ASSUMPTIONS[:1],
            )
        case _ as never:
            assert_never(never)


def integer_norm(clip: float) -> float:
    """Return the L2 norm that integer vectors are held to: ``clip``, and the rounding of its test.

    Adding squares in float64 errs by less than ``2**-41`` of the sum, and ``clip`` may be a rounded
    square root.
    """
    return clip * (1 + 2.0**-40)


def _up(x: float) -> float:
    return math.nextafter(math.nextafter(x, math.inf), math.inf)


def _min_bits(clients: int, k: float) -> int:
    return math.floor(math.log2(k * math.sqrt(clients))) + 1
