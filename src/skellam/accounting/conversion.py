"""From one way of stating privacy to (epsilon, delta), always rounded to the private side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from skellam import _checks

_FAINTEST = 1e-300
_ROUND_OFF = 1e-9
"""Relative error allowed for in closed forms of log_ndtr, far above what float64 commits."""


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the least delta of a mu-GDP mechanism at ``epsilon`` (Balle and Wang 2018, theorem 8).

    With mu = l2/sigma this is the exact privacy profile of the Gaussian mechanism.
    """
    from scipy.special import log_ndtr

    _checks.positive("mu", mu)
    _checks.number("epsilon", epsilon)
    if epsilon == math.inf:
        return 0.0
    upper = float(log_ndtr(mu / 2 - epsilon / mu))
    ratio = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu)) - upper
    delta = -math.exp(upper) * math.expm1(min(ratio, 0.0))
    # The two terms cancel: what is lost is relative to the larger one's logarithm.
    lost = math.exp(upper) * 4e-16 * (1 + abs(upper) + abs(epsilon))
    return min(1.0, delta * (1 + _ROUND_OFF) + lost + _FAINTEST)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the least epsilon >= 0 of a mu-GDP mechanism at ``delta``, from above."""
    _checks.open_unit("delta", delta)
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    # delta(epsilon) < exp(-x^2/2) with x = epsilon/mu - mu/2.
    high = mu * (mu / 2 + math.sqrt(2 * math.log(1 / delta))) * (1 + _ROUND_OFF)
    return least(lambda epsilon: gaussian_delta(mu, epsilon) <= delta, 0.0, high)


def gaussian_sigma(epsilon: float, delta: float, l2: float) -> float:
    """Return the analytic Gaussian mechanism's least sigma, from above (Balle and Wang 2018)."""
    _checks.positive("epsilon", epsilon)
    _checks.open_unit("delta", delta)
    _checks.positive("l2", l2)
    # mu^2/2 + mu x = epsilon is private at x = sqrt(2 log(1/delta)): see gaussian_epsilon.
    x = math.sqrt(2 * math.log(1 / delta))
    private = (math.sqrt(x * x + 2 * epsilon) + x) / (2 * epsilon)
    return l2 * least(lambda z: gaussian_delta(1 / z, epsilon) <= delta, 0.0, private * 1.001)


def rdp_epsilon(orders: Sequence[float], rdp: Sequence[float], delta: float) -> float:
    """Return the least epsilon over the orders (Canonne, Kamath, Steinke 2020, proposition 12)."""
    _checks.open_unit("delta", delta)
    a, r = _orders(orders, rdp)
    epsilons = r - (math.log(delta) + np.log(a)) / (a - 1) + np.log1p(-1 / a)
    return max(0.0, float(np.min(epsilons)))


def rdp_delta(orders: Sequence[float], rdp: Sequence[float], epsilon: float) -> float:
    """Return the least delta over the orders: `rdp_epsilon` solved for delta."""
    _checks.number("epsilon", epsilon)
    a, r = _orders(orders, rdp)
    logs = (a - 1) * (r - epsilon + np.log1p(-1 / a)) - np.log(a)
    return min(1.0, math.exp(min(0.0, float(np.min(logs)))))


def epsilon_with_distance(curve: Callable[[float], float], delta: float, distance: float) -> float:
    """Return the least epsilon whose total delta, distance * (1 + e^epsilon) added, is ``delta``.

    ``curve`` gives the epsilon of a delta without it. Infinite where the distance leaves nothing.
    """
    _checks.open_unit("delta", delta)
    _checks.non_negative("distance", distance)
    if not distance:
        return curve(delta)
    epsilon, margin = _charged(curve, delta, distance, 0.0), 1e-7
    while math.isfinite(epsilon):
        # A larger epsilon leaves less delta, so this climbs to the least fixed point. Charging for
        # a little more than the current epsilon makes what it returns private, and a margin that
        # grows makes it end.
        charged = epsilon * (1 + margin) + 1e-12
        following = _charged(curve, delta, distance, charged)
        if following <= charged:
            return following
        epsilon, margin = following, 2 * margin
    return math.inf


def _charged(
    curve: Callable[[float], float], delta: float, distance: float, epsilon: float
) -> float:
    # exp overflows above 709: no distance that float64 can hold survives that.
    left = delta - distance * (1 + math.exp(epsilon)) if epsilon < 700 else 0.0
    return curve(left) if left > 0 else math.inf


def _orders(
    orders: Sequence[float], rdp: Sequence[float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.asarray(orders, dtype=np.float64), np.asarray(rdp, dtype=np.float64)


def least(private: Callable[[float], bool], low: float, high: float) -> float:
    """Return where ``private`` begins, by bisection down to neighbouring floats; ``high`` is."""
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if private(middle) else (middle, high)
    return high
