"""A query: what users contribute, what it answers, and the plan that protects it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Generic, NotRequired, Protocol, TypedDict, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.analytics.contribution import Contribution, Rows
from skellam.codec import SkellamShares
from skellam.entropy import Entropy
from skellam.errors import KindError
from skellam.plan import Plan, Rounding, Sampling
from skellam.plan.whole import fewest_bits
from skellam.vectors import Reals

AnswerT = TypeVar("AnswerT")
AnswerT_co = TypeVar("AnswerT_co", covariant=True)


class Terms(TypedDict):
    """Who takes part, and how private it is for each of them.

    Every client is one user, and adds its share of the noise. ``bits`` are the fewest that do
    unless given; the others are those of `skellam.Plan`.
    """

    clients: int
    epsilon: float
    delta: float
    bits: NotRequired[int]
    dropout: NotRequired[float]
    colluding: NotRequired[float]
    removable: NotRequired[bool]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one user can add at most to the ``dimension`` whole numbers of a query."""

    dimension: int
    largest: int
    l1: int
    l2: float


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """What a query released: sums over ``clients``, each with Skellam noise of ``variance``."""

    values: NDArray[np.float64]
    variance: float
    clients: int


class Statistic(Protocol[AnswerT_co]):
    """The two halves of a query: on a user's device, and on the released sums."""

    @property
    def bounds(self) -> Bounds:
        """What one user can add at most."""

    def contribution(self, rows: Rows, *, entropy: Entropy) -> Contribution:
        """Return what a user who holds ``rows`` adds, within the bounds."""

    def answer(self, totals: Totals) -> AnswerT_co:
        """Return what the sums say."""


@dataclass(frozen=True, slots=True)
class Query(Generic[AnswerT]):
    """A statistic with the plan that protects it.

    A client sends ``plan.codec(...).encode_or_zeros(contribution.vector)``; whoever decoded the sum
    asks `answer`. `skellam.analytics.run` does both in one process.
    """

    statistic: Statistic[AnswerT]
    plan: Plan

    def contribution(self, rows: Rows, *, entropy: Entropy) -> Contribution:
        """Return what a user who holds ``rows`` adds; only its ``vector`` leaves the device."""
        return self.statistic.contribution(rows, entropy=entropy)

    def answer(self, total: Reals, *, invited: int, survivors: int) -> AnswerT:
        """Return what the decoded sum of ``survivors`` out of ``invited`` clients says."""
        variance = arrived_variance(self.plan, invited=invited, survivors=survivors)
        values = total.values.astype(np.float64)
        return self.statistic.answer(Totals(values, variance, survivors))

    @property
    def digest(self) -> bytes:
        """SHA-256 of all that clients must agree on: the statistic and the plan."""
        return sha256(repr(self.statistic).encode() + self.plan.digest).digest()


def planned(statistic: Statistic[AnswerT], **terms: Unpack[Terms]) -> Query[AnswerT]:
    """Return the query for ``statistic`` with the least noise that ``terms`` allow."""
    bounds = statistic.bounds
    plan = Plan(
        dimension=bounds.dimension,
        clip=bounds.l2,
        l1=bounds.l1,
        largest=bounds.largest,
        rounding=Rounding.WHOLE,
        cohort=terms["clients"],
        rounds=1,
        sampling=Sampling.ALL,
        bits=terms.get("bits", 32),
        dropout=terms.get("dropout", 0.0),
        colluding=terms.get("colluding", 0.0),
        removable=terms.get("removable", False),
    ).calibrated(epsilon=terms["epsilon"], delta=terms["delta"])
    if "bits" not in terms:
        plan = replace(plan, bits=fewest_bits(plan))
    return Query(statistic, plan)


def arrived_variance(plan: Plan, *, invited: int, survivors: int) -> float:
    """Return the variance of the noise in each sum, given how many clients sent their share."""
    gone = invited - _checks.integer("survivors", survivors, 1, invited)
    noise = plan.spec(shares=invited, tolerated=plan.tolerance(invited)).noise
    if not isinstance(noise, SkellamShares):
        raise KindError(f"queries carry Skellam noise from every client, got {noise}")
    removed = noise.superfluous(gone) if plan.removable else ()
    kept = (noise.component(j) for j in range(noise.components) if j not in removed)
    return survivors * (noise.share + sum(kept))
