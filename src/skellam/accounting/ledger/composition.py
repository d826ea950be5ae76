"""Budgets, filters, and composition that is kept between spends.

A budget is an epsilon at a delta, fixed when the ledger is created. Composition theorems take the
mechanisms as fixed in advance; a filter holds even when each mechanism is chosen from what earlier
releases showed. It takes them one by one and refuses the one that would pass its capacity; all that
it let through, however it was chosen, costs at most the capacity. So a filtered ledger states its
capacity from the first spend to the last, never the smaller sum so far: that sum depends on the
data.

Composing K different mechanisms anew takes K convolutions. A ledger keeps the composed curve
instead, so that a spend takes one. The curve has two parts: releases that are accounted as
Gaussians without sampling, which add up in closed form, and all others as loss distributions, one
after the other on a common grid (`skellam.accounting.ledger.lossgrid`). All that is kept is an
upper bound; where arithmetic takes a part of delta that matters, all is composed anew instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, Self, TypeAlias, assert_never

from skellam import _checks
from skellam.accounting.accountants import Release, composed_epsilon
from skellam.accounting.curves import (
    NO_SLACK,
    ORDERS,
    GdpCurve,
    RdpCurve,
    Slack,
    gaussian_sigma,
    rdp_epsilon,
)
from skellam.accounting.gdp import dominating, outside_by_atoms, outside_by_distance
from skellam.accounting.ledger.lossgrid import LossGrid, loss_grid
from skellam.accounting.losslaw import epsilon_at
from skellam.accounting.mechanisms import Mechanism, noise_of, rate_of
from skellam.accounting.pld import Pld, gaussian_pld, mechanism_pld, own_pair
from skellam.accounting.rdp import dominating_rdp
from skellam.errors import CertificateError, DomainError, InfeasibleError, KindError

_SLACK_SHARE = 0.01
"""The part of delta, and of epsilon, that is set aside for tails and sampler error."""


@dataclass(frozen=True, slots=True)
class GdpFilter:
    """Lets through while the squares of the GDP parameters sum to at most that of the capacity.

    Smith and Thakurta 2022, "Fully adaptive composition for Gaussian differential privacy".
    """

    def capacity(self, epsilon: float, delta: float) -> GdpCurve:
        """Return the curve of all that can be let through; its slack is the largest that may be."""
        share = 1 - _SLACK_SHARE
        sigma = gaussian_sigma(share * epsilon, share * delta, 1.0)
        return GdpCurve(1 / sigma, _reserved(epsilon, delta))

    def curve(self, mechanism: Mechanism) -> GdpCurve:
        """Return what one release by ``mechanism`` takes of the capacity."""
        if rate_of(mechanism) < 1:
            raise DomainError("a GDP filter takes no sampled mechanisms; create an RdpFilter")
        return dominating(noise_of(mechanism))


@dataclass(frozen=True, slots=True)
class RdpFilter:
    """Lets through while the Rényi divergences of one fixed ``order`` sum to the capacity.

    Feldman and Zrnic 2021, "Individual privacy accounting via a Rényi filter", theorem 3.1.
    """

    order: float

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise DomainError(f"order must be one of accounting.ORDERS, got {self.order!r}")

    def capacity(self, epsilon: float, delta: float) -> RdpCurve:
        """Return the curve of all that can be let through; its slack is the largest that may be."""
        share = 1 - _SLACK_SHARE
        min_epsilon = rdp_epsilon((self.order,), (0.0,), share * delta)
        if not min_epsilon < share * epsilon:
            raise InfeasibleError(
                f"a filter of order {self.order:g} needs an epsilon above {min_epsilon:.3g} at "
                f"delta {delta:g}, got {epsilon:g}; take a higher order"
            )
        return RdpCurve((self.order,), (share * epsilon - min_epsilon,), _reserved(epsilon, delta))

    def curve(self, mechanism: Mechanism) -> RdpCurve:
        """Return what one release by ``mechanism`` takes of the capacity."""
        curve = dominating_rdp(mechanism)
        value = curve.values[curve.orders.index(self.order)]
        return RdpCurve((self.order,), (value,), curve.slack)


Filter: TypeAlias = GdpFilter | RdpFilter


@dataclass(frozen=True, slots=True)
class Budget:
    """An epsilon at a delta, and how it is kept.

    Without a ``filter`` no mechanism may be chosen from what earlier releases showed.
    ``public_key`` is that of the signer, if there is one.
    """

    epsilon: float
    delta: float
    filter: Filter | None = None
    public_key: bytes | None = None

    def __post_init__(self) -> None:
        _checks.assign(
            self,
            epsilon=_checks.positive("epsilon", self.epsilon),
            delta=_checks.open_unit("delta", self.delta),
        )
        if self.filter is not None:
            if not isinstance(self.filter, Filter):
                raise KindError(f"filter must be a GdpFilter or RdpFilter, got {self.filter!r}")
            self.filter.capacity(self.epsilon, self.delta)

    def to_fields(self) -> dict[str, Any]:
        """Return the budget as JSON values."""
        return {
            "kind": "terms",
            "version": 1,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "filter": _filter_fields(self.filter),
            "public_key": to_hex(self.public_key),
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Return the budget that `to_fields` wrote; anything else raises `DomainError`."""
        names = ("epsilon", "delta", "filter", "public_key")
        epsilon, delta, filter_, key = take(fields, "terms", *names)
        return cls(epsilon, delta, _filter(filter_), from_hex(key))

    def __str__(self) -> str:
        under = "" if self.filter is None else f" under {self.filter}"
        return f"epsilon {self.epsilon:g} at delta {self.delta:g}{under}"


@dataclass(frozen=True, slots=True)
class Filtered:
    """The sum of what a filter let through, with either way to charge for the sampler."""

    filter: Filter
    curve: GdpCurve | RdpCurve | None = None
    by_distance: Slack = NO_SLACK
    by_atoms: Slack = NO_SLACK

    def plus(self, mechanism: Mechanism, rounds: int) -> Filtered:
        """Return the sum with ``rounds`` more releases by ``mechanism``."""
        curve = self.filter.curve(mechanism) * rounds
        return Filtered(
            self.filter,
            curve if self.curve is None else self.curve + curve,  # type: ignore[operator]
            self.by_distance + outside_by_distance(mechanism) * rounds,
            self.by_atoms + outside_by_atoms(mechanism) * rounds,
        )

    def epsilon(self, delta: float) -> float:
        """Return what the sum would cost at ``delta`` if its mechanisms had been fixed."""
        return 0.0 if self.curve is None else self.curve.epsilon(delta)

    def fits(self, budget: Budget) -> bool:
        """Return whether the sum stays within the filter's capacity for ``budget``."""
        match self.curve, self.filter.capacity(budget.epsilon, budget.delta):
            case None, _:
                return True
            case GdpCurve() as spent, GdpCurve() as capacity:
                fits = spent.mu <= capacity.mu
            case RdpCurve() as spent, RdpCurve() as capacity:
                fits = spent.values[0] <= capacity.values[0]
            case _:
                raise AssertionError("a filter's curves are of one kind")
        return fits and any(
            slack.charge(budget.epsilon) <= _SLACK_SHARE * budget.delta
            and slack.stretch <= _SLACK_SHARE * budget.epsilon
            for slack in (spent.slack + self.by_distance, spent.slack + self.by_atoms)
        )


def _reserved(epsilon: float, delta: float) -> Slack:
    """Return a bound on every slack that `Filtered.fits` lets through, part by part."""
    share = _SLACK_SHARE * delta
    distance = share / (1 + math.exp(min(epsilon, 700.0)))
    return Slack(share, distance, _SLACK_SHARE * epsilon)


def _filter_fields(filter_: Filter | None) -> dict[str, Any] | None:
    match filter_:
        case None:
            return None
        case GdpFilter():
            return {"kind": "gdp"}
        case RdpFilter(order):
            return {"kind": "rdp", "order": order}
        case _:
            assert_never(filter_)


def _filter(fields: object) -> Filter | None:
    match fields:
        case None:
            return None
        case {"kind": "gdp", **rest} if not rest:
            return GdpFilter()
        case {"kind": "rdp", "order": order, **rest} if not rest:
            return RdpFilter(order)
        case _:
            raise DomainError(f"no filter is written as {fields!r}")


def take(fields: Mapping[str, Any], kind: str, *names: str) -> list[Any]:
    """Return the values of ``names`` from a record of ``kind``, or raise `DomainError`."""
    if fields.get("kind") != kind or fields.get("version") != 1:
        raise DomainError(
            f"got a record of kind {fields.get('kind')!r}, version {fields.get('version')!r}, need "
            f"{kind!r}, version 1; a later version of skellam may read it"
        )
    if set(fields) != {"kind", "version", *names}:
        raise DomainError(f"a record of kind {kind!r} has the fields {', '.join(names)}")
    return [fields[name] for name in names]


def to_hex(octets: bytes | None) -> str | None:
    """Return ``octets`` as JSON writes them."""
    return None if octets is None else octets.hex()


def from_hex(text: str | None) -> bytes | None:
    """Return the bytes that `to_hex` wrote."""
    return None if text is None else bytes.fromhex(text)


FEW = 8
"""So many different mechanisms are composed anew whenever epsilon is asked for."""
TOLERANCE = 1e-3
"""By less than this part a kept curve's epsilon differs from that of composing anew."""
_NEGLIGIBLE = 2e-3
"""The part of delta that arithmetic may take: epsilon changes by about a seventh of that part."""


class _Losses(NamedTuple):
    """Both directions of composed losses; one grid stands for both where they are the same."""

    remove: LossGrid
    add: LossGrid

    @classmethod
    def of(cls, pld: Pld, rounds: int) -> _Losses:
        ((first, _),), ((second, _),) = pld.remove.parts, pld.add.parts
        remove = loss_grid(first, rounds)
        return cls(remove, remove if second is first else loss_grid(second, rounds))

    def plus(self, other: _Losses) -> _Losses:
        remove = self.remove + other.remove
        same = self.add is self.remove and other.add is other.remove
        return _Losses(remove, remove if same else self.add + other.add)

    @property
    def sides(self) -> set[LossGrid]:
        return {self.remove, self.add}


@dataclass(frozen=True, slots=True, eq=False)
class Composition:
    """What several releases cost together, as a value; `plus` adds one more."""

    gaussian: GdpCurve | None = None
    losses: _Losses | None = None
    slacks: tuple[Slack, Slack] = (NO_SLACK, NO_SLACK)
    """What the curves leave out, with either way to charge for the sampler."""

    def plus(self, mechanism: Mechanism, rounds: int) -> Composition:
        """Return the composition with ``rounds`` more releases by ``mechanism``."""
        gaussian, losses = self.gaussian, self.losses
        if rate_of(mechanism) == 1 and own_pair(mechanism) is None:
            curve = dominating(noise_of(mechanism)) * rounds
            slack, bare = curve.slack, replace(curve, slack=NO_SLACK)
            gaussian = bare if gaussian is None else gaussian + bare
        else:
            pld = mechanism_pld(mechanism)
            slack, added = pld.slack * rounds, _Losses.of(pld, rounds)
            losses = added if losses is None else losses.plus(added)
        by_distance, by_atoms = self.slacks
        return Composition(
            gaussian,
            losses,
            (
                by_distance + slack + outside_by_distance(mechanism) * rounds,
                by_atoms + slack + outside_by_atoms(mechanism) * rounds,
            ),
        )

    def epsilon(self, delta: float) -> float:
        """Return an upper bound on epsilon at ``delta``; it may be infinite."""
        if self.gaussian is None and self.losses is None:
            return 0.0
        if self.gaussian is not None and self.losses is None:
            curves = (replace(self.gaussian, slack=slack) for slack in set(self.slacks))
            return min(curve.epsilon(delta) for curve in curves)
        sides = [(side.profile(), side.infinite) for side in self._losses().sides]

        def ideal(delta: float) -> float:
            return max(
                epsilon_at(*profile, delta - infinite) if infinite < delta else math.inf
                for profile, infinite in sides
            )

        return min(slack.epsilon(ideal, delta) for slack in set(self.slacks))

    def is_sharp(self, delta: float) -> bool:
        """Return whether arithmetic raises epsilon at ``delta`` by less than the tolerance."""
        if self.losses is None:
            return True
        return all(
            side.lost <= _NEGLIGIBLE * delta and side.inflation <= TOLERANCE / 2
            for side in self._losses().sides
        )

    def _losses(self) -> _Losses:
        """Return all losses, those of the Gaussian among them."""
        if self.losses is None:
            raise AssertionError("there are no losses")
        if self.gaussian is None:
            return self.losses
        return self.losses.plus(_Losses.of(gaussian_pld(1 / self.gaussian.mu), 1))


_Total: TypeAlias = Composition | Filtered


@lru_cache(maxsize=2)
def composed(releases: tuple[Release, ...]) -> Composition:
    """Return the composition of ``releases`` in their order."""
    total = Composition()
    for mechanism, rounds in releases:
        total = total.plus(mechanism, rounds)
    return total


def epsilon_of(rounds: Mapping[Mechanism, int], delta: float) -> float:
    """Return an upper bound on epsilon of all ``rounds`` at ``delta``.

    More than `FEW` mechanisms are added up one by one, in order of their first spends.
    """
    if len(rounds) > FEW:
        try:
            total = composed((*rounds.items(),))
        except CertificateError:
            total = None
        if total is not None and total.is_sharp(delta):
            return total.epsilon(delta)
    return composed_epsilon(rounds.items(), delta=delta)


class Admission:
    """Decides whether a release fits the budget, with what was composed kept in between.

    ``_settled`` is the composition of all spends before the present run of one mechanism. More
    rounds never cost less, so what fits ``_max_rounds`` times fits fewer times; that bound looks
    ahead by as many rounds as there were, then by half as many, and so on, so that a long run of
    equal rounds takes a logarithmic number of evaluations.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._settled: _Total | None = _empty(budget)
        self._folded: dict[Mechanism, int] = {}
        self._before: Mapping[Mechanism, int] = {}
        """What was spent when the run began, perhaps not in ``_settled`` yet."""
        self._in_order = True
        """Whether `epsilon_of` composes the same values in the same order."""
        self._latest: tuple[Mechanism, int, _Total | None] | None = None
        self._running: Mechanism | None = None
        self._max_rounds = 0
        self._refused = math.inf

    def admits(self, rounds: Mapping[Mechanism, int], mechanism: Mechanism, more: int) -> bool:
        """Return whether ``more`` releases by ``mechanism`` fit after ``rounds``.

        ``rounds`` is what was spent; from one call to the next it only grows.
        """
        needed = rounds.get(mechanism, 0) + more
        if self._running != mechanism:
            self._running, self._max_rounds, self._refused = mechanism, 0, math.inf
            self._before = dict(rounds)
        elif needed <= self._max_rounds or self._fits_ahead(rounds, mechanism, needed):
            return True
        if self._fits(rounds, mechanism, needed, exact=True):
            self._max_rounds = needed
            return True
        return False

    def _fits_ahead(
        self, rounds: Mapping[Mechanism, int], mechanism: Mechanism, needed: int
    ) -> bool:
        for shift in range(needed.bit_length()):
            count = needed + (needed >> shift)
            if count < self._refused:
                if self._fits(rounds, mechanism, count, exact=False):
                    self._max_rounds = count
                    return True
                self._refused = count
        return False

    def _fits(
        self, rounds: Mapping[Mechanism, int], mechanism: Mechanism, count: int, *, exact: bool
    ) -> bool:
        """Return whether ``count`` releases in all fit; unless ``exact``, no may mean perhaps."""
        after, budget = {**rounds, mechanism: count}, self._budget
        if budget.filter is None and len(after) == 1:
            return epsilon_of(after, budget.delta) <= budget.epsilon
        total = self._total(mechanism, count)
        if isinstance(total, Filtered):
            return total.fits(budget)
        if total is not None:
            kept = total.epsilon(budget.delta)
            if kept * (1 + TOLERANCE) <= budget.epsilon:
                return True
            same = len(after) > FEW and self._in_order and mechanism not in self._folded
            if same and total.is_sharp(budget.delta):
                return kept <= budget.epsilon
        return exact and epsilon_of(after, budget.delta) <= budget.epsilon

    def _total(self, mechanism: Mechanism, count: int) -> _Total | None:
        for known, number in self._before.items():
            if more := number - self._folded.get(known, 0):
                self._fold(known, number, more)
        self._before = {}
        total = _plus(self._settled, mechanism, count - self._folded.get(mechanism, 0))
        self._latest = (mechanism, count, total)
        return total

    def _fold(self, mechanism: Mechanism, count: int, more: int) -> None:
        """Settle ``more`` releases, which make ``count`` by ``mechanism``."""
        if self._latest is not None and self._latest[:2] == (mechanism, count):
            self._settled = self._latest[2]
        else:
            self._settled = _plus(self._settled, mechanism, more)
        self._latest = None
        self._in_order &= mechanism not in self._folded
        self._folded[mechanism] = count


def _empty(budget: Budget) -> _Total:
    return Composition() if budget.filter is None else Filtered(budget.filter)


def _plus(total: _Total | None, mechanism: Mechanism, rounds: int) -> _Total | None:
    """Return ``total`` with more rounds, or nothing where there is no such bound."""
    if total is None:
        return None
    try:
        return total.plus(mechanism, rounds)
    except CertificateError:
        if isinstance(total, Filtered):
            raise
        return None
