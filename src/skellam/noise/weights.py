"""Weights: integers proportional to a law on the integers, with a proven distance from it.

A law symmetric about zero is given by integers ``w[0], w[1], ..., w[M]``: the weight of ``k``
is ``w[|k|]``. No floating-point exponential, logarithm or Bessel function enters a weight.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from itertools import pairwise, takewhile

from skellam.errors import CertificateError

_SMALLEST = 132
"""Weights below ``2**-_SMALLEST`` of the central one are cut off: a 128-bit CDF has no room."""
_START_TAIL = 172
"""The Skellam recurrence starts where the tail is below ``2**-_START_TAIL``."""
_GUARD = 192
_FIXED = 320


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of ``0, 1, ..., M`` and the total variation of their law from the ideal one."""

    values: list[int]
    total_variation: Fraction


def skellam(variance: float | Fraction) -> Weights:
    """Return weights of the symmetric Skellam law, ``w[k]`` proportional to ``I_k(variance)``.

    ``I[k-1] = I[k+1] + (2k/v) I[k]`` runs backwards from K on integers, started at w[K+1] = w[K].
    Let r[k] = I[k]/I[k-1] (in (0, 1), for I decreases in its order) and R[k] = w[k]/w[k-1].

    * Start and division. Floor division makes w[k-1] = exact * (1 - t) with 0 <= t <= 2**-G, so
      r[k]/R[k] = (1 - t)(1 + (R[k+1] - r[k+1]) r[k]). With D[k] = |r[k]/R[k] - 1| and R, r <= 1
      this gives D[K] <= 1 + 2t and D[k] <= D[k+1] R[k+1] + 2t, hence
      D[k] <= w[K]/w[k] + 2K 2**-G for every k.
    * Let q[k] = I[k]/I[0] and p[k] = w[k]/w[0], so q[k]/p[k] is a product of k factors 1 +- D[j].
      If the sum of D[1..M] is at most 1, then |q[k] - p[k]| <= 2 p[k] (D[1] + ... + D[k]); w falls,
      so the sum of p[k] over j <= k <= M is at most M p[j], and the L1 distance on [-M, M] is at
      most 4 M**2 p[K] + 8 M K 2**-G sum(p). Normalising costs no more than dividing by sum(p).
    * Truncation to [-M, M] costs the tail P(|X| > M), bounded by Chernoff.
    """
    numerator, denominator = variance.as_integer_ratio()
    rounded = float(variance)
    start = bisect_left(
        range(1 << 24), _START_TAIL * math.log(2), key=lambda t: _chernoff_exponent(t, rounded)
    )
    falling = [1 << _GUARD, 1 << _GUARD]
    for k in range(start, 0, -1):
        falling.append(falling[-2] + 2 * k * denominator * falling[-1] // numerator)
    weights = falling[:0:-1]
    if not all(a >= b for a, b in pairwise(weights)):
        raise CertificateError(f"the weights for variance {variance!r} do not fall")
    values = list(takewhile((weights[0] >> _SMALLEST).__lt__, weights))
    M = len(values) - 1
    relative = Fraction(weights[start], values[-1]) + Fraction(2 * start, 1 << _GUARD)
    if not M * relative <= 1:
        raise CertificateError(f"the recurrence for variance {variance!r} starts too near")
    distance = Fraction(4 * M * M * weights[start], _mass(values)) + Fraction(
        8 * M * start, 1 << _GUARD
    )
    # The exponent, at most 300, is half or more of either of its terms: 0.1 % covers its rounding
    # and that of the variance.
    tail = 2 * Fraction(math.exp(-_chernoff_exponent(M + 1, rounded))) * Fraction(1001, 1000)
    return Weights(values, distance + tail)


def discrete_gaussian(sigma: float) -> Weights:
    """Return weights of the discrete Gaussian law, proportional to ``exp(-k^2 / (2 sigma^2))``."""
    variance = Fraction(sigma) ** 2
    return _fixed_point(first=_exp_minus(1 / (2 * variance)), quotient=_exp_minus(1 / variance))


def discrete_laplace(scale: float) -> Weights:
    """Return weights of the discrete Laplace law, proportional to ``exp(-|k| / scale)``."""
    return _fixed_point(first=_exp_minus(1 / Fraction(scale)), quotient=1 << _FIXED)


def _fixed_point(first: int, quotient: int) -> Weights:
    """Return weights with w[0] = 1, w[k+1] = w[k] f[k], f[0] = first, f[k+1] = f[k] quotient.

    Everything is at most 1 in fixed point with unit u = 2**-F. ``first`` and ``quotient`` are good
    to 2u and a product is floored, so f[k] is good to (3k + 2)u and w[k] to 3(k + 1)**2 u: over
    all k below M, twice, less than 6(M + 1)**3 u. From M on the factors only fall, so the tail is
    at most the geometric w[M]/(1 - f[M]). As w[0] = 1 the normaliser is at least 1.
    """
    one = 1 << _FIXED
    values, weight, factor = [], one, first
    while weight > one >> _SMALLEST:
        values.append(weight)
        weight, factor = weight * factor >> _FIXED, factor * quotient >> _FIXED
    M = len(values)
    error = Fraction(6 * (M + 1) ** 3, one)
    ratio = Fraction(factor + 3 * M + 5, one)
    tail = 2 * (Fraction(weight, one) + error) / (1 - ratio)
    return Weights(values, error + tail)


def _exp_minus(x: Fraction) -> int:
    """Return exp(-x) in fixed point, within two units.

    Decimal arithmetic rounds correctly, exp included; 120 digits for a value of at most 1 whose
    argument is at most 320 leave an error far below one unit of 2**-320.
    """
    if x > _FIXED:
        return 0
    context = Context(prec=120)
    argument = context.divide(Decimal(-x.numerator), Decimal(x.denominator))
    return math.floor(Fraction(context.exp(argument)) * (1 << _FIXED))


def _mass(weights: list[int]) -> int:
    return 2 * sum(weights) - weights[0]


def _chernoff_exponent(t: float, v: float) -> float:
    """Return a with P(|X| >= t) <= 2 exp(-a) for X of the Skellam law with variance v."""
    return t * math.asinh(t / v) - t * t / (math.hypot(t, v) + v)
