"""Quantile gaps and divergences of the Skellam law to sixty digits, by their definitions."""

from itertools import pairwise

import mpmath

from oracles import integer_laws


def whole_law(variance, reach):
    """P(X = k), |k| <= reach, as a dictionary."""
    half = integer_laws.skellam(variance, reach)
    return {k: half[abs(k)] for k in range(-reach, reach + 1)}


def survival(variance, reach):
    """P(X >= k), 0 <= k <= reach, summed from three times as far."""
    half = integer_laws.skellam(variance, 3 * reach)
    total, found = mpmath.mpf(0), []
    with mpmath.workdps(integer_laws.DIGITS):
        for p in reversed(half):
            total += p
            found.append(total)
    return found[::-1][: reach + 1]


def quantile(tail, guess=None):
    """z with P(N(0, 1) >= z) = tail."""
    with mpmath.workdps(integer_laws.DIGITS):
        if guess is None:
            guess = mpmath.sqrt(-2 * mpmath.log(tail)) if tail < 0.1 else mpmath.mpf(1) / 2
        return mpmath.findroot(
            lambda z: mpmath.log(mpmath.erfc(z / mpmath.sqrt(2)) / 2) - mpmath.log(tail), guess
        )


def gaps(variance, reach):
    """The quantile gaps of the atoms 0, 1, ..., reach - 1."""
    tails = survival(variance, reach)
    with mpmath.workdps(integer_laws.DIGITS):
        z = [quantile(tail) for tail in tails[1:]]
        return [2 * z[0]] + [b - a for a, b in pairwise(z)]


def renyi(variance, shift, order, reach):
    """The divergence of the given order between the law shifted and the law itself."""
    law = whole_law(variance, reach)
    with mpmath.workdps(50):
        a = mpmath.mpf(order)
        total = mpmath.fsum(
            law[x - shift] ** a * law[x] ** (1 - a) for x in range(shift - reach, reach + 1)
        )
        return mpmath.log(total) / (a - 1)
