"""Cohort sizes: how many clients of a round may drop out and how many may collude.

One rule, one function: noise, secure aggregation and accounting all ask a `Tolerance`, which works
in integers and fractions alone, so that no two parties can round differently.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, comb, floor, log, sqrt

from skellam import _checks
from skellam.errors import DomainError, InfeasibleError, KindError

MAX_TAIL_BITS = 1 << 10


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
        object.__setattr__(self, "dropout", exact_share("dropout", self.dropout))
        object.__setattr__(self, "colluding", exact_share("colluding", self.colluding))
        if self.population is not None:
            _checks.integer("population", self.population, 1)
        _checks.integer("tail_bits", self.tail_bits, 1, MAX_TAIL_BITS)

    def dropouts(self, n: int) -> int:
        """Return how many of ``n`` clients may drop out."""
        return floor(self.dropout * n)

    def survivors(self, n: int) -> int:
        """Return the fewest of ``n`` clients whose sum may be opened."""
        return n - self.dropouts(n)

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
        end = self._certainly_feasible()
        least = end
        while least > 2 and self.feasible(least - 1):
            least -= 1
        if self.population is not None and least > self.population:
            raise InfeasibleError(
                f"no cohort out of {self.population} bears a dropout of {float(self.dropout):g} "
                f"and {float(self.colluding):g} colluding; lower one of them"
            )
        return least

    def colluding_share(self, min_cohort: int) -> Fraction:
        """Return the largest share of the noise that colluders know, over all larger cohorts too.

        Whoever chooses who "drops out" keeps all colluders among the fewest survivors.
        """
        if not self.colluding:
            return Fraction(0)
        worst, lower, step = Fraction(0), min_cohort, 0
        while self._share_bound(lower) > worst and lower <= (self.population or lower):
            # colluders and survivors both grow with n: this bounds all of lower .. lower + step.
            bound = Fraction(self.colluders(lower + step), self.survivors(lower))
            if bound > worst and step:
                step //= 4
                continue
            worst, lower, step = max(worst, bound), lower + step + 1, 2 * step + 1
        return worst

    def _share_bound(self, n: int) -> Fraction:
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

    def _certainly_feasible(self) -> int:
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


@lru_cache(maxsize=4096)
def _binomial_quantile(n: int, share: Fraction, bits: int) -> int:
    """Return the least c with P(Bin(n, share) > c) <= 2**-bits, at least 1, exactly."""
    a, b = share.numerator, share.denominator
    total, term, c = b**n, (b - a) ** n, 0
    beyond = total - term
    while beyond << bits > total or c < 1:
        term = term * (n - c) * a // ((c + 1) * (b - a))
        beyond, c = beyond - term, c + 1
    return c


@lru_cache(maxsize=4096)
def _hypergeometric_quantile(population: int, marked: int, draws: int, bits: int) -> int:
    """Return the least c with P(X > c) <= 2**-bits, at least 1, exactly.

    X counts the marked among ``draws`` taken without replacement.
    """
    n = min(draws, population)
    c = max(0, n + marked - population)  # the least value that X can have
    total = comb(population, n)
    term = comb(marked, c) * comb(population - marked, n - c)
    beyond = total - term
    while beyond << bits > total or c < 1:
        term = term * (marked - c) * (n - c) // ((c + 1) * (population - marked - n + c + 1))
        beyond, c = beyond - term, c + 1
    return c
