"""Composition that is kept between spends.

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
from typing import NamedTuple, TypeAlias

from skellam.accounting.accountants import Release, composed_epsilon
from skellam.accounting.curves import NO_SLACK, GdpCurve, Slack
from skellam.accounting.gdp import dominating, outside_by_atoms, outside_by_distance
from skellam.accounting.ledger.budget import Budget, Filtered
from skellam.accounting.ledger.lossgrid import LossGrid, loss_grid
from skellam.accounting.losslaw import epsilon_at
from skellam.accounting.mechanisms import Mechanism, noise_of, rate_of
from skellam.accounting.pld import Pld, gaussian_pld, mechanism_pld, own_pair
from skellam.errors import CertificateError

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
