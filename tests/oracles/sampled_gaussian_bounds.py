"""Proven bounds on epsilon after many rounds of a Poisson sampled Gaussian, at thirty digits.

Nothing is put on a grid of losses and nothing is transformed: each bound needs a few moments of the
loss of one round. Let K be the logarithm of E exp(theta L) of the composed loss L, and let L have
the mean e and the deviation s under the law tilted by theta. With w(x) = exp(-theta x)
(1 - exp(-x)) for x > 0, and 0 elsewhere,

    delta(e) = exp(K - theta e) E w(L - e)      (under the tilted law).

Were L normal, the expectation would be (M(theta s) - M((theta + 1) s)) phi(0), with Mills' ratio M.
By the theorem of Berry and Esseen its distribution function is off by at most 0.33554 (rho + 0.415)
/sqrt(n) (Shevtsova 2011), where rho is the third absolute moment of one standardised loss, and w
rises to its maximum and falls back to 0: so the expectation is off by at most twice that maximum
times as much. Where rounds are few or losses rare the upper bound is that of Canonne, Kamath,
Steinke 2020 (proposition 12): w is at most its maximum.
"""

from typing import NamedTuple

import mpmath
from mpmath import mpf

DIGITS = 30
STEP = mpf(1) / 16
"""The trapezoidal rule errs by e^(-2 pi y/STEP), y the distance of the next singularity: at least
pi z, so e^-94 at the multiplier z = 0.3."""
REACH = 16
MAX_SHIFT = 24
"""Tilts move a law by up to this many deviations; beyond REACH more there is e^-128 of it."""


class Tilted(NamedTuple):
    """A composed loss under a tilt: logarithm of the moment, mean, deviation, normal error."""

    log_moment: mpf
    mean: mpf
    deviation: mpf
    error: mpf


def bounds(rate, z, rounds, delta):
    """Return a lower and an upper bound on the least epsilon at ``delta``."""
    with mpmath.workdps(DIGITS):
        sides = [_Direction(rate, z, rounds, side) for side in ("remove", "add")]
        lower = max(side.lower(mpf(delta)) for side in sides)
        upper = max(side.upper(mpf(delta)) for side in sides)
    return float(lower), float(upper)


class _Direction:
    def __init__(self, rate, z, rounds, side):
        q, shift = mpf(rate), 1 / mpf(z)
        count = int((2 * REACH + MAX_SHIFT) / STEP)
        self.rounds, self.losses, self.masses = rounds, [], []
        # Losses end at log(1 - q), or minus that.
        self.end = mpmath.log1p(-q) * (1 if side == "remove" else -1) if q < 1 else mpmath.inf
        for i in range(count + 1):
            t = STEP * i - REACH
            loss = mpmath.log1p(q * mpmath.expm1(shift * (t - shift / 2)))
            normal = STEP * mpmath.npdf(t)
            self.losses.append(loss if side == "remove" else -loss)
            self.masses.append(normal * mpmath.exp(loss) if side == "remove" else normal)

    def tilted(self, theta):
        weights = [m * mpmath.exp(theta * x) for m, x in zip(self.masses, self.losses, strict=True)]
        total = mpmath.fsum(weights)
        mean = mpmath.fdot(weights, self.losses) / total
        squares = [(x - mean) ** 2 for x in self.losses]
        variance = mpmath.fdot(weights, squares) / total
        third = mpmath.fdot(weights, [(x - mean) ** 3 for x in self.losses]) / total
        fourth = mpmath.fdot(weights, [x * x for x in squares]) / total
        # |x|^3 <= (a x^2 + x^4/a)/2, and <= x^3 + 2 b x^2 where x >= -b (mirrored: where x <= b).
        end_term = 2 * abs(mean - self.end) * variance
        absolute = min(mpmath.sqrt(variance * fourth), abs(third) + end_term)
        n, rho = self.rounds, absolute / variance**1.5
        error = mpf("0.33554") * (rho + mpf("0.415")) / mpmath.sqrt(n)
        return Tilted(n * mpmath.log(total), n * mean, mpmath.sqrt(n * variance), error)

    def lower(self, delta):
        """Return an epsilon whose delta is more than ``delta``, 0 where none was found."""
        return self._crossing(delta, -1) or mpf(0)

    def upper(self, delta):
        """Return an epsilon whose delta is at most ``delta``."""
        found = self._crossing(delta, 1)
        chernoff = self._chernoff(delta)
        return chernoff if found is None else min(found, chernoff)

    def _log_delta(self, theta, sign):
        """Return epsilon = mean under the tilt, and a bound on log delta there."""
        found = self.tilted(theta)
        normal = _mills(theta * found.deviation) - _mills((theta + 1) * found.deviation)
        expected = normal * mpmath.npdf(0) + sign * 2 * _max_weight(theta) * found.error
        if expected <= 0:
            return found.mean, -mpmath.inf
        return found.mean, found.log_moment - theta * found.mean + mpmath.log(expected)

    def _crossing(self, delta, sign):
        """Return the epsilon at which the bound passes ``delta``, from the side that is proven."""
        goal, (low, high) = mpmath.log(delta), self._bracket()
        for _ in range(16):
            middle = mpmath.sqrt(low * high)
            if self._log_delta(middle, sign)[1] > goal:
                low = middle
            else:
                high = middle
        epsilon, found = self._log_delta(low if sign < 0 else high, sign)
        proven = found > goal if sign < 0 else found <= goal
        return epsilon if proven and epsilon > 0 else None

    def _chernoff(self, delta):
        low, high = map(mpmath.log, self._bracket())

        def bound(log_theta):
            theta = mpmath.exp(log_theta)
            total = self.tilted(theta).log_moment + mpmath.log(_max_weight(theta))
            return (total - mpmath.log(delta)) / theta

        golden = (mpmath.sqrt(5) - 1) / 2
        for _ in range(12):
            width = golden * (high - low)
            if bound(high - width) < bound(low + width):
                high = low + width
            else:
                low = high - width
        return bound((low + high) / 2)

    def _bracket(self):
        spread = self.tilted(mpf(0)).deviation
        return mpf("0.01") / spread, 30 / spread


def _max_weight(theta):
    return theta**theta / (theta + 1) ** (theta + 1)


def _mills(x):
    return mpmath.ncdf(-x) / mpmath.npdf(x)
