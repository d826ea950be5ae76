"""The Rényi bounds of the paper (Agarwal, Kairouz, Liu 2021) and of those that it compares with.

Errata that matter here: the introduction prints Delta_2 where Corollary 3.3 has its square.
"""

from __future__ import annotations

import math
from typing import SupportsIndex

from skellam import _checks
from skellam.errors import DomainError


def rdp_bound(variance: float, l1: float, l2: float, order: SupportsIndex) -> float:
    """Bound the Rényi divergence of the Skellam mechanism at an integer order (Corollary 3.3).

    a l2^2/(2 mu) + min(((2a - 1) l2^2 + 6 l1)/(4 mu^2), 3 l1/(2 mu)).
    """
    mu = _checks.positive("variance", variance)
    _check_norms(l1, l2)
    a = _checks.integer("order", order, 2, way_out="the bound is proven at integer orders alone")
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
