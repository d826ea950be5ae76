"""Queries: what users contribute, what is answered, and the plan that protects it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Generic, NotRequired, Protocol, TypedDict, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from skellam.analytics.contribution import Contribution, Rows
from skellam.entropy import Entropy
from skellam.errors import DomainError
from skellam.plan import CalibratedPlan, NoiseBy, Plan, Rounding, Sampling, Servers
from skellam.plan.integers import min_bits
from skellam.vectors import Reals

AnswerT = TypeVar("AnswerT")
AnswerT_co = TypeVar("AnswerT_co", covariant=True)


class PlanOptions(TypedDict):
    """Who takes part, and how private it is for each of them.

    Every client is one user, and adds its share of the noise, unless two servers do. ``bits`` are
    the fewest that do unless given; the others are those of `skellam.Plan`. A query that is asked
    in ``rounds`` rounds asks everybody in each, or with ``sampling="cyclic"`` and a ``population``
    one group of about ``clients`` users after the other.
    """

    clients: int
    epsilon: float
    delta: float
    bits: NotRequired[int]
    dropout: NotRequired[float]
    colluding: NotRequired[float]
    rounds: NotRequired[int]
    population: NotRequired[int]
    sampling: NotRequired[str]
    aggregation: NotRequired[str]
    noise_by: NotRequired[str]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one user can add at most to the ``dimension`` integers of a query."""

    dimension: int
    coordinate_bound: int
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
    plan: CalibratedPlan

    def contribution(self, rows: Rows, *, entropy: Entropy) -> Contribution:
        """Return what a user who holds ``rows`` adds; only its ``vector`` leaves the device."""
        return self.statistic.contribution(rows, entropy=entropy)

    def answer(self, total: Reals, *, survivors: int) -> AnswerT:
        """Return what the decoded sum of ``survivors`` clients says.

        Its noise has the plan's total variance, however many clients took part or dropped out.
        """
        values = total.values.astype(np.float64)
        return self.statistic.answer(Totals(values, self.plan.total_variance, survivors))

    @property
    def digest(self) -> bytes:
        """SHA-256 of all that clients must agree on: the statistic and the plan."""
        return sha256(repr(self.statistic).encode() + self.plan.digest).digest()


def planned(statistic: Statistic[AnswerT], **options: Unpack[PlanOptions]) -> Query[AnswerT]:
    """Return the query for ``statistic`` with the least noise that ``options`` allow."""
    unknown = set(options) - PlanOptions.__annotations__.keys()
    if unknown:
        known = ", ".join(PlanOptions.__annotations__)
        raise DomainError(f"got the unknown option {min(unknown)!r}; the options are {known}")
    bounds = statistic.bounds
    sampling = Sampling(options.get("sampling", Sampling.ALL))
    if sampling is Sampling.SELF:
        raise DomainError(
            'sampling="self" hides how many take part, which an answer needs; take "poisson", '
            '"fixed", "cyclic" or "all"'
        )
    asked = Plan(
        dimension=bounds.dimension,
        clip=bounds.l2,
        l1=bounds.l1,
        coordinate_bound=bounds.coordinate_bound,
        rounding=Rounding.INTEGER,
        cohort=options["clients"],
        rounds=options.get("rounds", 1),
        population=options.get("population"),
        sampling=sampling,
        public_sizes=sampling is Sampling.POISSON,  # answers state how many took part
        bits=options.get("bits", 32),
        dropout=options.get("dropout", 0.0),
        colluding=options.get("colluding", 0.0),
        aggregation=Servers(options.get("aggregation", Servers.ONE)),
        noise_by=None if (noise_by := options.get("noise_by")) is None else NoiseBy(noise_by),
    )
    if not asked.colluding:
        # Nothing is saved by refusing cohorts that are smaller than planned.
        asked = replace(asked, min_cohort=asked.tolerance.min_cohort())
    targets = {"epsilon": options["epsilon"], "delta": options["delta"]}
    plan = asked.calibrated(**targets)
    if "bits" not in options:
        plan = replace(asked, bits=min_bits(plan)).calibrated(**targets)
    return Query(statistic, plan)
