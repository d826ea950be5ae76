"""Rényi curves of releases: the dominating Gaussian's, their own law's, and the paper's.

The paper is Agarwal, Kairouz, Liu 2021. Errata that matter here: the introduction prints Delta_2
where Corollary 3.3 has its square.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import SupportsIndex, assert_never

import numpy as np

from skellam import _checks
from skellam.accounting.curves import ORDERS, PAPER_ORDERS, RdpCurve
from skellam.accounting.gdp import dominating, pure_epsilon
from skellam.accounting.mechanisms import (
    Adjacency,
    DiscreteGaussian,
    DiscreteLaplace,
    DistributedDiscreteGaussian,
    Gaussian,
    Laplace,
    Mechanism,
    NoiseMechanism,
    RoundedSkellam,
    Sampled,
    SampledKnownSize,
    SampledWithoutReplacement,
    Skellam,
    compares_three,
    l1_bound,
    noise_of,
    rate_of,
)
from skellam.accounting.pld import dominating_pld
from skellam.accounting.renyi import rdp_integer, rdp_rounded
from skellam.errors import CertificateError, DomainError


def poisson_rdp(
    rdp: Callable[[int], float], *, rate: float, orders: Sequence[int], involution: bool = False
) -> tuple[float, ...]:
    """Bound the divergence under Poisson sampling, given the bound ``rdp`` at all integer orders.

    Zhu and Wang 2019, theorem 5: the terms from the third on count three times. With
    ``involution`` (a map that swaps the two laws of a pair, as x -> v - x does for symmetric noise
    shifted by an integer vector v) they count once: Mironov, Talwar, Zhang 2019, theorem 5.
    Rounding has no such map. Never above the unsampled bound.
    """
    from scipy.special import gammaln, logsumexp

    q = _checks.rate("rate", rate)
    a = np.array([_checks.integer("order", order, 2) for order in orders])
    plain = np.array([rdp(order) for order in range(2, int(a.max()) + 1)])
    if q == 1:
        return tuple(plain[a - 2].tolist())
    l = np.arange(int(a.max()) + 1)  # noqa: E741  (as in the theorem)
    moments = np.concatenate(([0.0, 0.0], (l[2:] - 1) * plain))
    moments[3:] += 0.0 if involution else math.log(3)
    weights = l * math.log(q) - gammaln(l + 1.0) + moments
    left = a[:, None] - l
    others = np.where(
        left >= 0, left * math.log1p(-q) - gammaln(np.maximum(left, 0) + 1.0), -np.inf
    )
    total = gammaln(a + 1.0) + logsumexp(weights + others, axis=1)
    # The sum is 1 and a little more; what float64 loses of the little is below 1e-14 (a - 1).
    bound = np.maximum(total, 0.0) * (1 + 1e-12) / (a - 1) + 1e-14
    return tuple(np.minimum(plain[a - 2], bound).tolist())


def gaussian_rdp(z: float, *, rate: float = 1.0, orders: Sequence[float]) -> tuple[float, ...]:
    """Return the divergence of the (Poisson sampled) Gaussian mechanism at any real orders.

    Mironov, Talwar, Zhang 2019: the closed form of section 3.3 at integer orders, else the integral
    of theorem 4.
    """
    _checks.positive("z", z)
    integers = sorted({int(a) for a in orders if a == int(a) and a >= 2} | {2})
    closed = dict(
        zip(
            integers,
            poisson_rdp(lambda a: a / (2 * z * z), rate=rate, orders=integers, involution=True),
            strict=True,
        )
    )
    return tuple(closed[int(a)] if a in closed else _integral(z, rate, a) for a in orders)


def _integral(z: float, rate: float, order: float) -> float:
    """Integrate E (1 - q + q exp(x/z - 1/(2 z^2)))^order over a standard normal x.

    The trapezoidal rule of step h errs by exp(-2 pi^2 z/h), as the nearest branch points lie pi z
    off the real line: nothing at h = z/10.
    """
    from scipy.special import logsumexp

    plain = order / (2 * z * z)
    step = min(0.05, z / 10)
    if rate == 1 or not z >= 0.02:
        return plain
    x = np.arange(-13.0, order / z + 13.0, step)
    with np.errstate(divide="ignore"):
        ratio = np.logaddexp(np.log1p(-rate), math.log(rate) + x / z - 0.5 / z**2)
    logs = order * ratio - x * x / 2
    moment = float(logsumexp(logs)) + math.log(step) - 0.5 * math.log(2 * math.pi)
    return min(plain, (max(0.0, moment) * (1 + 1e-12) + 1e-13) / (order - 1))


def fixed_size_gaussian_rdp(
    z: float, *, cohort: int, population: int, orders: Sequence[float]
) -> tuple[float, ...]:
    """Bound the divergence of a Gaussian on a cohort of fixed size, under replace-one.

    Wang, Balle, Kasiviswanathan 2019, theorem 27. ``z`` is sigma over the sensitivity under
    REPLACE-ONE, that is twice the clip norm; dp_accounting's text asks for sigma over the clip
    norm, which would report far too little.
    """
    import dp_accounting

    n = _checks.integer("population", population, 1)
    event = dp_accounting.SampledWithoutReplacementDpEvent(
        n,
        _checks.integer("cohort", cohort, 1, n),
        dp_accounting.GaussianDpEvent(_checks.positive("z", z)),
    )
    neighbours = dp_accounting.NeighboringRelation.REPLACE_ONE
    accountant = dp_accounting.rdp.RdpAccountant(orders, neighbours).compose(event)
    values = tuple(float(value) for value in accountant.rdp)
    if not all(value >= 0 for value in values):
        raise CertificateError(f"dp_accounting returned no divergence for {event}: {values}")
    return values


def dominating_rdp(mechanism: Mechanism) -> RdpCurve:
    """Return the Rényi curve of the Gaussian that dominates one release.

    Cohorts of known size go through their loss laws. Under replace-one Wang, Balle and
    Kasiviswanathan's theorem is for Gaussian noise alone: it compares three data sets, and
    domination two.
    """
    noise, rate = noise_of(mechanism), rate_of(mechanism)
    curve = dominating(noise)
    plain, z = curve.rdp(), 1 / curve.mu
    match mechanism:
        case Sampled() if noise.adjacency is Adjacency.ADD_REMOVE:
            values = gaussian_rdp(z, rate=rate, orders=ORDERS)
        case SampledWithoutReplacement(Gaussian(), cohort, population) if not compares_three(
            mechanism
        ):
            values = fixed_size_gaussian_rdp(z, cohort=cohort, population=population, orders=ORDERS)
        case SampledWithoutReplacement() | SampledKnownSize():
            sized = dominating_pld(mechanism).rdp()
            return sized.minimum(replace(plain, slack=sized.slack))
        case _:
            return plain
    return plain.minimum(RdpCurve(ORDERS, values, curve.slack))


def own_orders(mechanisms: Iterable[Mechanism]) -> tuple[float, ...]:
    """Return orders at which `own_rdp` has an answer for all ``mechanisms``, at bearable cost."""
    listed = list(mechanisms)
    if any(isinstance(noise_of(mechanism), RoundedSkellam) for mechanism in listed):
        return (2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 32.0, 64.0)
    if any(rate_of(mechanism) < 1 for mechanism in listed):
        return tuple(float(a) for a in range(2, 65))
    return ORDERS


def own_rdp(mechanism: Mechanism, orders: tuple[float, ...]) -> RdpCurve | None:
    """Return the Rényi curve of one release's own law, None if there is no bound.

    Under sampling the orders must be integers. Rounding is left out there: it has no involution,
    and the dominating Gaussian costs less than Zhu and Wang's factor three.
    """
    noise, rate = noise_of(mechanism), rate_of(mechanism)
    divergence = _own(noise)
    if divergence is None or (rate < 1 and isinstance(noise, RoundedSkellam)):
        return None
    added = noise.adjacency is Adjacency.ADD_REMOVE
    if rate < 1 and added and isinstance(mechanism, Sampled):
        values = poisson_rdp(divergence, rate=rate, orders=_integers(orders), involution=True)
    else:  # joint quasi-convexity: no sampling makes it larger
        values = tuple(divergence(a) for a in orders)
    return RdpCurve(orders, values)


def paper_rdp(mechanism: Mechanism) -> RdpCurve | None:
    """Return the Rényi curve of the paper's accounting, None where it has no valid answer."""
    noise, rate = noise_of(mechanism), rate_of(mechanism)
    sized = isinstance(mechanism, SampledWithoutReplacement | SampledKnownSize)
    if sized or noise.adjacency is Adjacency.REPLACE_ONE:
        return None
    match noise:
        case Gaussian():
            values = gaussian_rdp(noise.sigma / noise.l2, rate=rate, orders=PAPER_ORDERS)
        case Skellam() | DiscreteGaussian() | DistributedDiscreteGaussian():
            bound = paper_divergence(noise)
            values = poisson_rdp(bound, rate=rate, orders=_integers(PAPER_ORDERS))
        case _:
            return None
    return RdpCurve(PAPER_ORDERS, values)


def paper_divergence(
    noise: Skellam | DiscreteGaussian | DistributedDiscreteGaussian,
) -> Callable[[float], float]:
    """Return the bound that the paper uses for this noise, as a function of an integer order."""
    match noise:
        case Skellam(variance=variance, l2=l2):
            l1 = l1_bound(noise)
            return lambda a: rdp_bound(variance, l1, l2, int(a))
        case DiscreteGaussian(sigma=sigma, l2=l2):
            return lambda a: discrete_gaussian_rdp(sigma, l2, a)
        case DistributedDiscreteGaussian(sigma_local=sigma, shares=n, l2=l2, dimension=d):
            l1 = l1_bound(noise)
            return lambda a: distributed_discrete_gaussian_rdp(
                sigma_local=sigma, shares=n, l1=l1, l2=l2, dimension=d, order=a
            )
        case _:
            assert_never(noise)


def _own(noise: NoiseMechanism) -> Callable[[float], float] | None:
    """Return the divergence of the law itself; only where it is cheap and can beat the Gaussian."""
    match noise:
        case Skellam(variance=variance, l2=l2) if variance <= 1e3 and l2 < 5:
            return lambda a: rdp_integer(variance, l2, a)
        case RoundedSkellam(variance=variance, l2=l2) if variance <= 2500:
            bound = min(l2, noise.coordinate_bound or l2)
            # The mixtures of two rounded vectors are no shift of one: replace-one has no bound.
            if noise.adjacency is Adjacency.REPLACE_ONE or bound > 4:
                return None
            return lambda a: l2 * l2 * rdp_rounded(variance, a, bound)
        case DiscreteGaussian() | DistributedDiscreteGaussian():
            return paper_divergence(noise)
        case DiscreteLaplace() | Laplace():
            epsilon = pure_epsilon(noise)
            return lambda a: pure_rdp(epsilon, a)
        case _:
            return None


def _integers(orders: tuple[float, ...]) -> list[int]:
    return [int(a) for a in orders]


def rdp_bound(variance: float, l1: float, l2: float, order: SupportsIndex) -> float:
    """Bound the Rényi divergence of the Skellam mechanism at an integer order (Corollary 3.3).

    a l2^2/(2 mu) + min(((2a - 1) l2^2 + 6 l1)/(4 mu^2), 3 l1/(2 mu)).
    """
    mu = _checks.positive("variance", variance)
    _check_norms(l1, l2)
    a = _checks.integer("order", order, 2, hint="the bound is proven at integer orders alone")
    square = l2 * l2
    extra = min(((2 * a - 1) * square + 6 * l1) / (4 * mu * mu), 3 * l1 / (2 * mu))
    return a * square / (2 * mu) + extra


def rdp_bound_scaled(
    variance: float, l1: float, l2: float, order: SupportsIndex, *, scale: float
) -> float:
    """Bound the divergence when everything is multiplied by ``scale`` first (Corollary 4.1)."""
    s = _checks.positive("scale", scale)
    return rdp_bound(s * s * _checks.positive("variance", variance), s * l1, s * l2, order)


def discrete_gaussian_rdp(sigma: float, l2: float, order: float) -> float:
    """Bound the divergence of the discrete Gaussian (Canonne, Kamath, Steinke 2020, theorem 4)."""
    a = _order(order)
    return a * (_checks.positive("l2", l2) / _checks.positive("sigma", sigma)) ** 2 / 2


def distributed_discrete_gaussian_rdp(
    *, sigma_local: float, shares: int, l1: float, l2: float, dimension: int, order: float
) -> float:
    """Bound the divergence of a sum of discrete Gaussians (Kairouz, Liu, Steinke 2021, theorem 1).

    The sum is not a discrete Gaussian; `sum_distance` is what the bound pays for that.
    """
    n = _checks.integer("shares", shares, 1)
    d = _checks.integer("dimension", dimension, 1)
    _check_norms(l1, l2)
    a, tau = _order(order), sum_distance(sigma_local, n)
    central = math.sqrt(n) * sigma_local
    x2, x1 = l2 / central, l1 / central
    return min(
        a / 2 * x2**2 + tau * d,
        a / 2 * (x2**2 + 2 * x1 * tau + tau**2 * d),
        a / 2 * (x2 + tau * math.sqrt(d)) ** 2,
    )


@lru_cache(maxsize=64)
def sum_distance(sigma_local: float, shares: int) -> float:
    """Return tau, the largest log-ratio of a sum of discrete Gaussians to one discrete Gaussian."""
    exponent = -2 * (math.pi * _checks.positive("sigma_local", sigma_local)) ** 2
    return 10 * math.fsum(math.exp(exponent * k / (k + 1)) for k in range(1, shares))


def pure_rdp(epsilon: float, order: float) -> float:
    """Bound the divergence of any epsilon-DP mechanism: that of randomised response, its worst.

    log(p^a (1-p)^(1-a) + (1-p)^a p^(1-a))/(a-1) with p = e^epsilon/(1 + e^epsilon).
    """
    a, x = _order(order), _checks.positive("epsilon", epsilon)
    # Both terms divided by the larger, p e^((a-1) epsilon).
    log_p = -math.log1p(math.exp(-x))
    smaller = math.log1p(math.exp(-(2 * a - 1) * x))
    return min(x, x + (log_p + smaller) / (a - 1))


def _check_norms(l1: float, l2: float) -> None:
    _checks.positive("l1", l1)
    _checks.positive("l2", l2)
    if not l2 <= l1 * (1 + 1e-12):
        raise DomainError(f"l2 must be at most l1 = {l1:g}, got {l2!r}")


def _order(order: float) -> float:
    a = _checks.number("order", order)
    if not 1 < a < math.inf:
        raise DomainError(f"order must be above 1 and finite, got {a!r}")
    return a
