"""Accountants for a list of releases, and the least noise that meets a target by one of them.

An accountant turns every release into a curve of one kind and adds them up. It is left out where it
has no bound for one of the releases; of all that are valid the smallest answer counts. Calibration
ends on the private side, with few evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Literal, TypeAlias, get_args

from skellam import _checks
from skellam.accounting.curves import PAPER_ORDERS, GdpCurve, RdpCurve, Slack, gaussian_sigma
from skellam.accounting.gdp import (
    dominating,
    outside_by_atoms,
    outside_by_distance,
    sampler_distance,
)
from skellam.accounting.mechanisms import Gaussian, Mechanism, Sampled, noise_of, rate_of
from skellam.accounting.pld import Pld, dominating_pld, mechanism_pld, own_pair
from skellam.accounting.rdp import dominating_rdp, own_orders, own_rdp, paper_rdp, poisson_rdp
from skellam.errors import CertificateError, DomainError, InfeasibleError, KindError

Release: TypeAlias = tuple[Mechanism, int]
Method: TypeAlias = Literal["best", "gdp", "rdp", "pld", "paper"]
Composed: TypeAlias = GdpCurve | RdpCurve | Pld
MAX_ROUNDS = 10**12
_MIN_MULTIPLIER = 1e-3
"""Less noise costs an epsilon of half a million or more, and long to account for."""
_NEGLIGIBLE = 1e-6
"""The part of delta below which the sampler's distance needs no better treatment."""
_Accountant: TypeAlias = Callable[[Sequence[Release]], Composed | None]


def epsilon(
    mechanism: Mechanism, *, delta: float, rounds: int = 1, method: Method = "best"
) -> float:
    """Return an upper bound on epsilon of ``rounds`` releases at ``delta``; it may be infinite."""
    return composed_epsilon([(mechanism, rounds)], delta=delta, method=method)


def delta(
    mechanism: Mechanism, *, epsilon: float, rounds: int = 1, method: Method = "best"
) -> float:
    """Return an upper bound on delta of ``rounds`` releases at ``epsilon``."""
    return composed_delta([(mechanism, rounds)], epsilon=epsilon, method=method)


def composed_epsilon(
    releases: Iterable[Release], *, delta: float, method: Method = "best"
) -> float:
    """Return an upper bound on epsilon of all ``releases`` (mechanism, rounds) together."""
    _checks.open_unit("delta", delta)
    checked = _checked(releases)
    ideal, charge = _ideal_curves(checked, method), _charge(checked, outside_by_distance)
    smallest = min(_charged(curve, charge).epsilon(delta) for curve in ideal)
    samplers = Slack(distance=sum(n * sampler_distance(mechanism) for mechanism, n in checked))
    if samplers.charge(smallest) <= _NEGLIGIBLE * delta:
        return smallest
    charge = _charge(checked, outside_by_atoms)
    return min(smallest, *(_charged(curve, charge).epsilon(delta) for curve in ideal))


def composed_delta(
    releases: Iterable[Release], *, epsilon: float, method: Method = "best"
) -> float:
    """Return an upper bound on delta of all ``releases`` (mechanism, rounds) together."""
    _checks.non_negative("epsilon", epsilon)
    return min(curve.delta(epsilon) for curve in curves(releases, method=method))


def curves(releases: Iterable[Release], *, method: Method = "best") -> list[Composed]:
    """Return the composed curve of every accountant of ``method`` that covers all ``releases``.

    Each comes twice, with either way to charge for the sampler.
    """
    checked = _checked(releases)
    charges = {_charge(checked, way) for way in (outside_by_distance, outside_by_atoms)}
    return [_charged(curve, x) for curve in _ideal_curves(checked, method) for x in charges]


def _ideal_curves(releases: Sequence[Release], method: Method) -> list[Composed]:
    found, refusals = list[Composed](), list[str]()
    for accountant in _accountants(method):
        try:
            curve = accountant(releases)
        except CertificateError as error:
            refusals.append(str(error))
        else:
            found += [] if curve is None else [curve]
    if not found:
        kinds = sorted({type(noise_of(mechanism)).__name__ for mechanism, _ in releases})
        reasons = "; ".join(dict.fromkeys(refusals)) or "use another method"
        raise CertificateError(f"method {method!r} has no bound for {', '.join(kinds)}: {reasons}")
    return found


def _charge(releases: Sequence[Release], way: Callable[[Mechanism], Slack]) -> Slack:
    return reduce(add, (way(mechanism) * rounds for mechanism, rounds in releases))


def _charged(curve: Composed, charge: Slack) -> Composed:
    return replace(curve, slack=curve.slack + charge)


def _accountants(method: Method) -> list[_Accountant]:
    match method:
        case "gdp":
            return [_gaussian]
        case "rdp":
            return [_gaussian_rdp, _own_rdp]
        case "pld":
            return [_losses]
        case "paper":
            return [_paper]
        case "best":
            return [_gaussian, _losses_if_own, _gaussian_rdp, _own_rdp, _paper]
        case _:
            names = ", ".join(get_args(Method))
            raise DomainError(f"method must be one of {names}, got {method!r}")


def _gaussian(releases: Sequence[Release]) -> Composed:
    """Add up dominating Gaussians: in closed form, or by loss distributions under sampling."""
    if all(rate_of(mechanism) == 1 for mechanism, _ in releases):
        return reduce(add, (dominating(noise_of(m)) * rounds for m, rounds in releases))
    return reduce(add, (dominating_pld(m) * n for m, n in releases))


def _losses(releases: Sequence[Release]) -> Composed:
    """Add up loss distributions, of the mechanisms themselves where they are known."""
    return _losses_if_own(releases) or _gaussian(releases)


def _losses_if_own(releases: Sequence[Release]) -> Composed | None:
    if all(own_pair(mechanism) is None for mechanism, _ in releases):
        return None
    return reduce(add, (mechanism_pld(m) * rounds for m, rounds in releases))


def _gaussian_rdp(releases: Sequence[Release]) -> Composed:
    return reduce(add, (dominating_rdp(m) * rounds for m, rounds in releases))


def _own_rdp(releases: Sequence[Release]) -> Composed | None:
    orders = own_orders(mechanism for mechanism, _ in releases)
    return _sum_of((own_rdp(m, orders), rounds) for m, rounds in releases)


def _paper(releases: Sequence[Release]) -> Composed | None:
    return _sum_of((paper_rdp(m), rounds) for m, rounds in releases)


def _sum_of(parts: Iterable[tuple[RdpCurve | None, int]]) -> RdpCurve | None:
    total: RdpCurve | None = None
    for curve, rounds in parts:
        if curve is None:
            return None
        total = curve * rounds if total is None else total + curve * rounds
    return total


def _checked(releases: Iterable[Release]) -> list[Release]:
    checked = [_release(item) for item in releases]
    if not checked:
        raise DomainError("there must be at least one release to account for")
    if len({noise_of(mechanism).adjacency for mechanism, _ in checked}) > 1:
        raise DomainError("releases under different adjacencies cannot be added; use one for all")
    return checked


def _release(item: Release) -> Release:
    if not isinstance(item, tuple) or len(item) != 2:
        raise KindError(f"a release must be a pair (mechanism, rounds), got {item!r}")
    mechanism, rounds = item
    noise_of(mechanism)
    return mechanism, _checks.integer("rounds", rounds, 1, MAX_ROUNDS)


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
    1e-9. A cost that jumps over the target is met within 1e-3 after 20 evaluations, and within 1 %
    after ten where it jumps by more than a factor of four. It raises `InfeasibleError` when even
    ``max_value`` costs too much.
    """
    _checks.positive("target", target)
    search = _Search(cost, target)
    start = min(max(_checks.positive("guess", guess), min_value), max_value)
    low, high = search.bracket(start, min_value, max_value)
    aim = target * (1 - tolerance / 2)
    while high.cost < target * (1 - tolerance):
        narrow = 1e-9 if len(search.points) < 20 else 1e-3
        if len(search.points) >= 10 and low.cost > 4 * high.cost:
            narrow = 1e-2
        if high.value <= low.value * (1 + narrow):
            break
        middle = search.at(search.next(low.value, high.value, aim))
        low, high = (low, middle) if middle.cost <= target else (middle, high)
    count = len(search.points)
    return Calibrated(high.value, high.cost, target, (low.value, high.value), count)


def noise_multiplier(
    *, epsilon: float, delta: float, rate: float = 1.0, rounds: int = 1, method: Method = "best"
) -> float:
    """Return the least noise multiplier (standard deviation over clip norm) for the target.

    It is the limit of a large scale, where rounding costs nothing; the value is on the private
    side, and 1e-3 at least. With "paper" the Skellam bound is amplified by Zhu and Wang's theorem
    5, orders 2..128 and 256.
    """
    q, n = _checks.rate("rate", rate), _checks.integer("rounds", rounds, 1, MAX_ROUNDS)
    _checks.open_unit("delta", delta)

    def cost(z: float) -> float:
        if method == "paper":
            return (paper_limit(z, q) * n).epsilon(delta)
        return composed_epsilon([(Sampled(Gaussian(z, 1.0), q), n)], delta=delta, method=method)

    guess = multiplier_guess(epsilon, delta, q, n)
    return calibrate(cost, epsilon, guess=guess, min_value=_MIN_MULTIPLIER).value


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
        """Step away from ``guess`` by growing factors until the target is between two points.

        Where the cost is infinite nothing tells how near the target is: they grow faster.
        """
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
            factor = factor**2 if point.cost < math.inf else factor**4
        return low, point

    def _distance(self, point: _Point) -> float:
        """Return how far the logarithm of a point's cost is from the target's."""
        return abs(math.log(point.cost / self._target)) if 0 < point.cost < math.inf else math.inf

    def next(self, low: float, high: float, aim: float) -> float:
        """Follow the secant of the two nearest costs, in logarithms; bisect where it leads outside.

        From the eighth evaluation on every second time, so that the bracket is sure to shrink.
        """
        a, b = sorted(self.points, key=self._distance)[1::-1]
        usable = all(0 < p.cost < math.inf for p in (a, b)) and a.cost != b.cost
        if usable and (len(self.points) < 8 or len(self.points) % 2):
            slope = math.log(b.value / a.value) / math.log(b.cost / a.cost)
            x = b.value * math.exp(max(-50.0, min(50.0, slope * math.log(aim / b.cost))))
            if low < x < high:
                return x
        return math.sqrt(low * high)
