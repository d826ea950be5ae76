"""Privacy curves: values that add under composition and give epsilon for delta, from above.

Every curve carries `Slack`: what lies outside of it (uncertified tails, the error of the sampler).
The lemmas are proven in docs/maths/slack.md. A rare event costs its probability once, whatever
epsilon is. A total variation costs ``1 + e^epsilon`` times itself; where probabilities are close at
every integer, that can be had for a rare event and a hair of epsilon (``stretch``) instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.accounting.laws import Law
from skellam.errors import DomainError

ORDERS: tuple[float, ...] = (
    1.05,
    *(1 + x / 10 for x in range(1, 30)),
    *(float(a) for a in (*range(4, 65), 72, 80, 96, 112, 128, 160, 192, 256, 384, 512, 1024)),
)
"""Orders for tight RDP, fractional and integer."""

PAPER_ORDERS: tuple[float, ...] = (*(float(a) for a in range(2, 129)), 256.0)
"""The paper's orders: 2..128 and 256."""

Values = NDArray[np.float64]

_FAINTEST = 1e-300
_ROUND_OFF = 1e-10
"""Relative error allowed for in closed forms, far above what float64 commits."""
_STRETCH = 1e-8
_NARROW = 0.5
_NODES = np.array([1.0, 0.8717401485096066, 0.5917001814331423, 0.20929921790247888])
_WEIGHTS = np.array([1 / 28, 0.21070422714350604, 0.3411226924835044, 0.4124587946587038])
_LOBATTO = np.concatenate((_NODES, -_NODES)), np.concatenate((_WEIGHTS, _WEIGHTS))


@dataclass(frozen=True, slots=True)
class Slack:
    """Masses that a curve leaves out; they add under composition."""

    rare: float = 0.0
    """Probability of an event outside of which the curve is exact."""
    distance: float = 0.0
    """Total variation from the laws that the curve describes."""
    stretch: float = 0.0
    """What epsilon grows by."""

    def __post_init__(self) -> None:
        _checks.non_negative("rare", self.rare)
        _checks.non_negative("distance", self.distance)
        _checks.non_negative("stretch", self.stretch)

    def __add__(self, other: Slack) -> Slack:
        return Slack(
            self.rare + other.rare, self.distance + other.distance, self.stretch + other.stretch
        )

    def __mul__(self, rounds: int) -> Slack:
        return Slack(self.rare * rounds, self.distance * rounds, self.stretch * rounds)

    def charge(self, epsilon: float) -> float:
        """Return what is added to delta at ``epsilon``, at most 1."""
        if not self.distance:
            return min(1.0, self.rare)
        return min(1.0, self.rare + self.distance * (1 + math.exp(min(epsilon, 700.0))))

    def delta(self, curve: Callable[[float], float], epsilon: float) -> float:
        """Return the total delta at ``epsilon``, ``curve`` giving that of the ideal laws."""
        return min(1.0, curve(epsilon - self.stretch) + self.charge(epsilon))

    def epsilon(self, curve: Callable[[float], float], delta: float) -> float:
        """Return an epsilon whose total delta is ``delta``; infinite where nothing is left."""
        left = _checks.open_unit("delta", delta) - self.rare
        if not left > 0:
            return math.inf
        ideal = epsilon_with_distance(curve, left, self.distance * math.exp(self.stretch))
        return ideal + self.stretch


NO_SLACK = Slack()


def slack_by_atoms(
    law: Law, *, dimension: int, shift: float, distance: float, atom_error: float
) -> Slack:
    """Return what a sampler costs without the factor e^epsilon of its distance (lemma 2).

    ``distance`` is the total variation of a release's noise, ``atom_error`` the largest error of a
    probability of one coordinate's noise, and ``shift`` bounds how far a user moves a coordinate.
    """
    cost = _atom_cost(law, math.ceil(shift) + 1, atom_error)
    rare = distance + 4 * dimension / _STRETCH * cost
    return Slack(rare=min(1.0, rare), stretch=_STRETCH)


@lru_cache(maxsize=8)
def _atom_cost(law: Law, shift: int, atom_error: float) -> float:
    """Bound E[min(1, 2a/p(Y))] for Y a draw of the law moved by ``shift`` (lemma 2's M)."""
    left = law.log_pmf[::-1] if law.shift else law.log_pmf[:0:-1]
    log_p = np.concatenate((left, law.log_pmf))
    if shift >= len(law.log_survival):
        return 1.0
    capped = np.minimum(0.0, math.log(2 * atom_error) - log_p[shift:])
    inside = float(np.exp(log_p[: len(log_p) - shift] + capped).sum())
    beyond = math.exp(law.log_survival[len(law.log_survival) - shift])
    return min(1.0, (inside + beyond) * (1 + 1e-9) + 1e-300)


class Curve(Protocol):
    """A privacy guarantee as a function; composition is ``+`` and ``* rounds``."""

    @property
    def slack(self) -> Slack:
        """What the curve leaves out."""

    def epsilon(self, delta: float) -> float:
        """Return an epsilon at which the total delta is at most ``delta``, or infinity."""

    def delta(self, epsilon: float) -> float:
        """Return an upper bound on the total delta at ``epsilon``."""

    def __add__(self, other: Self) -> Self: ...

    def __mul__(self, rounds: int) -> Self: ...


@dataclass(frozen=True, slots=True)
class GdpCurve:
    """mu-Gaussian differential privacy (Dong, Roth, Su 2019)."""

    mu: float
    slack: Slack = NO_SLACK

    def __post_init__(self) -> None:
        _checks.positive("mu", self.mu)

    def __add__(self, other: GdpCurve) -> GdpCurve:
        return GdpCurve(_up(math.hypot(self.mu, other.mu)), self.slack + other.slack)

    def __mul__(self, rounds: int) -> GdpCurve:
        n = _checks.integer("rounds", rounds, 1)
        return GdpCurve(self.mu if n == 1 else _up(self.mu * math.sqrt(n)), self.slack * n)

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon at ``delta``, or infinity where the slack takes it all."""
        return self.slack.epsilon(lambda left: gaussian_epsilon(self.mu, left), delta)

    def delta(self, epsilon: float) -> float:
        """Return the total delta at ``epsilon``."""
        return self.slack.delta(lambda e: gaussian_delta(self.mu, e), epsilon)

    def zcdp(self) -> float:
        """Return rho of the zero-concentrated DP that mu-GDP implies (slack stays outside)."""
        return _up(self.mu * self.mu / 2)

    def rdp(self, orders: tuple[float, ...] = ORDERS) -> RdpCurve:
        """Return the Rényi curve that mu-GDP implies: that of the Gaussian mechanism."""
        return RdpCurve.from_zcdp(self.zcdp(), orders=orders, slack=self.slack)


@dataclass(frozen=True, slots=True)
class RdpCurve:
    """Rényi differential privacy: a bound on the divergence at each of ``orders``."""

    orders: tuple[float, ...]
    values: tuple[float, ...]
    slack: Slack = NO_SLACK

    def __post_init__(self) -> None:
        if not (len(self.orders) == len(self.values) > 0):
            raise DomainError("orders and values must have the same length, at least one")
        if not all(1 < a < math.inf for a in self.orders):
            raise DomainError(f"orders must be finite and above 1, got {self.orders}")
        # Infinite is honest at a single order; NaN and negative values are not.
        if not all(value >= 0 for value in self.values):
            raise DomainError(f"values must not be negative, got {self.values}")

    @classmethod
    def from_zcdp(
        cls, rho: float, *, orders: tuple[float, ...] = ORDERS, slack: Slack = NO_SLACK
    ) -> RdpCurve:
        """Return the curve order * rho (Bun and Steinke 2016, definition 1.1)."""
        _checks.non_negative("rho", rho)
        return cls(orders, tuple(a * rho for a in orders), slack)

    def __add__(self, other: RdpCurve) -> RdpCurve:
        if self.orders != other.orders:
            raise DomainError(
                "only Rényi curves over the same orders can be added; compute both over those"
            )
        values = tuple(x + y for x, y in zip(self.values, other.values, strict=True))
        return RdpCurve(self.orders, values, self.slack + other.slack)

    def __mul__(self, rounds: int) -> RdpCurve:
        n = _checks.integer("rounds", rounds, 1)
        return RdpCurve(self.orders, tuple(n * x for x in self.values), self.slack * n)

    def minimum(self, other: RdpCurve) -> RdpCurve:
        """Return the better of two bounds on the same release, order by order."""
        if (self.orders, self.slack) != (other.orders, other.slack):
            raise DomainError(
                "only Rényi curves of the same orders and slack can be compared; add others up"
            )
        return RdpCurve(self.orders, tuple(map(min, self.values, other.values)), self.slack)

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon at ``delta``, or infinity where the slack takes it all."""
        return self.slack.epsilon(lambda left: rdp_epsilon(self.orders, self.values, left), delta)

    def delta(self, epsilon: float) -> float:
        """Return the total delta at ``epsilon``."""
        return self.slack.delta(lambda e: rdp_delta(self.orders, self.values, e), epsilon)


def _up(x: float) -> float:
    """Round up past what a few float64 operations lose."""
    return x * (1 + 1e-15)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the least delta of a mu-GDP mechanism at ``epsilon`` (Balle and Wang 2018, theorem 8).

    With mu = l2/sigma this is the exact privacy profile of the Gaussian mechanism, from above.
    """
    _checks.positive("mu", mu)
    e = _checks.number("epsilon", epsilon)
    if e < 0:  # the mirror image of the other direction, which is the same
        return 1.0 if e == -math.inf else -math.expm1(e) + math.exp(e) * gaussian_delta(mu, -e)
    return float(gaussian_profile(mu, np.array([e]))[0]) if e < math.inf else 0.0


def gaussian_profile(mu: float, epsilons: Values) -> Values:
    """Return `gaussian_delta` at each of ``epsilons``, none negative.

    Phi(-a) - e^epsilon Phi(-b), a = epsilon/mu - mu/2, b = a + mu, has e^epsilon = phi(a)/phi(b),
    so it is phi(a) (M(a) - M(b)) with Mills' ratio M = Phi(-x)/phi(x).
    """
    from scipy.special import ndtr

    a = epsilons / mu - mu / 2
    density = np.exp(-np.minimum(a * a / 2, 745.0)) / math.sqrt(2 * math.pi)
    if mu <= 1:
        delta = density * mills_fall(a, mu)
    else:
        near = ndtr(-a) - density * mills(a + mu) * (1 - 1e-13)
        delta = np.where(a > 0, density * mills_fall(np.maximum(a, 0.0), mu), near)
    # a is off by a few units of its terms, and the density by a times that.
    wrong = 1e-15 * (np.abs(a) + 1) * (epsilons / mu + mu)
    return np.minimum(1.0, delta * (1 + _ROUND_OFF + wrong) + _FAINTEST)


def mills(x: Values) -> Values:
    """Return Mills' ratio M(x) = Phi(-x)/phi(x), whose relative error is below 1e-13."""
    from scipy.special import erfcx

    return np.asarray(math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2)))


def mills_fall(a: Values, width: float) -> Values:
    """Return M(a) - M(a + width), a >= -1/2, from above and within 1e-11 of itself.

    It is the integral of -M'(x) = 1 - x M(x), the Laplace transform of t e^(-t^2/2), t > 0. So all
    derivatives of -M' of even order are positive, and Lobatto's rule errs upwards.
    """
    if width > _NARROW:
        return mills(a) * (1 + 1e-13) - mills(a + width) * (1 - 1e-13)
    nodes, weights = _LOBATTO
    return _mills_slope(a[:, None] + width / 2 * (1 + nodes)) @ (width / 2 * weights)


def _mills_slope(x: Values) -> Values:
    """Return 1 - x M(x), from 25 on by its enveloping series 1/x^2 - 3/x^4 + 15/x^6 - ..."""
    far = 1 / np.maximum(x, 25.0) ** 2
    series = far * np.polynomial.polynomial.polyval(far, _SLOPE_SERIES)
    return np.where(x < 25, 1 - x * mills(x) + 4e-16 * (1 + np.abs(x)), series)


_SLOPE_SERIES = [float(math.prod(range(-1, -2 * k - 2, -2))) * -1 for k in range(9)]


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the least epsilon >= 0 of a mu-GDP mechanism at ``delta``, from above."""
    _checks.open_unit("delta", delta)
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    # delta(epsilon) < exp(-x^2/2) with x = epsilon/mu - mu/2.
    high = mu * (mu / 2 + math.sqrt(2 * math.log(1 / delta))) * (1 + 1e-9)
    return bisected_minimum(lambda epsilon: gaussian_delta(mu, epsilon) <= delta, 0.0, high)


def gaussian_sigma(epsilon: float, delta: float, l2: float) -> float:
    """Return the analytic Gaussian mechanism's least sigma, from above (Balle and Wang 2018)."""
    _checks.positive("epsilon", epsilon)
    _checks.open_unit("delta", delta)
    _checks.positive("l2", l2)
    # mu^2/2 + mu x = epsilon is private at x = sqrt(2 log(1/delta)): see gaussian_epsilon.
    x = math.sqrt(2 * math.log(1 / delta))
    private = (math.sqrt(x * x + 2 * epsilon) + x) / (2 * epsilon)
    return l2 * bisected_minimum(
        lambda z: gaussian_delta(1 / z, epsilon) <= delta, 0.0, private * 1.001
    )


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
    epsilon = _charged(curve, delta, distance, 0.0)
    taken = distance * math.exp(min(epsilon, 700.0)) / delta
    margin = min(max(1e-7, taken), 1e-3)
    while math.isfinite(epsilon):
        # A larger epsilon leaves less delta, so this climbs to the least fixed point. Charging for
        # a little more than the current epsilon makes what it returns private, and a margin that
        # grows makes it end. It begins where one step is enough: at the part of delta taken.
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


def bisected_minimum(private: Callable[[float], bool], low: float, high: float) -> float:
    """Return where ``private`` begins, by bisection down to neighbouring floats; ``high`` is."""
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if private(middle) else (middle, high)
    return high
