"""Mechanisms as frozen data: the noise, the sensitivities, and how the cohort was drawn.

Two data sets are neighbours when they differ in one user. Under ``ADD_REMOVE`` (the default) the
user's vector is zeroed out, and its noise share stays; under ``REPLACE_ONE`` it becomes another
vector, which doubles every sensitivity (`replace_one`).

Sensitivities and noise of the integer mechanisms are in the integer domain, after scaling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias, TypeVar

from skellam import _checks, bands
from skellam._checks import assign as _set
from skellam.errors import DomainError, KindError

MAX_MAGNITUDE: Final = 1e50
"""Of sensitivities and noise: ratios of two, squared, times rounds stay far within a float."""
_UNITS: Final = "measure sensitivity and noise in units of about the sensitivity"


class Adjacency(StrEnum):
    """Which pairs of data sets must be hard to tell apart."""

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"


@dataclass(frozen=True, slots=True)
class _Noise:
    """What all noise shares: how far a release is from the law that is accounted.

    ``sampler_distance`` is the total variation of one release's noise: coordinates times clients
    times that of one draw. ``atom_error`` bounds the error of every probability of one coordinate:
    clients times that of one draw. ``rare`` is the probability a release of events, independent of
    the data or rare under both laws, outside of which the mechanism is as stated (for example more
    colluders in a cohort than planned). It is added to delta for every release, and sampling does
    not amplify it: such an event can happen whether or not the user takes part. ``distance`` is
    the total variation of a release from the law that is accounted, for any reason but the sampler.
    """

    sampler_distance: float = field(default=0.0, kw_only=True)
    atom_error: float = field(default=0.0, kw_only=True)
    rare: float = field(default=0.0, kw_only=True)
    distance: float = field(default=0.0, kw_only=True)
    adjacency: Adjacency = field(default=Adjacency.ADD_REMOVE, kw_only=True)

    def __post_init__(self) -> None:
        _checks.between("sampler_distance", self.sampler_distance, 0, 1)
        _checks.between("atom_error", self.atom_error, 0, 1)
        _checks.between("rare", self.rare, 0, 1)
        _checks.between("distance", self.distance, 0, 1)
        _set(self, adjacency=_adjacency(self.adjacency))


@dataclass(frozen=True, slots=True)
class Gaussian(_Noise):
    """Continuous Gaussian noise of standard deviation ``sigma`` on a vector of norm ``l2``."""

    sigma: float
    l2: float

    def __post_init__(self) -> None:
        _Noise.__post_init__(self)
        _set(self, sigma=_magnitude("sigma", self.sigma))
        _set(self, l2=_magnitude("l2", self.l2))


@dataclass(frozen=True, slots=True)
class Skellam(_Noise):
    """Skellam noise of ``variance`` per coordinate on an integer vector of norm ``l2``."""

    variance: float
    l2: float
    l1: float | None = None
    dimension: int = 1

    def __post_init__(self) -> None:
        _Noise.__post_init__(self)
        _set(self, variance=_magnitude("variance", self.variance))
        _check_integer_vector(self)


@dataclass(frozen=True, slots=True)
class RoundedSkellam(_Noise):
    """Skellam noise on a REAL vector of norm ``l2`` after unbiased stochastic rounding.

    The rounding coins are secret, like the noise. ``tail`` is the mass that a block of ``block``
    coordinates leaves uncertified; with blocks, ``coordinate_bound`` bounds every coordinate.
    """

    variance: float
    l2: float
    dimension: int
    tail: float
    block: int = 1
    coordinate_bound: float | None = None

    def __post_init__(self) -> None:
        _Noise.__post_init__(self)
        _set(self, variance=_magnitude("variance", self.variance))
        _check_rounding(self)


@dataclass(frozen=True, slots=True)
class BandedSkellam(_Noise):
    """A user's part in a run of correlated rounds (Result C): integer vectors of norm ``l2``.

    Round t opens ``sum_j band[j] X_{t-j}`` plus Skellam noise of ``variance`` per coordinate, fresh
    in every round, where X_t is the sum of that round's vectors. The user takes part in at most
    ``participations`` rounds, any two at least ``separation`` apart in round numbers (as long as
    the band, unless given), with vectors that may depend on all that was opened before.
    ``run_rounds`` is the number of rounds that the run can open at most, if there is a limit.

    It is ONE release for all of these rounds, against whoever knows who took part. What is common
    to all noise (``sampler_distance``, ``rare``, ``distance``) is stated for one opened round.
    """

    variance: float
    l2: float
    band: tuple[int, ...]
    participations: int = 1
    separation: int | None = None
    dimension: int = 1
    run_rounds: int | None = None

    def __post_init__(self) -> None:
        _Noise.__post_init__(self)
        _check_run(self)
        _set(self, l2=_integer_norm("l2", self.l2))


@dataclass(frozen=True, slots=True)
class RoundedBandedSkellam(_Noise):
    """The same for REAL vectors of norm ``l2`` after unbiased stochastic rounding.

    The coins of rounding are secret and decide nothing else, later vectors least of all.
    ``separation`` must be as long as the band. ``tail``, ``block`` and ``coordinate_bound`` are
    those of `RoundedSkellam`.
    """

    variance: float
    l2: float
    band: tuple[int, ...]
    dimension: int
    tail: float
    participations: int = 1
    separation: int | None = None
    block: int = 1
    coordinate_bound: float | None = None
    run_rounds: int | None = None

    def __post_init__(self) -> None:
        _Noise.__post_init__(self)
        _check_run(self)
        _check_rounding(self)
        if separation_of(self) < len(self.band):
            raise DomainError(
                f"separation must be at least {len(self.band)}, as long as the band, where vectors "
                f"are rounded at random, got {self.separation}; take a shorter band, or round "
                "within a norm bound (BandedSkellam)"
            )


@dataclass(frozen=True, slots=True)
class DiscreteGaussian(_Noise):
    """Discrete Gaussian noise of parameter ``sigma`` on an integer vector."""

    sigma: float
    l2: float
    l1: float | None = None
    dimension: int = 1

    def __post_init__(self) -> None:
        _Noise.__post_init__(self)
        _set(self, sigma=_magnitude("sigma", self.sigma))
        _check_integer_vector(self)


@dataclass(frozen=True, slots=True)
class DistributedDiscreteGaussian(_Noise):
    """The sum of ``shares`` discrete Gaussians of parameter ``sigma_local`` each."""

    sigma_local: float
    shares: int
    l2: float
    l1: float | None = None
    dimension: int = 1

    def __post_init__(self) -> None:
        _Noise.__post_init__(self)
        _set(self, sigma_local=_magnitude("sigma_local", self.sigma_local))
        _set(self, shares=_checks.integer("shares", self.shares, 1))
        _check_integer_vector(self)


@dataclass(frozen=True, slots=True)
class Binomial(_Noise):
    """Centred Binomial(``trials``, 1/2) noise on an integer vector; ``tail`` is left uncertified
    at each edge of the bounded support, and charged to delta.
    """

    trials: int
    l2: float
    l1: float | None = None
    dimension: int = 1
    tail: float = 1e-20

    def __post_init__(self) -> None:
        _Noise.__post_init__(self)
        _set(self, trials=_checks.integer("trials", self.trials, 1))
        _checks.open_unit("tail", self.tail)
        _check_integer_vector(self)


@dataclass(frozen=True, slots=True)
class DiscreteLaplace(_Noise):
    """NoiseMechanism with P(k) proportional to exp(-|k|/scale) on an integer vector."""

    scale: float
    l1: float
    dimension: int = 1

    def __post_init__(self) -> None:
        _Noise.__post_init__(self)
        _set(self, scale=_magnitude("scale", self.scale))
        _set(self, l1=_integer_norm("l1", self.l1))
        _set(self, dimension=_checks.integer("dimension", self.dimension, 1))


@dataclass(frozen=True, slots=True)
class Laplace(_Noise):
    """Continuous Laplace noise with density proportional to exp(-|x|/scale)."""

    scale: float
    l1: float
    dimension: int = 1

    def __post_init__(self) -> None:
        _Noise.__post_init__(self)
        _set(self, scale=_magnitude("scale", self.scale))
        _set(self, l1=_magnitude("l1", self.l1))
        _set(self, dimension=_checks.integer("dimension", self.dimension, 1))


@dataclass(frozen=True, slots=True)
class Joint(_Noise):
    """Several releases at once, with independent noise, in which the same users take part.

    Under sampling that is less than the composition of sampled releases: the cohort is one.
    """

    parts: tuple[NoiseMechanism, ...]

    def __post_init__(self) -> None:
        _Noise.__post_init__(self)
        _set(self, parts=tuple(checked_noise(part) for part in self.parts))
        if not self.parts:
            raise DomainError("parts must hold at least one release")
        if any(part.adjacency is not self.adjacency for part in self.parts):
            raise DomainError("parts must have the adjacency of the whole")


NoiseMechanism: TypeAlias = (
    Gaussian
    | Skellam
    | RoundedSkellam
    | BandedSkellam
    | RoundedBandedSkellam
    | DiscreteGaussian
    | DistributedDiscreteGaussian
    | Binomial
    | DiscreteLaplace
    | Laplace
    | Joint
)
Banded: TypeAlias = BandedSkellam | RoundedBandedSkellam
_NoiseT = TypeVar("_NoiseT", bound=_Noise)
BandedT = TypeVar("BandedT", BandedSkellam, RoundedBandedSkellam)


@dataclass(frozen=True, slots=True)
class Sampled:
    """``mechanism`` on a secret Poisson cohort: each user takes part with probability ``rate``."""

    mechanism: NoiseMechanism
    rate: float
    mixture: tuple[tuple[float, float], ...] = ()
    """Weights and rates, each at most ``rate``, where the rate of a round is public and varies."""

    def __post_init__(self) -> None:
        rate = _checks.rate("rate", self.rate)
        mixture = tuple((_checks.between("weight", w, 0, 1), float(r)) for w, r in self.mixture)
        total, rates = sum(w for w, _ in mixture), [r for _, r in mixture]
        if not all(0 < r <= rate for r in rates) or not total <= 1 + 1e-9:
            raise DomainError(
                f"mixture must hold weights that sum to at most 1 and rates in (0, {rate:g}], got "
                f"weights that sum to {total:g} and rates from {min(rates):g} to {max(rates):g}"
            )
        _set(self, mechanism=_sampleable(self.mechanism), rate=rate, mixture=mixture)


@dataclass(frozen=True, slots=True)
class SampledWithoutReplacement:
    """``mechanism`` on a secret uniform cohort of fixed size, which may be public.

    Under add/remove a user's vector is zeroed out, and it stays in the draw (Result D).
    """

    mechanism: NoiseMechanism
    cohort: int
    population: int

    def __post_init__(self) -> None:
        population = _checks.integer("population", self.population, 1, _MAX_POPULATION)
        cohort = _checks.integer("cohort", self.cohort, 1, population)
        _set(self, mechanism=_sampleable(self.mechanism), cohort=cohort, population=population)

    @property
    def rate(self) -> float:
        """The probability that a user takes part."""
        return self.cohort / self.population


@dataclass(frozen=True, slots=True)
class SampledKnownSize:
    """``mechanism`` on a Poisson cohort out of ``population`` users whose SIZE is public.

    Who took part is secret. `Sampled` is for cohorts whose size is secret too; it costs less.
    """

    mechanism: NoiseMechanism
    rate: float
    population: int
    run_chance: float = 1.0
    """The chance, at least, that a cohort is released: it may be skipped for its size."""

    def __post_init__(self) -> None:
        _set(
            self,
            mechanism=_sampleable(self.mechanism),
            rate=_checks.rate("rate", self.rate),
            population=_checks.integer("population", self.population, 1, _MAX_POPULATION),
            run_chance=_checks.rate("run_chance", self.run_chance),
        )


_MAX_POPULATION = 10**12

Mechanism: TypeAlias = NoiseMechanism | Sampled | SampledWithoutReplacement | SampledKnownSize


def noise_of(mechanism: Mechanism) -> NoiseMechanism:
    """Return the noise under the sampling, if any."""
    match mechanism:
        case Sampled() | SampledWithoutReplacement() | SampledKnownSize():
            return mechanism.mechanism
        case _:
            return checked_noise(mechanism)


def rate_of(mechanism: Mechanism) -> float:
    """Return the probability that a user takes part."""
    match mechanism:
        case Sampled() | SampledWithoutReplacement() | SampledKnownSize():
            return mechanism.rate
        case _:
            return 1.0


def compares_three(mechanism: Mechanism) -> bool:
    """Return whether one round compares three vectors: the user's, none, and a substitute's.

    That is so for cohorts of known size under add/remove: the laws are P_x, Q and P_r.
    """
    sized = isinstance(mechanism, SampledWithoutReplacement | SampledKnownSize)
    added = noise_of(mechanism).adjacency is Adjacency.ADD_REMOVE
    return sized and added and rate_of(mechanism) < 1


def l1_bound(
    noise: Skellam | DiscreteGaussian | DistributedDiscreteGaussian | Binomial,
) -> float:
    """Return the least valid L1 sensitivity: integer vectors have l1 <= l2 min(sqrt(d), l2)."""
    bound = noise.l2 * min(math.sqrt(noise.dimension), noise.l2)
    return bound if noise.l1 is None else min(noise.l1, bound)


def replace_one(noise: _NoiseT) -> _NoiseT:
    """Return ``noise`` under replace-one: every sensitivity doubles.

    For rounding (Result B) this is the chain P_x, Q, P_x' through the zeroed-out user. Each end is
    moved by the uncertified mass once, so the slack factor 1 + e^epsilon covers both as it stands.
    """
    if checked_noise(noise).adjacency is Adjacency.REPLACE_ONE:  # type: ignore[arg-type]
        raise DomainError("the mechanism is under replace-one already; use it as it is")
    if isinstance(noise, Joint):
        parts = tuple(replace_one(part) for part in noise.parts)
        return replace(noise, adjacency=Adjacency.REPLACE_ONE, parts=parts)
    doubled: dict[str, Any] = {name: 2 * value for name, value in _sensitivities(noise).items()}
    return replace(noise, adjacency=Adjacency.REPLACE_ONE, **doubled)


def separation_of(noise: Banded) -> int:
    """Return how far apart a user's rounds are, at least."""
    return len(noise.band) if noise.separation is None else noise.separation


def one_participation(noise: BandedT) -> BandedT:
    """Return what one participation in the run costs; any number of them compose as releases do.

    So a ledger can spend each when it happens: a run that ends early has cost the participations
    so far, and one that goes on goes on spending, whatever ``run_rounds`` was.
    """
    if separation_of(noise) < len(noise.band):
        raise DomainError(
            f"participations {separation_of(noise)} rounds apart overlap in a band of "
            f"{len(noise.band)} and have no price each; spend the run as a whole"
        )
    return replace(noise, participations=1, run_rounds=None)


def _sensitivities(noise: _Noise) -> dict[str, float]:
    values = {name: getattr(noise, name, None) for name in ("l1", "l2", "coordinate_bound")}
    return {name: value for name, value in values.items() if value is not None}


def _check_run(noise: Banded) -> None:
    """Check what all runs of correlated rounds have in common."""
    _set(noise, variance=_magnitude("variance", noise.variance))
    _set(noise, band=bands.require_band(tuple(noise.band)))
    for name in ("participations", "dimension"):
        _set(noise, **{name: _checks.integer(name, getattr(noise, name), 1)})
    for name in ("separation", "run_rounds"):
        if (value := getattr(noise, name)) is not None:
            _set(noise, **{name: _checks.integer(name, value, 1)})


def _check_rounding(noise: RoundedSkellam | RoundedBandedSkellam) -> None:
    _set(noise, l2=_magnitude("l2", noise.l2))
    _set(noise, dimension=_checks.integer("dimension", noise.dimension, 1))
    _set(noise, block=_checks.integer("block", noise.block, 1, noise.dimension))
    if not 0 < _checks.number("tail", noise.tail) < 0.5:
        raise DomainError(f"tail must lie strictly between 0 and 1/2, got {noise.tail!r}")
    if noise.coordinate_bound is not None:
        bound = _magnitude("coordinate_bound", noise.coordinate_bound)
        _set(noise, coordinate_bound=bound)
        _check_reachable("coordinate_bound * sqrt(dimension)", noise.l2, bound, noise.dimension)
    elif noise.block > 1:
        raise DomainError(
            "blocks need coordinate_bound, the bound on every coordinate; or take block=1"
        )


def _check_integer_vector(
    noise: Skellam | DiscreteGaussian | DistributedDiscreteGaussian | Binomial,
) -> None:
    _set(noise, l2=_integer_norm("l2", noise.l2))
    _set(noise, dimension=_checks.integer("dimension", noise.dimension, 1))
    if noise.l1 is not None:
        _set(noise, l1=_integer_norm("l1", noise.l1))
        _check_reachable("l1", noise.l2, noise.l1, 1)


def _magnitude(name: str, value: float) -> float:
    """Return ``value`` if it is positive, and so near to 1 that no product overflows."""
    size = _checks.positive(name, value)
    return _checks.between(name, size, 1 / MAX_MAGNITUDE, MAX_MAGNITUDE, hint=_UNITS)


def _integer_norm(name: str, value: float) -> float:
    norm = _magnitude(name, value)
    if not norm >= 1:
        raise DomainError(
            f"{name} must be at least 1, the least norm of an integer vector, got {norm!r}; "
            "multiply sensitivities and the noise's standard deviation by the scale"
        )
    return norm


def _check_reachable(name: str, l2: float, bound: float, dimension: int) -> None:
    reach = bound * math.sqrt(dimension)
    if not l2 <= reach * (1 + 1e-12):
        raise DomainError(f"l2 must be at most {name} = {reach:g}, got {l2!r}")


def _adjacency(value: str) -> Adjacency:
    try:
        return Adjacency(value)
    except ValueError as error:
        names = ", ".join(Adjacency)
        raise DomainError(f"adjacency must be one of {names}, got {value!r}") from error


def checked_noise(value: NoiseMechanism) -> NoiseMechanism:
    """Return ``value`` if it is a mechanism without sampling, or raise `KindError`."""
    if not isinstance(value, NoiseMechanism):
        raise KindError(
            "mechanism must be noise without sampling, such as Skellam or Gaussian, "
            f"got {type(value).__name__}"
        )
    return value


def _sampleable(value: NoiseMechanism) -> NoiseMechanism:
    noise = checked_noise(value)
    parts = noise.parts if isinstance(noise, Joint) else (noise,)
    if any(isinstance(part, Banded) for part in parts):
        raise DomainError(
            "correlated rounds are not amplified by sampling: their cohorts are no secret; "
            "account the run as it is"
        )
    return noise
