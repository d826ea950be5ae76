"""Queries and their results: contributions, the plan that protects them, a run in this process.

A contribution is bounded before anything else, since the user is the unit of privacy. Results carry
the law of their noise, from which intervals follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from typing import (
    Any,
    Generic,
    NamedTuple,
    NotRequired,
    Protocol,
    Self,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
)

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam._kernels import round_stochastic
from skellam.accounting.laws import skellam_law
from skellam.accounting.ledger import Ledger
from skellam.codec import Tensors
from skellam.engines import local, sampling
from skellam.entropy import Entropy
from skellam.errors import DomainError, KindError, ShapeError
from skellam.plan import CalibratedPlan, NoiseBy, Plan, Rounding, Sampling, Servers
from skellam.plan.integers import min_bits
from skellam.vectors import Reals

Label = TypeVar("Label")
Table = NDArray[np.float64]


class Interval(NamedTuple):
    """Two numbers that have the truth between them, with a stated probability."""

    low: float
    high: float


class Band(NamedTuple):
    """An interval for each of several numbers."""

    low: Table
    high: Table


@lru_cache(maxsize=256)
def half_width(variance: float, confidence: float) -> int:
    """Return the least h with P(abs(X) <= h) >= ``confidence`` for Skellam X of ``variance``."""
    miss = 1 - _checks.open_unit("confidence", confidence)
    if variance == 0:
        return 0
    survival = skellam_law(variance).log_survival
    # P(abs(X) > h) = 2 P(X >= h + 1).
    return int(np.searchsorted(-survival, -math.log(miss / 2))) - 1


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with noise: ``unit`` times Skellam noise of ``variance``."""

    value: float
    variance: float
    """Of the noise and, at most, of rounding, in units of ``unit``."""
    unit: float = 1.0
    lowest: float = -math.inf
    """The truth is known not to lie below."""

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise."""
        return self.unit * math.sqrt(self.variance)

    def interval(self, confidence: float = 0.95) -> Interval:
        """Return the interval that covers the truth with probability ``confidence`` or more.

        Rounding, where there is any, counts as Skellam noise of its largest variance.
        """
        half = self.unit * half_width(self.variance, confidence)
        ends = (max(self.lowest, self.value + side) for side in (-half, half))
        return Interval(*ends)

    def per(self, count: int) -> Self:
        """Return the estimate over a ``count`` that is public, such as the surviving clients."""
        n = _checks.integer("count", count, 1)
        return replace(self, value=self.value / n, unit=self.unit / n, lowest=self.lowest / n)

    def non_negative(self) -> Self:
        """Return the estimate of a number that cannot be negative; no longer without bias."""
        return replace(self, value=max(0.0, self.value), lowest=0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Counts(Generic[Label]):
    """A count for every bucket, each with Skellam noise of ``variance`` of its own."""

    labels: tuple[Label, ...]
    values: Table
    variance: float
    lowest: float = -math.inf

    @property
    def deviation(self) -> float:
        """The standard deviation of each count's noise."""
        return math.sqrt(self.variance)

    def interval(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Band:
        """Return an interval for every count.

        Each covers its count with probability ``confidence``; with ``simultaneous`` all do at once
        (Bonferroni).
        """
        miss = 1 - _checks.open_unit("confidence", confidence)
        half = half_width(self.variance, 1 - miss / (len(self.labels) if simultaneous else 1))
        low, high = (np.maximum(self.lowest, self.values + side) for side in (-half, half))
        return Band(low, high)

    def non_negative(self) -> Self:
        """Return the counts with negative ones set to zero; no longer without bias."""
        return replace(self, values=np.maximum(0.0, self.values), lowest=0.0)

    def __getitem__(self, label: Label) -> Estimate:
        if label not in self.labels:
            raise DomainError(f"there is no bucket {label!r}; `labels` has all of them")
        value = float(self.values[self.labels.index(label)])
        return Estimate(value, self.variance, lowest=self.lowest)

    def top(self, count: int) -> tuple[Label, ...]:
        """Return the labels of the ``count`` largest buckets, largest first."""
        order = np.argsort(-self.values, kind="stable")[: _checks.integer("count", count, 1)]
        return tuple(self.labels[i] for i in order)


Rows: TypeAlias = Sequence[Any] | NDArray[Any]
"""What one user holds."""


class Outside(StrEnum):
    """What happens to a value outside its range."""

    CLIP = "clip"
    """It moves to the nearest end, and is counted on the device."""
    REFUSE = "refuse"
    """It raises."""


@dataclass(frozen=True, slots=True, eq=False)
class Contribution:
    """A user's whole numbers, and what was cut to get them; the vector alone leaves the device."""

    vector: NDArray[np.int32]
    clipped: int = 0
    """Values that were moved to an end of their range."""
    left_out: int = 0
    """Rows that were too many for one user."""


class Numbers(NamedTuple):
    """A user's numbers within their range, and how many were moved there."""

    values: NDArray[np.float64]
    clipped: int


def numbers(rows: Rows, low: float, high: float, outside: Outside) -> Numbers:
    """Return ``rows`` as numbers from ``low`` to ``high``; NaN is refused."""
    values = np.asarray(rows)
    if values.size == 0:
        values = np.empty(0)
    if values.dtype.kind not in "iufb":
        raise KindError(f"rows must be numbers, got {values.dtype}")
    if values.ndim != 1:
        raise ShapeError(f"rows must have one dimension, got shape {values.shape}")
    values = values.astype(np.float64)
    if np.isnan(values).any():
        raise DomainError(f"rows must not be NaN, but row {int(np.isnan(values).argmax())} is")
    beyond = (values < low) | (values > high)
    if outside is Outside.REFUSE and beyond.any():
        raise DomainError(
            f"rows must lie in [{low:g}, {high:g}], got {values[beyond][0]:g}; "
            'or let outside="clip" move them there'
        )
    return Numbers(np.clip(values, low, high), int(beyond.sum()))


def share(count: int, limit: int, *, entropy: Entropy) -> NDArray[np.intp]:
    """Return ``limit`` of the indices below ``count``, at random, or all if there are no more."""
    if count <= limit:
        return np.arange(count)
    keys = np.empty(count, dtype=np.uint64)
    entropy.fill(keys)
    return np.argpartition(keys, limit)[:limit]


def tally(
    buckets: NDArray[np.intp],
    length: int,
    *,
    max_buckets: int,
    max_rows: int,
    entropy: Entropy,
) -> tuple[NDArray[np.int32], int]:
    """Count rows by bucket, in at most ``max_buckets`` with at most ``max_rows`` each.

    Where a user has more buckets, a random choice of them counts. Also return how many rows do not.
    """
    kinds, counts = np.unique(buckets, return_counts=True)
    chosen = share(len(kinds), max_buckets, entropy=entropy)
    vector = np.zeros(length, dtype=np.int32)
    vector[kinds[chosen]] = np.minimum(counts[chosen], max_rows)
    return vector, len(buckets) - int(np.minimum(counts[chosen], max_rows).sum())


def rounded(value: float, bound: int, *, entropy: Entropy) -> int:
    """Return ``value`` rounded at random to an integer of the same mean, within ``bound``.

    Integer bounds stay bounds: a number of at most ``bound`` has no neighbour beyond it, so the
    coins cost nothing in the accounting.
    """
    coins, out = np.empty(1, dtype=np.uint32), np.empty(1, dtype=np.int32)
    entropy.fill(coins)
    round_stochastic(np.array([min(max(value, -bound), bound)]), coins, out)
    return int(out[0])


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


def run(
    query: Query[AnswerT],
    users: Sequence[Rows],
    *,
    entropy: Entropy,
    aggregate: local.Aggregate = local.unmasked,
    round_: int = 0,
    dropouts: Collection[int] = (),
    ledger: Ledger | None = None,
    key: bytes | None = None,
    watch: Callable[[Contribution], object] | None = None,
) -> AnswerT:
    """Return the answer of ``users``, each of whom holds some rows.

    ``aggregate`` is `skellam.engines.local.unmasked` or ``secure``,
    `skellam.engines.two_servers.two_servers`, or what training takes, such as ``fl.secure()``;
    ``dropouts`` do not send. A cyclic query asks the group of round ``round_`` alone, of users who
    are the same, in the same order, in every round. The release
    is spent from ``ledger`` under ``key`` when all messages are in and before they are summed, so
    that `BudgetError` means that nothing was released, and bad rows cost nothing. (A device in the
    field sends zeros with its noise for bad rows.) ``watch`` is given what each user adds: how many
    values were clipped or left out is no public number.
    """
    if not len(users):
        raise ShapeError("users must hold at least one user")
    plan = query.plan
    _checks.integer("users", len(users), 1, plan.population_size, hint="plan for more clients")
    if plan.sampling is Sampling.CYCLIC and len(users) != plan.population_size:
        raise ShapeError(
            f"users must be the same {plan.population_size} in every round of a cyclic query, got "
            f"{len(users)}: of others other groups are dealt, in which a user answers more often "
            "than planned; name those who are away in dropouts"
        )
    members = sampling.sample(
        plan, range(len(users)), round_=round_, group_seed=query.digest, entropy=entropy
    )
    asked = local.Round(round_, query.digest, tuple(members), dropouts)

    def update(number: int) -> Tensors:
        added = query.contribution(users[number], entropy=entropy)
        if watch is not None:
            watch(added)
        return added.vector

    def spend() -> None:
        if ledger is not None:
            ledger.spend(
                plan.mechanism,
                key=key,
                replayable=entropy.replayable,
                note=type(query.statistic).__name__,
            )

    result = aggregate(plan, asked, update, entropy=entropy, spend=spend)
    return query.answer(result.total, survivors=len(result.survivors))
