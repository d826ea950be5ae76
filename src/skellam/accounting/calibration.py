"""The least noise that meets a target, on the private side and with few evaluations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from skellam import _checks
from skellam.accounting.accountants import Method
from skellam.accounting.accountants import epsilon as account
from skellam.accounting.curves import PAPER_ORDERS, RdpCurve, gaussian_sigma
from skellam.accounting.mechanisms import Gaussian, Sampled
from skellam.accounting.rdp import poisson_rdp
from skellam.errors import InfeasibleError


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A value whose cost is at most the target: the private end of ``bracket``.

    The other end costs more, so the least value that would do lies between the two; they are one
    where even the min_value value that was allowed meets the target.
    """

    value: float
    cost: float
    target: float
    bracket: tuple[float, float]
    evaluations: int


def calibrate(
    cost: Callable[[float], float],
    target: float,
    *,
    guess: float = 1.0,
    tolerance: float = 2e-4,
    min_value: float = 1e-9,
    max_value: float = 1e15,
) -> Calibrated:
    """Return about the least value whose ``cost``, falling in the value, is at most ``target``.

    It stops when the cost is within ``tolerance`` of the target (relative) or the bracket within
    1e-9, and raises `InfeasibleError` when even ``max_value`` costs too much.
    """
    _checks.positive("target", target)
    search = _Search(cost, target)
    start = min(max(_checks.positive("guess", guess), min_value), max_value)
    low, high = search.bracket(start, min_value, max_value)
    aim = target * (1 - tolerance / 2)
    while high.cost < target * (1 - tolerance) and high.value > low.value * (1 + 1e-9):
        middle = search.at(search.next(low.value, high.value, aim))
        low, high = (low, middle) if middle.cost <= target else (middle, high)
    count = len(search.points)
    return Calibrated(high.value, high.cost, target, (low.value, high.value), count)


def noise_multiplier(
    *, epsilon: float, delta: float, rate: float = 1.0, rounds: int = 1, method: Method = "best"
) -> float:
    """Return the least noise multiplier (standard deviation over clip norm) for the target.

    It is the limit of a large scale, where rounding costs nothing; the value is on the private
    side. With "paper" the Skellam bound is amplified by Zhu and Wang's theorem 5, orders 2..128
    and 256.
    """
    q, n = _checks.rate("rate", rate), _checks.integer("rounds", rounds, 1)
    _checks.open_unit("delta", delta)

    def cost(z: float) -> float:
        if method == "paper":
            return (paper_limit(z, q) * n).epsilon(delta)
        return account(Sampled(Gaussian(z, 1.0), q), rounds=n, delta=delta, method=method)

    return calibrate(cost, epsilon, guess=multiplier_guess(epsilon, delta, q, n)).value


def paper_limit(z: float, rate: float) -> RdpCurve:
    """Return the paper's curve of one sampled Skellam release as the scale goes to infinity."""
    orders = [int(a) for a in PAPER_ORDERS]
    return RdpCurve(PAPER_ORDERS, poisson_rdp(lambda a: a / (2 * z * z), rate=rate, orders=orders))


def multiplier_guess(epsilon: float, delta: float, rate: float, rounds: int) -> float:
    """Return a first guess, by the central limit theorem of Dong, Roth, Su 2019 (corollary 5.4).

    It is no bound: mu = rate sqrt(rounds (exp(1/z^2) - 1)) solved for z.
    """
    mu = 1 / gaussian_sigma(epsilon, delta, 1.0)
    if rate == 1:
        return math.sqrt(rounds) / mu
    return 1 / math.sqrt(math.log1p((mu / rate) ** 2 / rounds))


@dataclass(frozen=True, slots=True)
class _Point:
    value: float
    cost: float


class _Search:
    """Evaluations of a falling cost, and where to look next."""

    def __init__(self, cost: Callable[[float], float], target: float) -> None:
        self._cost, self._target = cost, target
        self.points: list[_Point] = []

    def at(self, value: float) -> _Point:
        cost = self._cost(value)
        if not cost >= 0:
            raise InfeasibleError(
                f"the cost of {value!r} is no number from 0 to infinity: {cost!r}"
            )
        self.points.append(_Point(value, cost))
        return self.points[-1]

    def bracket(self, guess: float, min_value: float, max_value: float) -> tuple[_Point, _Point]:
        """Step away from ``guess`` by growing factors until the target is between two points."""
        point, factor = self.at(guess), 1.05
        if point.cost <= self._target:
            while point.cost <= self._target and point.value > min_value:
                high, point = point, self.at(max(min_value, point.value / factor))
                factor = factor * factor
            return (point, high) if point.cost > self._target else (point, point)
        while point.cost > self._target:
            if point.value >= max_value:
                raise InfeasibleError(
                    f"no value up to {max_value:g} costs at most {self._target:g}; "
                    f"{point.value:g} costs {point.cost:g}"
                )
            low, point = point, self.at(min(max_value, point.value * factor))
            factor = factor * factor
        return low, point

    def next(self, low: float, high: float, aim: float) -> float:
        """Follow the secant in logarithms; bisect where it leads outside, and every third time."""
        a, b = self.points[-2:]
        usable = all(0 < p.cost < math.inf for p in (a, b)) and a.cost != b.cost
        if usable and len(self.points) % 3:
            slope = math.log(b.value / a.value) / math.log(b.cost / a.cost)
            x = b.value * math.exp(max(-50.0, min(50.0, slope * math.log(aim / b.cost))))
            if low < x < high:
                return x
        return math.sqrt(low * high)
