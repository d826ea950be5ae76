"""The published sampler of the discrete Gaussian, one draw at a time on exact fractions.

Canonne, Kamath, Steinke 2020, "The discrete Gaussian for differential privacy", algorithms 1 to 3.
"""

from __future__ import annotations

from fractions import Fraction
from math import floor
from secrets import randbelow


def bernoulli_exp(gamma: Fraction) -> bool:
    """Return True with probability exp(-gamma) (algorithm 1)."""
    while gamma > 1:
        if not _bernoulli_exp_unit(Fraction(1)):
            return False
        gamma -= 1
    return _bernoulli_exp_unit(gamma)


def discrete_laplace(t: int) -> int:
    """Return a draw with probability proportional to exp(-|k| / t) (algorithm 2 with s = 1)."""
    while True:
        u = randbelow(t)
        if not bernoulli_exp(Fraction(u, t)):
            continue
        v = 0
        while bernoulli_exp(Fraction(1)):
            v += 1
        magnitude, negative = u + t * v, randbelow(2)
        if magnitude or not negative:
            return -magnitude if negative else magnitude


def discrete_gaussian(sigma: float) -> int:
    """Return a draw with probability proportional to exp(-k^2 / (2 sigma^2)) (algorithm 3)."""
    t = floor(sigma) + 1
    variance = Fraction(sigma) ** 2
    while True:
        y = discrete_laplace(t)
        if bernoulli_exp((abs(y) - variance / t) ** 2 / (2 * variance)):
            return y


def _bernoulli_exp_unit(gamma: Fraction) -> bool:
    k = 1
    while randbelow(gamma.denominator * k) < gamma.numerator:
        k += 1
    return k % 2 == 1
