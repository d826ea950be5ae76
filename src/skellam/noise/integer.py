"""Integer samplers: Skellam, discrete Gaussian and discrete Laplace noise from 128-bit tables.

Drawing is exact to 128 bits: ``total_variation`` bounds the distance of what is drawn from the
ideal law, with the table's start, truncation and rounding, and is at most ``2**-100``. For Skellam
every single probability is within ``2**-126`` of its law's.

*Weights.* A law symmetric about zero is given by integers ``w[0], ..., w[M]``: the weight of ``k``
is ``w[|k|]``. No floating-point exponential, logarithm or Bessel function enters a weight.

*The table.* With U uniform on ``0 .. 2**128 - 1`` the draw is ``X = -M + #{j : C[j] <= U}`` for the
``2M`` steps ``C[j] = floor(2**128 P(X <= j - M))`` of the left half and their mirror images
``2**128 - C[j]``. So X is symmetric to the last bit. The first bits of U mostly decide: ``cells``
holds X for each prefix of U, or a mark where a step lies within the cell.

*Drawing.* The bits are taken from the entropy in this order for every span of 2**20 draws: one word
each (16 bits, or 32 for tables with a longer prefix); then 64 bits for each draw that its prefix
leaves undecided, of which those beyond the word's extend it to 64 bits; then 64 bits for each of
these that equals the high half of a step. So a draw depends on the entropy alone, whichever back
end does the arithmetic. Time and memory access depend on the draw: this is not constant-time code.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from itertools import accumulate, pairwise, takewhile
from typing import Any, ClassVar, Final, Self, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skellam import _checks, _kernels
from skellam.entropy import Entropy
from skellam.errors import CertificateError, DomainError, KindError
from skellam.vectors import Lattice

_SMALLEST = 132
"""Weights below ``2**-_SMALLEST`` of the central one are cut off: a 128-bit CDF has no room."""
_START_TAIL = 172
"""The Skellam recurrence starts where the tail is below ``2**-_START_TAIL``."""
_GUARD = 192
_FIXED = 320


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of ``0, 1, ..., M`` and the total variation of their law from the ideal one."""

    values: list[int]
    total_variation: Fraction


def skellam_weights(variance: float | Fraction) -> Weights:
    """Return weights of the symmetric Skellam law, ``w[k]`` proportional to ``I_k(variance)``.

    ``I[k-1] = I[k+1] + (2k/v) I[k]`` runs backwards from K on integers, started at w[K+1] = w[K].
    Let r[k] = I[k]/I[k-1] (in (0, 1), for I decreases in its order) and R[k] = w[k]/w[k-1].

    * Start and division. Floor division makes w[k-1] = exact * (1 - t) with 0 <= t <= 2**-G, so
      r[k]/R[k] = (1 - t)(1 + (R[k+1] - r[k+1]) r[k]). With D[k] = |r[k]/R[k] - 1| and R, r <= 1
      this gives D[K] <= 1 + 2t and D[k] <= D[k+1] R[k+1] + 2t, hence
      D[k] <= w[K]/w[k] + 2K 2**-G for every k.
    * Let q[k] = I[k]/I[0] and p[k] = w[k]/w[0], so q[k]/p[k] is a product of k factors 1 +- D[j].
      If the sum of D[1..M] is at most 1, then |q[k] - p[k]| <= 2 p[k] (D[1] + ... + D[k]); w falls,
      so the sum of p[k] over j <= k <= M is at most M p[j], and the L1 distance on [-M, M] is at
      most 4 M**2 p[K] + 8 M K 2**-G sum(p). Normalising costs no more than dividing by sum(p).
    * Truncation to [-M, M] costs the tail P(|X| > M), bounded by Chernoff.
    """
    numerator, denominator = variance.as_integer_ratio()
    rounded = float(variance)
    start = bisect_left(
        range(1 << 24), _START_TAIL * math.log(2), key=lambda t: _chernoff_exponent(t, rounded)
    )
    falling = [1 << _GUARD, 1 << _GUARD]
    for k in range(start, 0, -1):
        falling.append(falling[-2] + 2 * k * denominator * falling[-1] // numerator)
    weights = falling[:0:-1]
    if not all(a >= b for a, b in pairwise(weights)):
        raise CertificateError(f"the weights for variance {variance!r} do not fall")
    values = list(takewhile((weights[0] >> _SMALLEST).__lt__, weights))
    M = len(values) - 1
    relative = Fraction(weights[start], values[-1]) + Fraction(2 * start, 1 << _GUARD)
    if not M * relative <= 1:
        raise CertificateError(f"the recurrence for variance {variance!r} starts too near")
    distance = Fraction(4 * M * M * weights[start], _mass(values)) + Fraction(
        8 * M * start, 1 << _GUARD
    )
    # The exponent, at most 300, is half or more of either of its terms: 0.1 % covers its rounding
    # and that of the variance.
    tail = 2 * Fraction(math.exp(-_chernoff_exponent(M + 1, rounded))) * Fraction(1001, 1000)
    return Weights(values, distance + tail)


def discrete_gaussian_weights(sigma: float) -> Weights:
    """Return weights of the discrete Gaussian law, proportional to ``exp(-k^2 / (2 sigma^2))``."""
    variance = Fraction(sigma) ** 2
    return _fixed_point(first=_exp_minus(1 / (2 * variance)), quotient=_exp_minus(1 / variance))


def discrete_laplace_weights(scale: float) -> Weights:
    """Return weights of the discrete Laplace law, proportional to ``exp(-|k| / scale)``."""
    return _fixed_point(first=_exp_minus(1 / Fraction(scale)), quotient=1 << _FIXED)


def _fixed_point(first: int, quotient: int) -> Weights:
    """Return weights with w[0] = 1, w[k+1] = w[k] f[k], f[0] = first, f[k+1] = f[k] quotient.

    Everything is at most 1 in fixed point with unit u = 2**-F. ``first`` and ``quotient`` are good
    to 2u and a product is floored, so f[k] is good to (3k + 2)u and w[k] to 3(k + 1)**2 u: over
    all k below M, twice, less than 6(M + 1)**3 u. From M on the factors only fall, so the tail is
    at most the geometric w[M]/(1 - f[M]). As w[0] = 1 the normaliser is at least 1.
    """
    one = 1 << _FIXED
    values, weight, factor = [], one, first
    while weight > one >> _SMALLEST:
        values.append(weight)
        weight, factor = weight * factor >> _FIXED, factor * quotient >> _FIXED
    M = len(values)
    error = Fraction(6 * (M + 1) ** 3, one)
    ratio = Fraction(factor + 3 * M + 5, one)
    tail = 2 * (Fraction(weight, one) + error) / (1 - ratio)
    return Weights(values, error + tail)


def _exp_minus(x: Fraction) -> int:
    """Return exp(-x) in fixed point, within two units.

    Decimal arithmetic rounds correctly, exp included; 120 digits for a value of at most 1 whose
    argument is at most 320 leave an error far below one unit of 2**-320.
    """
    if x > _FIXED:
        return 0
    context = Context(prec=120)
    argument = context.divide(Decimal(-x.numerator), Decimal(x.denominator))
    return math.floor(Fraction(context.exp(argument)) * (1 << _FIXED))


def _mass(weights: list[int]) -> int:
    return 2 * sum(weights) - weights[0]


def _chernoff_exponent(t: float, v: float) -> float:
    """Return a with P(|X| >= t) <= 2 exp(-a) for X of the Skellam law with variance v."""
    return t * math.asinh(t / v) - t * t / (math.hypot(t, v) + v)


DRAW_DISTANCE: Final = 2.0**-100
"""Total variation of one draw from its law, at most, whatever the law."""
ATOM_ERROR: Final = 2.0**-126
"""Error of the probability of any integer in one draw of Skellam noise, at most."""


_FULL = 1 << 128
_WIDE = 3000
"""Laws that reach further than this (variance 5e4 and more) are worth a 20-bit prefix."""
_SPAN = 1 << 20
_BLOCK = 1 << 16
"""Words of one block, and what is looked up by them, stay in the second-level cache."""
_CACHE_BYTES = 1 << 27
_cache: OrderedDict[Hashable, Table] = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class _Tabulated(ABC):
    """A law on the integers, symmetric about zero, and how to draw from it."""

    _table: Table = field(init=False, repr=False, compare=False)
    _max_atom_error: ClassVar[float] = 1.0

    @abstractmethod
    def _parameter(self) -> tuple[str, float | Fraction, float, float]:
        """Return the parameter's name and value, and the smallest and largest that work."""

    @abstractmethod
    def _weights(self) -> Weights:
        """Return the law as integers."""

    def __post_init__(self) -> None:
        name, given, low, high = self._parameter()
        value = _checks.between(name, given, low, high)
        if not isinstance(given, Fraction):
            _checks.assign(self, **{name: value})
        # Floats and fractions of one value are equal and hash alike: they share a table.
        table = _cached_table((type(self), self._parameter()[1]), self._weights)
        if not (
            table.total_variation <= DRAW_DISTANCE and table.atom_error <= self._max_atom_error
        ):
            raise CertificateError(
                f"the table for {name} = {value!r} is not close enough to its law"
            )
        _checks.assign(self, _table=table)

    def __reduce__(self) -> tuple[type[Self], tuple[float | Fraction]]:
        return type(self), (self._parameter()[1],)

    @property
    def total_variation(self) -> float:
        """An upper bound on the total variation between one draw and the ideal law."""
        return self._table.total_variation

    @property
    def bound(self) -> int:
        """The largest absolute value that is ever drawn."""
        return self._table.bound

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the draws: the narrowest of int16 and int32 that holds ``bound``."""
        return self._table.cells.dtype

    def pmf(self, k: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of each ``k``; zero beyond ``bound``, where nothing is drawn."""
        mass = np.append(self._table.mass, 0.0)
        distance = np.abs(_integers(k, self.bound + 1))
        return mass[distance]

    def log_pmf(self, k: ArrayLike) -> NDArray[np.float64]:
        """Return the natural logarithm of ``pmf``."""
        with np.errstate(divide="ignore"):
            return np.log(self.pmf(k))

    def draw(self, size: int, *, entropy: Entropy) -> Lattice:
        """Return ``size`` independent draws."""
        values = np.empty(_checks.integer("size", size, 0), dtype=self.dtype)
        draw_into(values, self._table, entropy=entropy)
        return Lattice(values, replayable=entropy.replayable)

    def draw_into(self, buffer: NDArray[Any], *, entropy: Entropy) -> None:
        """Overwrite ``buffer``, of a signed type that holds ``bound``, with independent draws."""
        if not isinstance(buffer, np.ndarray) or buffer.dtype.kind != "i" or buffer.ndim != 1:
            raise KindError("buffer must be a one-dimensional NumPy array of signed integers")
        if np.iinfo(buffer.dtype).max < self.bound:
            raise DomainError(
                f"buffer of {buffer.dtype} cannot hold draws up to {self.bound}; use {self.dtype}"
            )
        if not buffer.flags.writeable:
            raise DomainError("buffer must be writeable; pass a fresh array")
        draw_into(buffer, self._table, entropy=entropy)


@final
@dataclass(frozen=True, slots=True)
class SkellamSampler(_Tabulated):
    """The difference of two Poisson draws of mean ``variance / 2``.

    Independent draws add up to the Skellam law of the summed variance. A ``Fraction`` is taken
    exactly, so that ``n`` draws of variance ``Fraction(v) / n`` have the law of variance ``v``.
    """

    variance: float | Fraction
    _max_atom_error: ClassVar[float] = ATOM_ERROR

    def _parameter(self) -> tuple[str, float | Fraction, float, float]:
        return "variance", self.variance, 1e-6, 1e9

    def _weights(self) -> Weights:
        return skellam_weights(self.variance)


@final
@dataclass(frozen=True, slots=True)
class DiscreteGaussianSampler(_Tabulated):
    """Probability proportional to ``exp(-k^2 / (2 sigma^2))`` (Canonne, Kamath, Steinke 2020)."""

    sigma: float

    def _parameter(self) -> tuple[str, float, float, float]:
        return "sigma", self.sigma, 1e-3, 31_623

    def _weights(self) -> Weights:
        return discrete_gaussian_weights(self.sigma)

    @property
    def variance(self) -> float:
        """The variance of the law, at most ``sigma**2``."""
        k = np.arange(1.0, self.bound + 1)
        return float(2 * np.sum(k * k * self._table.mass[1:]))


@final
@dataclass(frozen=True, slots=True)
class DiscreteLaplaceSampler(_Tabulated):
    """Probability proportional to ``exp(-|k| / scale)``."""

    scale: float

    def _parameter(self) -> tuple[str, float, float, float]:
        return "scale", self.scale, 0.01, 22_361

    def _weights(self) -> Weights:
        return discrete_laplace_weights(self.scale)

    @property
    def variance(self) -> float:
        """The variance of the law, ``1 / (2 sinh(1 / (2 scale))^2)``."""
        return 0.5 / math.sinh(0.5 / self.scale) ** 2


IntegerSampler: TypeAlias = SkellamSampler | DiscreteGaussianSampler | DiscreteLaplaceSampler


def _integers(k: ArrayLike, limit: int) -> NDArray[np.int64]:
    """Return ``k`` cut off at ``limit`` on both sides."""
    values = np.asarray(k)
    if values.dtype.kind not in "iu":
        raise KindError(f"k must be integers, got {values.dtype}")
    below: NDArray[np.int64] = np.minimum(values, limit).astype(np.int64)
    return np.maximum(below, -limit)


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """What drawing from a law takes; ``high`` and ``low`` are the halves of its 128-bit steps."""

    bound: int
    prefix_bits: int
    cells: NDArray[Any]
    first: NDArray[np.int32]
    """How many steps lie below each cell."""
    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    mass: NDArray[np.float64]
    total_variation: float
    atom_error: float

    @property
    def nbytes(self) -> int:
        """The memory that the arrays take."""
        return sum(
            array.nbytes for array in (self.cells, self.first, self.high, self.low, self.mass)
        )


def build_table(law: Weights) -> Table:
    """Return the table of a law.

    A floored step is off by less than 2**-128, so each of the 2M outer probabilities is off by less
    than that, the central one by twice it, and what lies beyond M by less than that a side: all in
    all (M + 2) 2**-128 in total variation, and at most 2**-127 at any integer.
    """
    total = 2 * sum(law.values) - law.values[0]
    steps = _left_steps(law.values[:0:-1], total)
    bound = len(steps)
    high, low = _halves(steps)
    prefix_bits = 20 if bound > _WIDE else 16
    cells, first = _cells(high, prefix_bits, bound)
    distance = law.total_variation + Fraction(bound + 2, _FULL)
    return Table(
        bound=bound,
        prefix_bits=prefix_bits,
        cells=cells,
        first=first,
        high=high,
        low=low,
        mass=np.fromiter((w / total for w in law.values), np.float64, bound + 1),
        total_variation=math.nextafter(float(distance), 1),
        atom_error=math.nextafter(float(law.total_variation + Fraction(2, _FULL)), 1),
    )


def _left_steps(rising: list[int], total: int) -> list[int]:
    """Return floor(2**128 P(X <= -k)) for k = M, ..., 1, without those that are zero."""
    steps = [(tail << 128) // total for tail in accumulate(rising)]
    return steps[bisect_left(steps, 1) :]


def _halves(steps: list[int]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    high = np.fromiter((step >> 64 for step in steps), np.uint64, len(steps))
    low = np.fromiter((step & 0xFFFF_FFFF_FFFF_FFFF for step in steps), np.uint64, len(steps))
    # 2**128 - C in two's complement: the carry reaches the high half only when the low one is 0.
    mirrored_low = (~low + np.uint64(1))[::-1]
    mirrored_high = (~high + (low == 0).astype(np.uint64))[::-1]
    return np.concatenate((high, mirrored_high)), np.concatenate((low, mirrored_low))


def _cells(
    high: NDArray[np.uint64], prefix_bits: int, bound: int
) -> tuple[NDArray[Any], NDArray[np.int32]]:
    dtype = np.int16 if bound < 1 << 15 else np.int32
    crossed = (high >> np.uint64(64 - prefix_bits)).astype(np.int64)
    below = np.searchsorted(crossed, np.arange(1 << prefix_bits))
    cells = (below - bound).astype(dtype)
    cells[crossed] = np.iinfo(dtype).min
    return cells, below.astype(np.int32)


def _cached_table(key: Hashable, law: Callable[[], Weights]) -> Table:
    """Return the table for ``key``, built from ``law()`` when it is not at hand."""
    with _lock:
        if key in _cache:
            _cache.move_to_end(key)
            return _cache[key]
    made = build_table(law())
    with _lock:
        _cache[key] = made
        while len(_cache) > 1 and sum(each.nbytes for each in _cache.values()) > _CACHE_BYTES:
            _cache.popitem(last=False)
    return made


def draw_into(out: NDArray[Any], table: Table, *, entropy: Entropy) -> None:
    """Overwrite ``out`` (one-dimensional, wide enough for the table's bound) with draws."""
    for start in range(0, len(out), _SPAN):
        _draw_span(out[start : start + _SPAN], table, entropy)


def _draw_span(out: NDArray[Any], table: Table, entropy: Entropy) -> None:
    words = np.empty(min(_BLOCK, len(out)), np.uint16 if table.prefix_bits == 16 else np.uint32)
    direct = out.dtype == table.cells.dtype and out.flags.c_contiguous
    narrow = out if direct else np.empty(len(words), dtype=table.cells.dtype)
    indices, open_words = [], []
    for start in range(0, len(out), _BLOCK):
        part = out[start : start + _BLOCK]
        first = words[: len(part)]
        entropy.fill(first)
        target = part if direct else narrow[: len(part)]
        undecided = _kernels.look_up(table.cells, first, target)
        if not direct:
            part[:] = target
        indices.append(undecided + start)
        open_words.append(first[undecided])
    _decide(out, np.concatenate(indices), np.concatenate(open_words), table, entropy)


def _decide(
    out: NDArray[Any],
    indices: NDArray[np.int64],
    words: NDArray[Any],
    table: Table,
    entropy: Entropy,
) -> None:
    if indices.size:
        more = np.empty(len(indices), dtype=np.uint64)
        entropy.fill(more)
        out[indices] = _settle(extend(words, more), table, entropy)


def extend(words: NDArray[Any], more: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return 64-bit uniforms that begin with ``words`` and go on with the start of ``more``."""
    width = np.uint64(8 * words.itemsize)
    taken = words.astype(np.uint64) << (np.uint64(64) - width)
    return taken | more >> width


def _settle(uniform: NDArray[np.uint64], table: Table, entropy: Entropy) -> NDArray[np.int32]:
    """Return the draws for uniforms whose first 64 bits these are: in cells that have a step."""
    below, step = _steps_below(uniform, table)
    tied = np.flatnonzero(step == uniform)
    if tied.size:
        rest = np.empty(len(tied), dtype=np.uint64)
        entropy.fill(rest)
        below[tied] = _break_ties(below[tied], uniform[tied], rest, table)
    return below - table.bound


def _steps_below(
    uniform: NDArray[np.uint64], table: Table
) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
    """Return how many high halves are smaller than each of ``uniform``, and the next one.

    Past the last step the next one is the last, which is smaller. Most cells have one step.
    """
    high = table.high
    first = table.first.take((uniform >> np.uint64(64 - table.prefix_bits)).astype(np.intp))
    below = first + (high.take(first) < uniform)
    step = high.take(below, mode="clip")
    beyond = np.flatnonzero(step < uniform)
    below[beyond] = np.searchsorted(high, uniform[beyond])
    step[beyond] = high.take(below[beyond], mode="clip")
    return below, step


def _break_ties(
    first: NDArray[np.int32],
    uniform: NDArray[np.uint64],
    rest: NDArray[np.uint64],
    table: Table,
) -> NDArray[np.int64]:
    """Return how many steps lie at or below ``2**64 uniform + rest``, one by one: ties are rare."""
    ends = np.searchsorted(table.high, uniform, side="right")
    runs = zip(first.tolist(), ends.tolist(), rest, strict=True)
    counts = [a + int(np.searchsorted(table.low[a:b], low, side="right")) for a, b, low in runs]
    return np.array(counts, dtype=np.int64)
