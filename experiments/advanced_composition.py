"""Advanced composition, with which the paper (Agarwal, Kairouz, Liu 2021) compares its bounds.

The guarantees of single rounds, and the theorems that compose them.
"""

from __future__ import annotations

import math

import numpy as np

from skellam import _checks
from skellam.accounting.curves import bisected_minimum

_SPLIT = 0.5
"""The share of delta that goes to the rounds; the rest goes to their composition."""


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
