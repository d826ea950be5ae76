"""Cohort sizes: how many clients of a round may drop out and how many may collude.

One rule, one function: noise, secure aggregation and accounting all ask a `Tolerance`, which works
in integers and fractions alone, so that no two parties can round differently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor, log, sqrt

from skellam import _checks
from skellam.errors import DomainError, InfeasibleError, KindError

MAX_TAIL_BITS = 1 << 10
MAX_COHORT = 65_535
"""The largest cohort that secure aggregation takes, and so the largest that must be feasible."""


def exact_share(name: str, value: float | str | Fraction) -> Fraction:
    """Return a share of 0 or more and below 1 as the fraction that its shortest decimal means.

    >>> exact_share("dropout", 0.29) * 100
    Fraction(29, 1)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str | Fraction):
        raise KindError(f"{name} must be a number, got {value!r}")
    try:
        share = Fraction(str(value))
    except (ValueError, ZeroDivisionError) as error:
        raise DomainError(f"{name} must lie in [0, 1), got {value!r}") from error
    if not 0 <= share < 1:
        raise DomainError(f"{name} must lie in [0, 1), got {value!r}")
    return share


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The clients that a round must be able to lose or distrust, for a cohort of any size.

    ``dropout`` is the share of a cohort that may drop out. ``colluding`` is the share of the
    POPULATION that may work for the server; a cohort is drawn from it without replacement, so it
    holds more than `colluders` of them with a chance of at most ``2**-tail_bits``, which the
    accounting charges to delta. Without a ``population`` draws are independent (binomial).
    """

    dropout: Fraction = Fraction(0)
    colluding: Fraction = Fraction(0)
    population: int | None = None
    tail_bits: int = 40

    def __post_init__(self) -> None:
        _checks.assign(
            self,
            dropout=exact_share("dropout", self.dropout),
            colluding=exact_share("colluding", self.colluding),
        )
        if self.population is not None:
            _checks.integer("population", self.population, 1)
        _checks.integer("tail_bits", self.tail_bits, 1, MAX_TAIL_BITS)

    def dropouts(self, n: int) -> int:
        """Return how many of ``n`` clients may drop out."""
        return floor(self.dropout * n)

    def survivors(self, n: int) -> int:
        """Return the fewest of ``n`` clients whose sum may be opened."""
        return n - self.dropouts(n)

    def surplus(self, survivors: Sequence[int], n: int) -> tuple[int, ...]:
        """Return those of the ``survivors`` of ``n`` clients whose noise is taken off again.

        The noise of `survivors` of them is what a sum needs; of any more those with the highest
        numbers give theirs away, a rule that everybody can follow from the signed list alone.
        """
        return tuple(sorted(survivors)[self.survivors(n) :])

    def colluders(self, n: int) -> int:
        """Return how many of ``n`` clients may collude: exceeded with chance ``2**-tail_bits``.

        It is at least one wherever ``colluding`` is above zero.
        """
        if not self.colluding:
            return 0
        if self.population is None:
            return _binomial_quantile(n, self.colluding, self.tail_bits)
        everywhere = max(1, floor(self.colluding * self.population))
        return _hypergeometric_quantile(self.population, everywhere, n, self.tail_bits)

    def feasible(self, n: int) -> bool:
        """Return whether ``n`` clients can be summed: an honest majority, and two honest ones."""
        alive, known = self.survivors(n), self.colluders(n)
        return 2 * alive > n + known and alive - known >= 2

    def min_cohort(self) -> int:
        """Return the least size from which on every cohort is `feasible`, or raise."""
        return _min_cohort(self)

    def colluding_share(self, min_cohort: int) -> Fraction:
        """Return the largest share of the noise that colluders know, over all larger cohorts too.

        Whoever chooses who "drops out" keeps all colluders among the fewest survivors.
        """
        return _colluding_share(self, min_cohort)

    def share_bound(self, n: int) -> Fraction:
        """Bound ``colluders / survivors`` for all sizes of ``n`` or more; it falls with n.

        Chernoff's inequality, which holds without replacement too (Hoeffding 1963), rounded up.
        """
        p = float(max(self.colluding, Fraction(1, self.population or n)))
        low, high = p, 1.0
        for _ in range(50):
            x = (low + high) / 2
            divergence = x * log(x / p) + (1 - x) * log((1 - x) / (1 - p))
            low, high = (x, high) if n * divergence < self.tail_bits * log(2) else (low, x)
        return (Fraction(high) + Fraction(2, n)) / (1 - self.dropout)

    def certainly_feasible(self) -> int:
        """Return a size from which on Hoeffding's inequality makes every cohort feasible."""
        spare = 1 - 2 * self.dropout - self.colluding
        if not spare > 0:
            if self.population is not None and self.feasible(self.population):
                return self.population
            raise InfeasibleError(
                f"a dropout of {float(self.dropout):g} and {float(self.colluding):g} colluding "
                "leave no honest majority at any size; 2 * dropout + colluding must be below 1"
            )
        if not self.colluding:
            # 2 (n - D) > n and n - D >= 2 hold where D <= dropout n < n / 2.
            return ceil(2 / (1 - self.dropout)) + 1
        root = sqrt(self.tail_bits * log(2) / 2) * (1 + 1e-9)
        # n spare - sqrt(n) root - 3 > 0
        x = (root + sqrt(root * root + 12 * spare)) / (2 * spare)
        size = ceil(x * x * (1 + 1e-9)) + 4
        return size if self.population is None else min(size, self.population)


@lru_cache(maxsize=256)
def _min_cohort(tolerance: Tolerance) -> int:
    size = min(tolerance.certainly_feasible(), MAX_COHORT)
    if not tolerance.feasible(size):
        raise InfeasibleError(
            f"no cohort of up to {size} bears a dropout of {float(tolerance.dropout):g} and "
            f"{float(tolerance.colluding):g} colluding; lower one of them"
        )
    step = 1
    while size > 2:
        low = max(2, size - step)
        if _all_feasible(tolerance, low, size - 1):
            size, step = low, 2 * step
        elif step > 1:
            step //= 2
        else:
            break
    return size


def _all_feasible(tolerance: Tolerance, low: int, high: int) -> bool:
    """Return whether all of ``low .. high`` are feasible, or may say no where there are many."""
    if low == high:
        return tolerance.feasible(low)
    # n - 2 D is at least n (1 - 2 dropout); colluders and survivors grow with n.
    known = tolerance.colluders(high)
    return low * (1 - 2 * tolerance.dropout) > known and tolerance.survivors(low) - known >= 2


@lru_cache(maxsize=256)
def _colluding_share(tolerance: Tolerance, min_cohort: int) -> Fraction:
    if not tolerance.colluding:
        return Fraction(0)
    worst, lower, step = Fraction(0), min_cohort, 0
    while tolerance.share_bound(lower) > worst and lower <= (tolerance.population or lower):
        # Colluders and survivors both grow with n: this bounds all of lower .. lower + step.
        bound = Fraction(tolerance.colluders(lower + step), tolerance.survivors(lower))
        if bound > worst and step:
            step //= 4
            continue
        worst, lower, step = max(worst, bound), lower + step + 1, 2 * step + 1
    return worst


@lru_cache(maxsize=4096)
def _binomial_quantile(n: int, share: Fraction, bits: int) -> int:
    """Return the least c with P(Bin(n, share) > c) <= 2**-bits, at least 1."""
    a, b = share.numerator, share.denominator

    def odds(c: int) -> tuple[int, int]:
        return (n - c) * a, (c + 1) * (b - a)

    return _quantile(odds, 0, n, floor(share * n), bits)


@lru_cache(maxsize=4096)
def _hypergeometric_quantile(population: int, marked: int, draws: int, bits: int) -> int:
    """Return the least c with P(X > c) <= 2**-bits, at least 1.

    X counts the marked among ``draws`` taken without replacement.
    """
    n = min(draws, population)
    low, high = max(0, n + marked - population), min(n, marked)

    def odds(c: int) -> tuple[int, int]:
        return (marked - c) * (n - c), (c + 1) * (population - marked - n + c + 1)

    return _quantile(odds, low, high, (n + 1) * (marked + 1) // (population + 2), bits)


def _quantile(
    odds: Callable[[int], tuple[int, int]], low: int, high: int, mode: int, bits: int
) -> int:
    """Return the least c, at least 1, with P(X > c) <= 2**-bits.

    ``odds(c)`` is P(X = c + 1) / P(X = c), which falls in c. Weights are integers in units of
    2**-(bits + 256) of that of a central value: rounded down at each step away from it, they are
    off by fewer units than there are values, so the squared number of values covers every sum. All
    of it is in integers, so that everybody gets the same number.
    """
    mode = min(max(mode, low), high)
    one, above, below = 1 << (bits + 256), [], 0
    weight, c = one, mode
    while c < high and weight:
        up, down = odds(c)
        weight = weight * up // down
        above.append(weight)
        c += 1
    weight, c = one, mode
    while c > low and weight:
        up, down = odds(c - 1)
        weight = weight * down // up
        below += weight
        c -= 1
    total = one + below + sum(above)
    tail, c = (high - low + 2) ** 2, mode + len(above)
    while above and (tail + above[-1]) << bits <= total:
        tail += above.pop()
        c -= 1
    return max(1, c)
