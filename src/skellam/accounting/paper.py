"""The bounds of the paper (Agarwal, Kairouz, Liu 2021) and of those that it compares with.

Rényi divergences, and the per-round guarantees that it feeds into advanced composition.

Errata that matter here: the introduction prints Delta_2 where Corollary 3.3 has its square.
"""

from __future__ import annotations

import math
from typing import SupportsIndex

import numpy as np

from skellam import _checks
from skellam.accounting.curves import bisected_minimum
from skellam.errors import DomainError

_SPLIT = 0.5
"""The share of delta that goes to the rounds; the rest goes to their composition."""


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


def direct_skellam_delta(variance: float, shift: int, epsilon: float) -> float:
    """Bound delta of one scalar Skellam release at ``epsilon`` (Valovich and Aldà 2017, theorem 5).

    With x = epsilon/shift: I_(k-1)/I_k(mu) <= exp(asinh(k/mu)) (Segura 2011) keeps the loss below
    epsilon up to mu sinh(x), and Chernoff's bound on the shifted tail is
    exp(epsilon - mu (1 - cosh x + x sinh x)).
    """
    mu = _checks.positive("variance", variance)
    x = _checks.positive("epsilon", epsilon) / _checks.integer("shift", shift, 1)
    # cosh overflows beyond 700, where delta is nothing at any variance that is worth a name.
    y = min(x, 700.0)
    exponent = epsilon - mu * (y * math.sinh(y) - 2 * math.sinh(y / 2) ** 2)
    return min(1.0, math.exp(min(0.0, exponent)))


def direct_skellam_epsilon(variance: float, shift: int, delta: float) -> float:
    """Return the least epsilon of `direct_skellam_delta` at ``delta``, from above."""
    _checks.open_unit("delta", delta)
    high = 1.0
    while direct_skellam_delta(variance, shift, high) > delta:
        high *= 2
    return bisected_minimum(
        lambda e: e > 0 and direct_skellam_delta(variance, shift, e) <= delta, 0.0, high
    )


def kairouz_oh_viswanath(epsilon: float, delta: float, *, rounds: int, total: float) -> float:
    """Return epsilon of ``rounds`` (epsilon, delta)-DP releases at delta ``total``: the optimum.

    Kairouz, Oh, Viswanath 2015, theorem 3.3: the profile of that many randomised responses.
    """
    from scipy.special import gammaln

    x, n = _checks.positive("epsilon", epsilon), _checks.integer("rounds", rounds, 1)
    left = _left(delta, n, total)
    if not left > 0:
        return math.inf
    i = np.arange(n + 1)
    log_choose = gammaln(n + 1) - gammaln(i + 1) - gammaln(n - i + 1)
    loss = (n - 2 * i) * x
    mass = np.exp(log_choose + (n - i) * x - n * np.logaddexp(0.0, x))

    def profile(e: float) -> float:
        above = loss > e
        return float(np.sum(mass[above] * -np.expm1(e - loss[above]))) * (1 + 1e-9)

    return bisected_minimum(lambda e: profile(e) <= left, 0.0, n * x)


def dwork_rothblum_vadhan(epsilon: float, delta: float, *, rounds: int, total: float) -> float:
    """Return epsilon of ``rounds`` (epsilon, delta)-DP releases at delta ``total``.

    Dwork, Rothblum, Vadhan 2010, theorem III.3, or plain addition where that is less.
    """
    x, n = _checks.positive("epsilon", epsilon), _checks.integer("rounds", rounds, 1)
    left = _checks.open_unit("total", total) - n * _checks.between("delta", delta, 0, 1)
    if not left > 0:
        return math.inf
    advanced = x * math.sqrt(2 * n * math.log(1 / left)) + n * x * math.expm1(min(x, 700.0))
    return min(advanced, n * x)


def direct_skellam(
    variance: float, shift: int, *, rounds: int, delta: float
) -> tuple[float, float]:
    """Return epsilon of direct Skellam accounting by Kairouz-Oh-Viswanath and by Dwork et al."""
    n = _checks.integer("rounds", rounds, 1)
    each = _SPLIT * _checks.open_unit("delta", delta) / n
    epsilon = direct_skellam_epsilon(variance, shift, each)
    return (
        kairouz_oh_viswanath(epsilon, each, rounds=n, total=delta),
        dwork_rothblum_vadhan(epsilon, each, rounds=n, total=delta),
    )


def composed_laplace(scale: float, l1: float, *, rounds: int, delta: float) -> tuple[float, float]:
    """Return epsilon of (discrete) Laplace releases, pure each, by the same two rules."""
    epsilon = _checks.positive("l1", l1) / _checks.positive("scale", scale)
    return (
        kairouz_oh_viswanath(epsilon, 0.0, rounds=rounds, total=delta),
        dwork_rothblum_vadhan(epsilon, 0.0, rounds=rounds, total=delta),
    )


def _left(delta: float, rounds: int, total: float) -> float:
    """Solve 1 - (1 - delta)^rounds (1 - left) = total for what is left to composition."""
    _checks.open_unit("total", total)
    kept = math.exp(rounds * math.log1p(-_checks.between("delta", delta, 0, 1 - 1e-16)))
    return (1 - (1 - total) / kept) * (1 - 1e-9) if kept else 0.0
