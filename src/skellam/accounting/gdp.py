"""GDP parameters: the Gaussian mechanism that dominates a release (docs/maths/results.md).

Domination survives Poisson sampling, composition and post-processing, so every tight tool for the
Gaussian applies. Slack is not amplified by sampling here: that is safe, and it is tiny.

*Result A: integer vectors, by the widest quantile gap.*

For one coordinate, a shift of 1 and log-concave noise the best tests are thresholds, so the
trade-off function is piecewise linear with a vertex at every integer t. It lies above that of the
pair N(eta, 1), N(0, 1) iff every vertex does (the region above is convex), that is iff ::

    gap(t) = Phi^-1(S(t - 1)) - Phi^-1(S(t)) <= eta,     S(t) = P(X >= t).

A shift by k is a chain of k such steps, k eta-GDP, and coordinates add in squares (Dong, Roth, Su
2019, theorem 2.14 and corollary 3.3): an integer vector v costs ``||v||_2 eta``.

The certificate evaluates every gap with S(t) >= tail; the rest is charged to delta. Let T be the
last certified threshold. For a shift by k the vertices at t <= T lie above the Gaussian curve; on
{X >= T} replace the shifted law P by the multiple of Q of equal mass, a chord of the curve and so
still above. Likewise at the other end. Both ends together are a rare event (lemma 1 of
docs/maths/slack.md), of probability at most 2 S(T - k) under either law. Nothing here asks the
support to be unbounded: for a binomial law T is its last atom.

*Result B: real vectors, after unbiased stochastic rounding and Skellam noise.*

A coordinate x = m + f is rounded up with probability f: its release has the law
P = (1 - f) Q(. - m) + f Q(. - m - 1), Q = Sk(variance). Take m = 0 first. P/Q rises, so thresholds
are the best tests, and the vertex at t has the quantile gap ::

    gap_f(t) = Phi^-1(S(t) + f p(t - 1)) - Phi^-1(S(t)).

Phi^-1 is concave below 1/2 and convex above, so gap_f(t) / f is largest at f -> 0 or at f = 1:
kappa is the larger of p(t - 1) / phi(Phi^-1(S(t))) over the certified t, and eta of Result A. The
integer part is a chain of m steps, m eta <= m kappa. So a REAL vector of norm r is kappa r-GDP.

Certified are the t with S(t), 1 - S(t) >= tail, that is 1 - T <= t <= T. On {X >= T} replace P by
the multiple of Q of equal mass: a chord of the trade-off curve, so still above the Gaussian one;
likewise on {X <= -T}. These ends are a rare event (lemma 1 of docs/maths/slack.md). At the end of a
chain of m steps it is {|X - m| >= T}, of probability at most 2 S(T - ceil(x)) under either law. Of
the d coordinates of a vector of norm r at most min(d, r^2 / j^2) have ceil(x) > j, so the sum of
S(T - ceil(x)) is at most d S(T - 1) + sum_j min(d, r^2 / j^2) (S(T - j - 1) - S(T - j)).

*Result B': blocks of coordinates, whose far tails average out.*

Equal values: Sort the |x_i|, cut them into blocks of B, raise every value to its block's largest
y_j: P_y against Q only gets easier to tell apart as y grows, and a reflection changes nothing. As
y_j is at most the smallest value of the block before, sum_j B y_j^2 is at most
r^2 + B coordinate_bound^2. It is left to show that one block of equal values y is
``kappa_B sqrt(B) y``-GDP.

A path: Let P_u be the B-fold product at value u, and phi any test, of power pi(u). With
F = Phi^-1(pi), ``F' = pi' / phi(F)`` and pi' = E_u[phi V], V the score: a sum of B independent
copies of s / (1 + u s), s = p(x - 1) / p(x) - 1, for u in [0, 1] (then it repeats). So F' <= K with
K the largest M(b) / phi(Phi^-1(b)), M(b) = max of E[phi V] over tests of size b, for b in
[tail, 1 - tail]; and F(y) - F(0) <= K y as long as pi stays in that range.

The tails: Where Q's best test has size tail, and where P misses with probability tail, make P a
multiple of Q of equal mass: chords of the trade-off curve, so the changed pair is GDP, and Q stays
in place. Both ends together are a rare event; its probability is charged for every block.

All u at once: M grows with the convex order: M(b) = min_c (c b + E(V - c)+). The score has
E_u(X - c)+ = E_0(s - c (1 + u s))+, which falls in u for c >= 0, and E_u(c - X)+ rises for c <= 0.
So over u in [low, high] the score lies below W: the positive values of u = low, the negative ones
of u = high, and 0 with the rest. Cells cover [0, 1/2]; u and 1 - u are mirror images.

Numbers: Each atom of W is split between its two grid neighbours, keeping mass and mean: larger in
convex order, also after summing, and smaller again for a finer grid. Between two vertices M is
a chord, so vertices suffice, and the point at the tail itself. Cutting s off at +-reach loses at
most B (2 p(reach) + 2 (B - 1) p(0) S(reach)) of any E[phi V]; that is added.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, assert_never

import numpy as np

from skellam import _checks
from skellam.accounting.curves import GdpCurve, Slack, slack_by_atoms
from skellam.accounting.laws import (
    Law,
    Table,
    binomial_law,
    discrete_gaussian_law,
    discrete_gaussian_sum_law,
    log_sum,
    quantile_bound,
    skellam_law,
)
from skellam.accounting.mechanisms import (
    Adjacency,
    Banded,
    BandedSkellam,
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    DistributedDiscreteGaussian,
    Gaussian,
    Joint,
    Laplace,
    Mechanism,
    NoiseMechanism,
    RoundedBandedSkellam,
    RoundedSkellam,
    Skellam,
    checked_noise,
    compares_three,
    noise_of,
    replace_one,
)
from skellam.errors import CertificateError, DomainError

FLOAT_SAFETY = 5e-10
"""Relative margin on GDP parameters: float64 noise in a gap is below 3e-10 at variance 1e10."""

DEFAULT_TAIL = 1e-300
_FIRST_CELL = 1 / 128
_STEP = 0.04
_MAX_SCORES = 1 << 20
"""Points of the longest transform; scores that need more are of so little noise that no bound on
them is of use."""


class GdpCertificate(NamedTuple):
    """``eta``-GDP but for an event of probability ``rare``, which is added to delta."""

    eta: float
    rare: float


@lru_cache(maxsize=4)
def eta_of_law(law: Law, *, tail: float = DEFAULT_TAIL) -> float:
    """Return the GDP parameter of a shift by one: the widest certified gap, rounded up."""
    from scipy.special import ndtri_exp

    last = last_threshold(law, tail)
    gaps = -np.diff(ndtri_exp(law.log_survival[: last + 1]))
    if law.shift == 0.0:
        gaps[0] = _central_gap(law)
    return float(gaps.max()) * (1 + FLOAT_SAFETY)


@lru_cache(maxsize=1024)
def eta_skellam(variance: float) -> float:
    """Return the GDP parameter of Sk(variance) at a shift by one; the tail set aside is 1e-300."""
    return eta_of_law(skellam_law(variance))


def certificate_of_law(
    law: Law, *, l2: float, dimension: int, tail: float = DEFAULT_TAIL
) -> GdpCertificate:
    """Return what integer vectors of norm ``l2`` or less cost under i.i.d. noise of this law."""
    norm = _checks.positive("l2", l2)
    d = _checks.integer("dimension", dimension, 1)
    last = last_threshold(law, tail)
    beyond = 2 * survival(law, last - max(1, math.floor(norm)))
    rare = min(1.0, max(1, min(d, norm**2)) * beyond)
    return GdpCertificate(norm * eta_of_law(law, tail=tail), rare)


def last_threshold(law: Law, tail: float) -> int:
    """Return the largest k with P(X >= k + shift) >= tail, or raise if only the centre has it."""
    _checks.open_unit("tail", tail)
    # log_survival falls, so its negative is sorted; the first threshold is the centre itself
    last = int(np.searchsorted(-law.log_survival, -math.log(tail), side="right")) - 1
    if last < 1:
        raise CertificateError(
            f"no threshold beyond the centre has probability {tail:g}; "
            "raise the variance or lower the tail"
        )
    return last


def _central_gap(law: Law) -> float:
    """2 Phi^-1((1 + p) / 2), p the central atom, without cancellation."""
    from scipy.special import erfinv, ndtri_exp

    p = math.exp(law.log_pmf[0])
    return float(2 * math.sqrt(2) * erfinv(p) if p < 0.5 else -2 * ndtri_exp(law.log_survival[1]))


def survival(law: Law, k: int) -> float:
    """Bound P(X >= k + shift) from above, for any integer k."""
    return math.exp(law.log_survival[k]) * (1 + 1e-9) if k >= 0 else 1.0


def kappa(
    variance: float, *, tail: float, block: int = 1, coordinate_bound: float | None = None
) -> float:
    """Return the GDP parameter per unit of L2 norm of rounded vectors, given ``tail`` set aside.

    With ``block`` > 1 (Result B') it multiplies ``sqrt(norm^2 + block * coordinate_bound^2)``
    instead of the norm, and ``tail`` is per block.
    """
    if not 0 < tail < 0.5:
        raise DomainError(f"tail must lie strictly between 0 and 1/2, got {tail!r}")
    if _checks.integer("block", block, 1) == 1:
        return _kappa_of_coordinate(variance, tail)
    # Larger bounds have the same fractions: one entry of the cache.
    bound = min(required_bound(block, coordinate_bound), 0.5)
    return kappa_of_block(variance, tail, block, bound)


def certificate_of_rounding(
    variance: float,
    *,
    l2: float,
    dimension: int,
    tail: float,
    block: int = 1,
    coordinate_bound: float | None = None,
    replaced: bool = False,
) -> GdpCertificate:
    """Return what real vectors of norm ``l2`` or less cost after rounding.

    ``replaced``: a vector is replaced by another, a chain through the zero vector whose law stays
    in place; the ends of both vectors are rare, so there are twice as many.
    """
    norm = _checks.positive("l2", l2)
    scale = kappa(variance, tail=tail, block=block, coordinate_bound=coordinate_bound)
    if block == 1:
        max_shift = min(norm, coordinate_bound or norm)
        _check_chain(variance, max_shift, tail)
        eta, rare = norm * scale, _rare_coordinates(variance, tail, norm, dimension, max_shift)
    else:
        spread = math.sqrt(block) * required_bound(block, coordinate_bound)
        eta = math.hypot(norm, spread) * scale
        rare = -(-dimension // block) * 2 * power_bound(tail, scale * spread)
    return GdpCertificate(eta, min(1.0, 2 * rare if replaced else rare))


def power_bound(size: float, eta: float) -> float:
    """Bound the power of a test of this size under eta-GDP.

    An end of a block has probability ``tail`` under the law that it is the end of; this bounds its
    probability under the others.
    """
    from scipy.special import log_ndtr, ndtri_exp

    return math.exp(log_ndtr(ndtri_exp(math.log(size)) + eta)) * (1 + 1e-9)


def _rare_coordinates(
    variance: float, tail: float, l2: float, dimension: int, coordinate_bound: float
) -> float:
    """Bound the probability that some coordinate is beyond its last certified threshold."""
    law = skellam_law(variance)
    last, max_shift = last_threshold(law, tail), math.ceil(coordinate_bound)
    if max_shift > last:  # moved that far, a coordinate is beyond it as often as not
        return 1.0
    steps = np.arange(1, max_shift)
    beyond = np.exp(law.log_survival[last - max_shift : last][::-1])
    many = np.minimum(dimension, (l2 / steps) ** 2)
    rare = dimension * float(beyond[0]) + float((many * np.diff(beyond)).sum())
    return 2 * rare * (1 + 1e-9)


def required_bound(block: int, coordinate_bound: float | None) -> float:
    """Return ``coordinate_bound``, or raise: blocks need one."""
    if coordinate_bound is None:
        raise DomainError(f"block={block} needs coordinate_bound, the bound on every coordinate")
    return _checks.positive("coordinate_bound", coordinate_bound)


def _check_chain(variance: float, coordinate_bound: float, tail: float) -> None:
    """Raise unless every step of the integer part's chain is inside the certificate of Result A."""
    law = skellam_law(variance)
    if not math.floor(coordinate_bound) + last_threshold(law, tail) <= last_threshold(
        law, DEFAULT_TAIL
    ):
        raise CertificateError(
            f"a coordinate of {coordinate_bound:g} is beyond what is certified at variance "
            f"{variance:g}; raise the variance or lower the norm"
        )


@lru_cache(maxsize=1024)
def _kappa_of_coordinate(variance: float, tail: float) -> float:
    from scipy.special import ndtri_exp

    law = skellam_law(variance)
    last = last_threshold(law, tail)
    quantiles = ndtri_exp(law.log_survival[1 : last + 1])
    log_density = -0.5 * quantiles**2 - 0.5 * math.log(2 * math.pi)
    steepest = math.exp((law.log_pmf[:last] - log_density).max()) * (1 + FLOAT_SAFETY)
    return max(steepest, eta_of_law(law))


@lru_cache(maxsize=1024)
def kappa_of_block(variance: float, tail: float, block: int, coordinate_bound: float) -> float:
    """Return kappa_B for blocks of coordinates of at most ``coordinate_bound``."""
    law = skellam_law(variance)
    worst = max_over_cells(lambda cell: steepest(law, tail, block, cell), coordinate_bound)
    if not 0 < worst < math.inf:
        raise CertificateError(f"no bound on rounding was found at variance {variance:g}")
    return worst


def max_over_cells(slope: Callable[[tuple[float, float]], float], coordinate_bound: float) -> float:
    """Return the largest ``slope`` over cells that cover all fractions up to one half."""
    end = min(coordinate_bound, 0.5)
    worst = slope((0.0, min(end, _FIRST_CELL)))
    cells = [(_FIRST_CELL, end)] if end > _FIRST_CELL else []
    while cells:
        low, high = cells.pop()
        found = slope((low, high))
        if found > 1.0001 * worst and high > 1.2 * low:
            cells += [(low, math.sqrt(low * high)), (math.sqrt(low * high), high)]
        else:
            worst = max(worst, found)
    return worst


def steepest(
    law: Law, tail: float, block: int, cell: tuple[float, float], *, step: float = _STEP
) -> float:
    """Bound kappa_B over fractions in ``cell``; the grid has ``step`` deviations of one score."""
    low, high = cell
    reach = 1 + last_threshold(law, max(1e-12 * tail / block**2, DEFAULT_TAIL))
    p, steps = np.exp(law.log_pmf[: reach + 1]), np.diff(law.log_pmf[: reach + 1])
    # s(x) at x = 1, 2, ... and -s(-x) at x = 0, 1, ...
    up, down = np.expm1(-steps), -np.expm1(steps)
    values = np.concatenate((up / (1 + low * up), -down / (1 - high * down)))
    masses = np.concatenate((p[1:] * (1 + low * up), p[:-1] * (1 - high * down)))
    spacing = step * math.sqrt((masses * values**2).sum())
    grid, zero = _split(values / spacing, masses)
    lost = 2 * block * (p[-2] + (block - 1) * p[0] * math.exp(law.log_survival[reach - 1]))
    return slope_of_scores(grid, zero, block, tail, lost / spacing) * spacing


def slope_of_scores(log_grid: Table, zero: int, block: int, tail: float, lost: float) -> float:
    """Return K over sqrt(block) for one coordinate's scores, whose masses are on a grid."""
    upper = _steepest_above(log_grid, zero, block, tail, lost)
    lower = _steepest_above(log_grid[::-1], log_grid.size - 1 - zero, block, tail, lost)
    return max(upper, lower) / math.sqrt(block) * (1 + FLOAT_SAFETY)


def _split(values: Table, masses: Table) -> tuple[Table, int]:
    """Return the logs of the masses on the grid of the integers, and where its zero is."""
    floor = np.floor(values)
    share, at = values - floor, (floor - floor.min()).astype(np.int64)
    grid = np.bincount(at, masses * (1 - share), int(at.max()) + 2)
    grid += np.bincount(at + 1, masses * share, grid.size)
    zero = -int(floor.min())
    grid[zero] += max(0.0, 1 - masses.sum())
    return np.log(grid, out=np.full(grid.size, -np.inf), where=grid > 0), zero


def _steepest_above(log_grid: Table, zero: int, block: int, tail: float, lost: float) -> float:
    """Bound E[V; V >= c] / phi(Phi^-1(P(V >= c))) over P(V >= c) from a half down to tail."""
    from scipy.special import ndtri_exp

    top, theta = quantile_bound(log_grid, block, math.log(1e-12 * tail))
    origin = block * zero
    variance = (np.exp(log_grid) * (np.arange(log_grid.size) - zero) ** 2).sum()
    first = origin - math.ceil(math.sqrt(block * variance))  # P(V >= -deviation) >= 1/2 (Cantelli)
    masses = np.exp(log_sum(log_grid, block, first, top, max_size=_MAX_SCORES))
    beyond = np.cumsum(masses[::-1])[::-1]
    values = np.arange(first - origin, top + 1 - origin, dtype=np.float64)
    moments = np.cumsum((masses * values)[::-1])[::-1]
    lost += 1e-12 * tail * (top - origin + 1 / -math.expm1(-theta))
    beyond, moments = np.append(beyond, 0.0), np.append(moments, 0.0) + lost
    # vertices above 3/4 are left to the other side, whose tails they are
    start, last = np.searchsorted(-beyond, [-0.75, -tail], side="right").tolist()
    sizes = np.append(beyond[start:last], tail)
    moments = np.append(moments[start:last], np.interp(tail, beyond[::-1], moments[::-1]))
    log_density = -0.5 * ndtri_exp(np.log(sizes)) ** 2 - 0.5 * math.log(2 * math.pi)
    return float((moments * np.exp(-log_density)).max())


def gdp_parameter(noise: NoiseMechanism) -> float:
    """Return eta such that one release is eta-GDP, but for the rare event of `gdp_certificate`."""
    return gdp_certificate(checked_noise(noise)).eta


@lru_cache(maxsize=1024)
def gdp_certificate(noise: NoiseMechanism) -> GdpCertificate:
    """Return the GDP parameter of one release and what is set aside; sampling comes after it."""
    match noise:
        case Gaussian():
            return GdpCertificate(noise.l2 / noise.sigma, 0.0)
        case RoundedSkellam():
            return certificate_of_rounding(
                noise.variance,
                l2=noise.l2,
                dimension=noise.dimension,
                tail=noise.tail,
                block=noise.block,
                coordinate_bound=noise.coordinate_bound,
                replaced=noise.adjacency is Adjacency.REPLACE_ONE,
            )
        case Skellam() | DiscreteGaussian() | DistributedDiscreteGaussian():
            return certificate_of_law(law_of_noise(noise), l2=noise.l2, dimension=noise.dimension)
        case BandedSkellam() | RoundedBandedSkellam():
            from skellam.accounting import correlated  # which is built on the certificates above

            return correlated.certificate(noise)
        case Binomial():
            law = law_of_noise(noise)
            return certificate_of_law(law, l2=noise.l2, dimension=noise.dimension, tail=noise.tail)
        case Joint():
            # A product of pairs: G_a x G_b = G_hypot(a, b) (Dong, Roth, Su 2019, corollary 3.3).
            etas, rare = zip(*map(gdp_certificate, noise.parts), strict=True)
            return GdpCertificate(math.hypot(*etas) * (1 + 1e-12), sum(rare))
        case DiscreteLaplace() | Laplace():
            raise CertificateError(
                "Laplace noise is not accounted as Gaussian; use its privacy loss distribution"
            )
        case _:
            assert_never(noise)


def law_of_noise(
    noise: Skellam | RoundedSkellam | DiscreteGaussian | DistributedDiscreteGaussian | Binomial,
) -> Law:
    """Return the law of one coordinate's noise."""
    match noise:
        case Skellam() | RoundedSkellam():
            return skellam_law(noise.variance)
        case DiscreteGaussian():
            return discrete_gaussian_law(noise.sigma)
        case DistributedDiscreteGaussian():
            return discrete_gaussian_sum_law(noise.sigma_local, noise.shares)
        case Binomial():
            return binomial_law(noise.trials)
        case _:
            assert_never(noise)


def dominating(noise: NoiseMechanism) -> GdpCurve:
    """Return the Gaussian curve of one release without sampling."""
    match noise:
        case DiscreteLaplace() | Laplace():
            return GdpCurve(_pure_gdp(pure_epsilon(noise)))
        case _:
            eta, rare = gdp_certificate(noise)
            return GdpCurve(eta, Slack(rare=rare))


def sized_slack(noise: NoiseMechanism) -> Slack:
    """Return what the certificate leaves out where three laws are compared (`compares_three`).

    An end of one vector's certificate may be reached from another vector, at most twice as far off
    as from none: that is what the certificate under replace-one has.
    """
    return dominating(noise).slack + dominating(replace_one(noise)).slack


def sampler_distance(mechanism: Mechanism) -> float:
    """Return the part of `outside_by_distance` that `outside_by_atoms` may lower."""
    noise = noise_of(mechanism)
    parts = noise.parts if isinstance(noise, Joint) else ()
    return noise.sampler_distance + sum(map(sampler_distance, parts))


def outside_by_distance(mechanism: Mechanism) -> Slack:
    """Return a release's own rare events, and what its sampler costs by its total variation."""
    noise = noise_of(mechanism)
    own = Slack(rare=noise.rare, distance=noise.sampler_distance + noise.distance)
    if isinstance(noise, Banded):
        from skellam.accounting import correlated

        return own * correlated.touched_rounds(noise)
    return sum(map(outside_by_distance, noise.parts), own) if isinstance(noise, Joint) else own


def outside_by_atoms(mechanism: Mechanism) -> Slack:
    """Return the same with the sampler's largest error at any integer, where that is known.

    Better than its distance where epsilon is large, but it takes the law's whole table.
    """
    noise = noise_of(mechanism)
    return _outside_by_atoms(replace_one(noise) if compares_three(mechanism) else noise)


def _outside_by_atoms(noise: NoiseMechanism) -> Slack:
    if isinstance(noise, Joint):
        own = Slack(rare=noise.rare, distance=noise.sampler_distance + noise.distance)
        return sum(map(_outside_by_atoms, noise.parts), own)
    if isinstance(noise, Gaussian | DiscreteLaplace | Laplace | Banded) or not noise.atom_error:
        return outside_by_distance(noise)
    bound = noise.coordinate_bound if isinstance(noise, RoundedSkellam) else None
    try:
        law = law_of_noise(noise)
    except CertificateError:  # no table is that wide; the distance does not need one
        return outside_by_distance(noise)
    sampler = slack_by_atoms(
        law,
        dimension=noise.dimension,
        shift=min(noise.l2, bound or noise.l2),
        distance=noise.sampler_distance,
        atom_error=noise.atom_error,
    )
    return sampler + Slack(rare=noise.rare, distance=noise.distance)


def pure_epsilon(noise: DiscreteLaplace | Laplace) -> float:
    """Return epsilon of (discrete) Laplace noise, at delta 0."""
    return noise.l1 / noise.scale


def _pure_gdp(epsilon: float) -> float:
    """Return the least mu whose trade-off curve lies below that of any epsilon-DP mechanism.

    The latter has one vertex, at 1/(1 + e^epsilon) (Dong, Roth, Su 2019, section 2.3).
    """
    from scipy.special import ndtri_exp

    vertex = -epsilon - math.log1p(math.exp(-epsilon))
    return float(-2 * ndtri_exp(vertex)) * (1 + 1e-9)
