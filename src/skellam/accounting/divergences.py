"""Rényi curves of mechanisms: as the dominating Gaussian, by their own law, and as in the paper."""

from __future__ import annotations

from collections.abc import Callable
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


def dominating_rdp(mechanism: Mechanism) -> RdpCurve:
    """Return the Rényi curve of the Gaussian that dominates one release."""
    match mechanism:
        case Sampled(noise, rate) if noise.adjacency is Adjacency.ADD_REMOVE:
            curve = dominating(noise)
            return RdpCurve(
                ORDERS, gaussian_rdp(1 / curve.mu, rate=rate, orders=ORDERS), curve.slack
            )
        case SampledWithoutReplacement(noise, cohort, population):
            curve = dominating(noise)
            values = fixed_size_gaussian_rdp(
                1 / curve.mu, cohort=cohort, population=population, orders=ORDERS
            )
            return curve.rdp().minimum(RdpCurve(ORDERS, values, curve.slack))
        case Sampled(noise):
            return dominating(noise).rdp()
        case _:
            return dominating(mechanism).rdp()


def own_rdp(mechanism: Mechanism, orders: tuple[float, ...]) -> RdpCurve | None:
    """Return the Rényi curve of one release's own law, None if there is no bound.

    Under sampling the orders must be whole.
    """
    noise, rate = noise_of(mechanism), rate_of(mechanism)
    divergence = _own(noise)
    if divergence is None:
        return None
    if rate == 1 or noise.adjacency is Adjacency.REPLACE_ONE:
        return RdpCurve(orders, tuple(divergence(a) for a in orders), noise.sampler_distance)
    involution = not isinstance(noise, RoundedSkellam)
    values = poisson_rdp(divergence, rate=rate, orders=_whole(orders), involution=involution)
    return RdpCurve(orders, values, noise.sampler_distance)


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
    return RdpCurve(PAPER_ORDERS, values, noise.sampler_distance)


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
    match noise:
        case DiscreteGaussian() | DistributedDiscreteGaussian():
            return paper_divergence(noise)
        case DiscreteLaplace() | Laplace():
            epsilon = pure_epsilon(noise)
            return lambda a: paper.pure_rdp(epsilon, a)
        case _:
            return None


def _whole(orders: tuple[float, ...]) -> list[int]:
    return [int(a) for a in orders]
