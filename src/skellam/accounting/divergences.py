"""Rényi curves of mechanisms: as the dominating Gaussian, by their own law, and as in the paper."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import assert_never

from skellam.accounting import paper
from skellam.accounting.amplification import fixed_size_gaussian_rdp, gaussian_rdp, poisson_rdp
from skellam.accounting.curves import ORDERS, PAPER_ORDERS, RdpCurve
from skellam.accounting.domination import dominating, pure_epsilon
from skellam.accounting.mechanisms import (
    Adjacency,
    DiscreteGaussian,
    DiscreteLaplace,
    DistributedDiscreteGaussian,
    Gaussian,
    Laplace,
    Mechanism,
    Noise,
    RoundedSkellam,
    Sampled,
    SampledWithoutReplacement,
    Skellam,
    l1_bound,
    noise_of,
    rate_of,
)
from skellam.accounting.renyi import rdp_integer, rdp_rounded


def dominating_rdp(mechanism: Mechanism) -> RdpCurve:
    """Return the Rényi curve of the Gaussian that dominates one release.

    Amplified under Poisson sampling; for cohorts of fixed size only where the noise is Gaussian, as
    the theorem compares three data sets and domination two.
    """
    noise, rate = noise_of(mechanism), rate_of(mechanism)
    curve = dominating(noise)
    plain, z = curve.rdp(), 1 / curve.mu
    match mechanism:
        case Sampled() if noise.adjacency is Adjacency.ADD_REMOVE:
            values = gaussian_rdp(z, rate=rate, orders=ORDERS)
        case SampledWithoutReplacement(Gaussian(), cohort, population):
            values = fixed_size_gaussian_rdp(z, cohort=cohort, population=population, orders=ORDERS)
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

    Under sampling the orders must be whole. Rounding is left out there: its pair has no involution,
    and the dominating Gaussian costs less than Zhu and Wang's factor three.
    """
    noise, rate = noise_of(mechanism), rate_of(mechanism)
    divergence = _own(noise)
    if divergence is None or (rate < 1 and isinstance(noise, RoundedSkellam)):
        return None
    if rate == 1 or noise.adjacency is Adjacency.REPLACE_ONE:
        values = tuple(divergence(a) for a in orders)
    else:
        values = poisson_rdp(divergence, rate=rate, orders=_whole(orders), involution=True)
    return RdpCurve(orders, values)


def paper_rdp(mechanism: Mechanism) -> RdpCurve | None:
    """Return the Rényi curve of the paper's accounting, None where it has no valid answer."""
    noise, rate = noise_of(mechanism), rate_of(mechanism)
    if isinstance(mechanism, SampledWithoutReplacement) or noise.adjacency is Adjacency.REPLACE_ONE:
        return None
    match noise:
        case Gaussian():
            values = gaussian_rdp(noise.sigma / noise.l2, rate=rate, orders=PAPER_ORDERS)
        case Skellam() | DiscreteGaussian() | DistributedDiscreteGaussian():
            bound = paper_divergence(noise)
            values = poisson_rdp(bound, rate=rate, orders=_whole(PAPER_ORDERS))
        case _:
            return None
    return RdpCurve(PAPER_ORDERS, values)


def paper_divergence(
    noise: Skellam | DiscreteGaussian | DistributedDiscreteGaussian,
) -> Callable[[float], float]:
    """Return the bound that the paper uses for this noise, as a function of a whole order."""
    match noise:
        case Skellam(variance=variance, l2=l2):
            l1 = l1_bound(noise)
            return lambda a: paper.rdp_bound(variance, l1, l2, int(a))
        case DiscreteGaussian(sigma=sigma, l2=l2):
            return lambda a: paper.discrete_gaussian_rdp(sigma, l2, a)
        case DistributedDiscreteGaussian(sigma_local=sigma, shares=n, l2=l2, dimension=d):
            l1 = l1_bound(noise)
            return lambda a: paper.distributed_discrete_gaussian_rdp(
                sigma_local=sigma, shares=n, l1=l1, l2=l2, dimension=d, order=a
            )
        case _:
            assert_never(noise)


def _own(noise: Noise) -> Callable[[float], float] | None:
    """Return the divergence of the law itself; only where it is cheap and can beat the Gaussian."""
    match noise:
        case Skellam(variance=variance, l2=l2) if variance <= 1e3 and l2 < 5:
            return lambda a: rdp_integer(variance, l2, a)
        case RoundedSkellam(variance=variance, l2=l2) if variance <= 2500:
            largest = min(l2, noise.largest or l2)
            # The mixtures of two rounded vectors are no shift of one: replace-one has no bound.
            if noise.adjacency is Adjacency.REPLACE_ONE or largest > 4:
                return None
            return lambda a: l2 * l2 * rdp_rounded(variance, a, largest)
        case DiscreteGaussian() | DistributedDiscreteGaussian():
            return paper_divergence(noise)
        case DiscreteLaplace() | Laplace():
            epsilon = pure_epsilon(noise)
            return lambda a: paper.pure_rdp(epsilon, a)
        case _:
            return None


def _whole(orders: tuple[float, ...]) -> list[int]:
    return [int(a) for a in orders]
