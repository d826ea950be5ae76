"""Counts, sums and means of one or two numbers from each user, and means of vectors.

Means of vectors are the paper's experiment: each client holds one vector, and the server learns a
private estimate of their mean. `mean_error` repeats that with fresh vectors on a sphere of radius
``clip``, as the paper does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.accounting import gaussian_sigma
from skellam.analytics.query import (
    Bounds,
    Contribution,
    Estimate,
    Interval,
    Outside,
    PlanOptions,
    Query,
    Rows,
    Totals,
    numbers,
    planned,
    rounded,
    share,
)
from skellam.codec import Tensors
from skellam.engines.local import sum_unmasked
from skellam.entropy import SEED_BYTES, Entropy, random_bytes
from skellam.errors import DomainError, InfeasibleError
from skellam.noise import GaussianSampler
from skellam.plan import CalibratedPlan
from skellam.vectors import Reals

FINEST_DEVIATION = 1e4
"""Noise of so many units drowns the rounding of a hundred million users; finer is of no use."""


@dataclass(frozen=True, slots=True)
class Count:
    """How many rows the users hold, at most ``max_rows`` each."""

    max_rows: int

    @property
    def bounds(self) -> Bounds:
        """One number of at most ``max_rows``."""
        return Bounds(1, self.max_rows, self.max_rows, float(self.max_rows))

    def contribution(self, rows: Rows, *, entropy: Entropy) -> Contribution:  # noqa: ARG002
        """Return the number of rows."""
        count = min(len(rows), self.max_rows)
        return Contribution(np.array([count], dtype=np.int32), left_out=len(rows) - count)

    def answer(self, totals: Totals) -> Estimate:
        """Return the number of all rows."""
        return Estimate(float(totals.values[0]), totals.variance)


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of rows in [``low``, ``high``], at most ``max_rows`` a user, in steps of ``unit``.

    A user's sum is at most ``coordinate_bound`` steps. Where ``exact``, ``unit`` is 1.
    """

    low: float
    high: float
    max_rows: int
    coordinate_bound: int
    unit: float
    exact: bool
    outside: Outside

    @property
    def bounds(self) -> Bounds:
        """One number of at most ``coordinate_bound``."""
        return Bounds(1, self.coordinate_bound, self.coordinate_bound, float(self.coordinate_bound))

    def contribution(self, rows: Rows, *, entropy: Entropy) -> Contribution:
        """Return the sum of a random choice of the user's rows, in steps."""
        values, clipped = numbers(rows, self.low, self.high, self.outside)
        if self.exact and not (values == np.round(values)).all():
            raise DomainError("rows must be integers; or ask for the sum of reals")
        chosen = values[share(len(values), self.max_rows, entropy=entropy)]
        steps = rounded(math.fsum(chosen) / self.unit, self.coordinate_bound, entropy=entropy)
        vector = np.array([steps], dtype=np.int32)
        return Contribution(vector, clipped, len(values) - len(chosen))

    def answer(self, totals: Totals) -> Estimate:
        """Return the sum of all users' rows."""
        rounding = 0.0 if self.exact else totals.clients / 4
        return Estimate(
            self.unit * float(totals.values[0]), totals.variance + rounding, unit=self.unit
        )


def count(*, max_rows: int = 1, **options: Unpack[PlanOptions]) -> Query[Estimate]:
    """Ask how many rows the users hold; of each user at most ``max_rows`` count."""
    return planned(Count(_checks.integer("max_rows", max_rows, 1)), **options)


def sum(  # noqa: A001  (the statistic's name)
    low: float,
    high: float,
    *,
    integer: bool = False,
    max_rows: int = 1,
    outside: Outside | str = Outside.CLIP,
    **options: Unpack[PlanOptions],
) -> Query[Estimate]:
    """Ask for the sum of numbers in [``low``, ``high``], at most ``max_rows`` of each user.

    If they are ``integer``, they are added as they are. Of reals each user rounds its sum at
    random, without bias, to steps as fine as the bits allow.
    """
    lowest, highest = interval(low, high)
    rows = _checks.integer("max_rows", max_rows, 1)
    reach = rows * max(abs(lowest), abs(highest))
    if integer and not reach.is_integer():
        raise DomainError(f"low and high must be integers too, got {low!r} and {high!r}")
    steps = int(reach) if integer else finest(options)
    unit = reach / steps
    return planned(Sum(lowest, highest, rows, steps, unit, integer, Outside(outside)), **options)


def interval(low: float, high: float) -> tuple[float, float]:
    """Return ``low`` and ``high`` if they bound an interval."""
    lowest, highest = _checks.number("low", low), _checks.number("high", high)
    if not -math.inf < lowest < highest < math.inf:
        raise DomainError(f"low must be below high and both finite, got {low!r} and {high!r}")
    return lowest, highest


def finest(options: PlanOptions) -> int:
    """Return how many steps a user's largest number may have, for the bits and the noise.

    For many steps the noise is that of the Gaussian mechanism, z steps for each of the user's, and
    ten deviations of it more than cover the headroom that a plan keeps.
    """
    bits = _checks.integer("bits", options.get("bits", 32), 2, 32)
    clients = _checks.integer("clients", options["clients"], 1)
    z = max(1.0, gaussian_sigma(options["epsilon"], options["delta"], 1.0))
    max_steps = 2.0 ** (bits - 1) / (clients + 10 * 2 * z)
    steps = min(math.floor(max_steps), math.ceil(FINEST_DEVIATION / z))
    if steps < 1:
        raise InfeasibleError(
            f"{bits} bits cannot carry a sum over {clients} clients; use more bits"
        )
    return steps


@dataclass(frozen=True, slots=True)
class MeanEstimate:
    """A mean from two noisy sums: of the rows' distances from the middle, and of the rows.

    Both are scaled so that the mean is ``middle + half * offset / weight``.
    """

    low: float
    high: float
    offset: float
    weight: float
    variance: float
    """Of the noise in each of both."""
    rounding: float
    """The largest variance that rounding adds to ``offset``."""

    @property
    def value(self) -> float:
        """The mean; the middle of the range where noise hides that there are rows at all."""
        ratio = self.offset / self.weight if self.weight > 0 else 0.0
        return self._at(ratio)

    def interval(self, confidence: float = 0.95) -> Interval:
        """Return an interval that covers the mean with this probability (Fieller 1954).

        At the true ratio r the difference ``offset - r weight`` has mean 0 and a known variance;
        the interval holds every r for which it is no further from 0 than a normal variable would
        be. The noise has a deviation of thousands of steps, so it is normal to six digits. Where
        the count may be 0, that is the whole range.
        """
        miss = 1 - _checks.open_unit("confidence", confidence)
        square = NormalDist().inv_cdf(miss / 2) ** 2
        a = self.weight**2 - square * self.variance
        b = self.offset * self.weight
        c = self.offset**2 - square * (self.variance + self.rounding)
        if not (a > 0 and self.weight > 0):
            return Interval(self.low, self.high)
        root = math.sqrt(max(0.0, b * b - a * c))
        return Interval(self._at((b - root) / a), self._at((b + root) / a))

    def _at(self, ratio: float) -> float:
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        return middle + half * min(max(ratio, -1.0), 1.0)


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of rows in [``low``, ``high``], of which each user has at most ``max_rows``.

    A user's rows are at most ``steps`` away from the middle, and weigh as much: neither of the two
    sums is known better than the other.
    """

    low: float
    high: float
    max_rows: int
    steps: int
    outside: Outside

    @property
    def bounds(self) -> Bounds:
        """Two numbers of at most ``steps``, reached together by the rows at an end."""
        return Bounds(2, self.steps, 2 * self.steps, self.steps * math.sqrt(2))

    def contribution(self, rows: Rows, *, entropy: Entropy) -> Contribution:
        """Return how far the user's rows are from the middle in all, and how many there are."""
        values, clipped = numbers(rows, self.low, self.high, self.outside)
        chosen = values[share(len(values), self.max_rows, entropy=entropy)]
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        each = self.steps // self.max_rows
        offset = math.fsum((chosen - middle) / half) * each
        vector = [rounded(offset, self.steps, entropy=entropy), each * len(chosen)]
        return Contribution(np.array(vector, dtype=np.int32), clipped, len(values) - len(chosen))

    def answer(self, totals: Totals) -> MeanEstimate:
        """Return the mean of all rows that counted."""
        offset, weight = totals.values.tolist()
        return MeanEstimate(
            self.low, self.high, offset, weight, totals.variance, totals.clients / 4
        )


def mean(
    low: float,
    high: float,
    *,
    max_rows: int = 1,
    outside: Outside | str = Outside.CLIP,
    **options: Unpack[PlanOptions],
) -> Query[MeanEstimate]:
    """Ask for the mean of all rows in [``low``, ``high``], at most ``max_rows`` of each user.

    Where every user holds exactly one row, `sum` and ``Estimate.per`` have half the error.
    """
    lowest, highest = interval(low, high)
    rows = _checks.integer("max_rows", max_rows, 1)
    steps = max(1, finest(options) // rows) * rows
    return planned(Mean(lowest, highest, rows, steps, Outside(outside)), **options)


@dataclass(frozen=True, slots=True)
class MeanSquaredError:
    """Mean squared error per coordinate, with its 95 % interval over the repeats."""

    value: float
    half_width: float
    repeats: int

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.value - self.half_width

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.value + self.half_width


def estimate_mean(plan: CalibratedPlan, vectors: Iterable[Tensors], *, entropy: Entropy) -> Reals:
    """Return a private estimate of the mean of the planned cohort's ``vectors``."""
    seed = random_bytes(SEED_BYTES, entropy=entropy)
    total = sum_unmasked(plan, vectors, cohort=plan.cohort, public_seed=seed, entropy=entropy)
    return total / plan.cohort


def mean_error(
    plan: CalibratedPlan,
    *,
    repeats: int,
    entropy: Entropy,
    same: bool = False,
    progress: Callable[[int], object] | None = None,
) -> MeanSquaredError:
    """Return the measured error of `estimate_mean` on random vectors of norm ``clip``.

    With ``same`` all clients hold the same vector, the worst case for the modulus. ``progress`` is
    told how many repeats are done.
    """
    times = _checks.integer("repeats", repeats, 2)
    errors = np.empty(times)
    for i in range(times):
        errors[i] = _one_error(plan, same, entropy)
        if progress is not None:
            progress(i + 1)
    from scipy.stats import t

    spread = float(errors.std(ddof=1)) / math.sqrt(times)
    return MeanSquaredError(float(errors.mean()), spread * float(t.ppf(0.975, times - 1)), times)


def _one_error(plan: CalibratedPlan, same: bool, entropy: Entropy) -> float:
    truth = np.zeros(plan.dimension)
    fixed = on_sphere(plan, entropy=entropy) if same else None

    def vectors() -> Iterable[NDArray[np.float64]]:
        nonlocal truth
        for _ in range(plan.cohort):
            x = on_sphere(plan, entropy=entropy) if fixed is None else fixed
            truth += x
            yield x

    estimate = estimate_mean(plan, vectors(), entropy=entropy)
    return float(np.mean((estimate.values - truth / plan.cohort) ** 2))


def on_sphere(plan: CalibratedPlan, *, entropy: Entropy) -> NDArray[np.float64]:
    """Return a vector of norm ``clip`` in a uniformly random direction."""
    direction = GaussianSampler(1.0).draw(plan.dimension, entropy=entropy).values
    return np.asarray(direction * (plan.clip / np.linalg.norm(direction)))
