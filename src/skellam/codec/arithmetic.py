"""Arithmetic of Algorithm 1: rotation, rounding to integers, noise and sums modulo ``2**bits``.

*Rotation.* For a length of ``m 2**k`` (``m`` odd, at most `MAX_BLOCKS`) the transform is the
Kronecker product of the m-point Hartley matrix ``cas(2 pi i j / m)`` and the Hadamard matrix of
order ``2**k``: both are symmetric and, divided by the root of their order, orthogonal, so the
transform is its own inverse. Its entries are at most ``sqrt(2 / d)``, and ``sqrt(1 / d)`` for a
power of two: every coordinate spreads over all of them, which separate blocks would not do.

*Rounding.* Norms are taken in float64; vectors are shrunk and rounded in chunks. A vector of
integers is not rounded: it is checked against its bounds and sent as it is.

*Wrapping.* For a normal sum of deviation ``sigma`` the mean of ``exp(2 pi i v / 2**b)`` over the
residues has length ``R = exp(-(2 pi sigma / 2**b)**2 / 2)``, wrapped or not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from skellam import _checks, _kernels
from skellam.codec.spec import Integer, block_of, integer_norm
from skellam.entropy import Entropy, SeededEntropy
from skellam.errors import DomainError, KindError, WrapError
from skellam.noise import DiscreteGaussianSampler, SkellamSampler
from skellam.vectors import Residues, Tensors, as_array, residue_dtype

CHUNK: Final = 1 << 16
"""Coordinates handled at a time, so that the passes over them stay in the cache."""
MAX_TRIES: Final = 128
"""Every try of conditional rounding succeeds with probability at least ``1 - beta``."""
_SPAN: Final = 1 << 18
"""Draws of noise made at a time, few enough for the cache.

Part of the format: removable noise is drawn again in the same spans.
"""

_BINS: Final = 16
"""Bits of a residue that `wrap_estimate` counts."""
_COUNTED: Final = 1 << 18
"""Residues that it counts at a time."""

Sampler = SkellamSampler | DiscreteGaussianSampler
Numbers = NDArray[np.integer[Any] | np.floating[Any]]
Lattices = Iterator[NDArray[np.signedinteger[Any]]]
"""A vector of integers, chunk by chunk; the buffer of a chunk may be used again for the next."""


class Rotation:
    """The rotation of a round: the same for whoever knows its public seed."""

    __slots__ = ("_block", "_factors", "_root", "_signs", "padded_dim")

    def __init__(self, padded_dim: int, public_seed: bytes) -> None:
        self.padded_dim = padded_dim
        self._block = block_of(padded_dim)
        self._root = math.sqrt(self._block)
        self._signs = np.empty(-(-padded_dim // 8), dtype=np.uint8)
        SeededEntropy(public_seed, "codec/signs").fill(self._signs)
        self._factors: dict[tuple[float, np.dtype[Any]], NDArray[Any]] = {}

    def forward(self, x: NDArray[np.floating[Any]], gain: float) -> NDArray[np.float32]:
        """Return ``gain`` times the rotation of ``x`` padded with zeros."""
        return self.turned(self.flipped(x, gain))

    def flipped(self, x: NDArray[np.floating[Any]], gain: float) -> NDArray[np.float32]:
        """Return a new vector, of which `turned` makes ``gain`` times the rotation of ``x``."""
        out = np.empty(self.padded_dim, dtype=np.float32)
        out[len(x) :] = 0
        _kernels.flip(x, self._signs, gain / self._root, out[: len(x)])
        return out

    def flip_into(
        self, row: NDArray[np.float32], x: NDArray[np.floating[Any]], gain: float
    ) -> None:
        """Overwrite ``row`` with what `flipped` gives; the factors are kept for the next."""
        key = (gain, x.dtype)
        if key not in self._factors:
            signs = np.unpackbits(self._signs, count=len(x), bitorder="little")
            factor = x.dtype.type(gain / self._root)
            self._factors[key] = np.where(signs, -factor, factor)
        np.multiply(x, self._factors[key], out=row[: len(x)], casting="same_kind")
        row[len(x) :] = 0

    def turned(self, flipped: NDArray[np.float32]) -> NDArray[np.float32]:
        """Overwrite what is `flipped`, a vector or rows, with its rotation, and return it."""
        _transform(flipped, self._block)
        return flipped

    def backward(self, y: NDArray[np.float32], gain: float, dimension: int) -> NDArray[np.float32]:
        """Overwrite ``y`` and return ``gain`` times its first coordinates before the rotation."""
        _transform(y, self._block)
        x = y[:dimension]
        _kernels.flip(x, self._signs, gain / self._root, x)
        return x


def coordinate_subset(dimension: int, sent: int, public_seed: bytes) -> NDArray[np.int64]:
    """Return ``sent`` indices below ``dimension``, in order, uniformly without replacement."""
    keys = np.empty(dimension, dtype="<u8")
    SeededEntropy(public_seed, "codec/subset").fill(keys)
    threshold = np.partition(keys, sent - 1)[sent - 1]
    # Equal keys (probability below dimension**2 / 2**64) must not depend on NumPy's partition.
    return np.flatnonzero(keys <= threshold)[:sent]


def _transform(y: NDArray[np.float32], block: int) -> None:
    _kernels.hadamard(y.reshape(-1, block))
    if y.shape[-1] > block:
        _mix(y.reshape(-1, y.shape[-1] // block, block))


def _mix(blocks: NDArray[np.float32]) -> None:
    """Transform across the blocks of each vector; the first index is the vector's."""
    rows, count, length = blocks.shape
    # Products of fewer than 2**18 multiplications, for which OpenBLAS starts no threads.
    width = min(length, 1 << ((1 << 18) // count**2).bit_length() - 1)
    tiles = blocks.reshape(rows, count, -1, width).swapaxes(1, 2)
    step = max(1, CHUNK // (count * width))
    for start in range(0, tiles.shape[1], step):
        part = tiles[:, start : start + step]
        part[:] = _hartley(count) @ part


@cache
def _hartley(order: int) -> NDArray[np.float32]:
    angle = 2 * np.pi / order * (np.outer(np.arange(order), np.arange(order)) % order)
    matrix: NDArray[np.float32] = ((np.cos(angle) + np.sin(angle)) / math.sqrt(order)).astype(
        np.float32
    )
    return matrix


def peak_of(x: NDArray[np.floating[Any]]) -> float:
    """Return the largest magnitude in ``x``; not a number if one is none."""
    return max(float(x.max()), -float(x.min()))


def finite_peak(x: NDArray[np.floating[Any]]) -> float:
    """Return the largest magnitude in ``x``, or raise if an entry is not finite."""
    peak = peak_of(x)
    if not math.isfinite(peak):
        where = int(np.flatnonzero(~np.isfinite(x))[0])
        raise DomainError(
            f"x must be finite, but x[{where}] is {x[where]}; "
            "a client that must not drop out calls encode_or_zeros"
        )
    return peak


def upper_norm(y: NDArray[np.floating[Any]]) -> float:
    """Return an upper bound on the L2 norm of the very floats in ``y``.

    Tight to ``2**-30`` for float64 and ``2**-15`` for float32, but for an absolute ``2**-40``.
    """
    with np.errstate(over="ignore"):
        square = _kernels.square_norm(y)
    if y.dtype == np.float64:
        return math.sqrt(square) * (1 + 2.0**-30)
    if math.isinf(square):
        return upper_norm(y.astype(np.float64))
    return math.sqrt(square * (1 + 2.0**-15) + len(y) * 2.0**-124)


def upper_norms(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the `upper_norm` of each row."""
    with np.errstate(over="ignore"):
        squares = _kernels.square_norms(rows)
    norms: NDArray[np.float64] = np.sqrt(squares * (1 + 2.0**-15) + rows.shape[1] * 2.0**-124)
    for at in np.flatnonzero(np.isinf(squares)):
        norms[at] = upper_norm(rows[at])
    return norms


def shrink(
    y: NDArray[np.float32], norm: float, radius: float, bound: float | None = None
) -> Iterator[NDArray[np.float32]]:
    """Yield the chunks of ``y``, scaled in place to a norm of ``radius`` and cut to ``bound``.

    ``norm`` is the `upper_norm` of ``y``; what has a smaller one than ``radius`` is not scaled.
    """
    factor, cut = _shrinkage(norm, radius, bound)
    for part in _chunks(y):
        _kernels.shrink(part, factor, cut)
        yield part


def round_unbiased(
    y: NDArray[np.float32],
    norm: float,
    radius: float,
    bound: float | None = None,
    *,
    entropy: Entropy,
) -> Lattices:
    """Yield, in chunks of one reused buffer, ``y`` shrunk and rounded to integers of that mean.

    Where ``bound`` is small, 16 random bits a coordinate are almost always enough.
    """
    if bound is not None and bound <= _kernels.MAX_MOSTLY:
        return _round_short(y, *_shrinkage(norm, radius, bound), entropy=entropy)
    return _round_long(y, shrink(y, norm, radius, bound), entropy=entropy)


def round_conditional(y: NDArray[np.float32], max_square: float, *, entropy: Entropy) -> Lattices:
    """Yield, chunk by chunk, ``y`` rounded to integers of squared norm at most ``max_square``.

    After `MAX_TRIES` failures it is zeros: dropping the client would leak that it failed.
    """
    integers = np.empty(len(y), dtype=np.int32)
    if not any(_round(y, integers, entropy) <= max_square for _ in range(MAX_TRIES)):
        integers[:] = 0
    for start in range(0, len(y), CHUNK):
        yield integers[start : start + CHUNK]


def round_rows_unbiased(
    y: NDArray[np.float32],
    norms: NDArray[np.float64],
    radius: float,
    bound: float | None,
    *,
    entropies: Sequence[Entropy],
) -> NDArray[np.signedinteger[Any]]:
    """Return the rows of ``y``, short ones, as `round_unbiased` rounds each by its own entropy."""
    factors = _row_factors(norms, radius)
    if bound is None or bound > _kernels.MAX_MOSTLY:
        y *= factors[:, None]
        _kernels.shrink(y.reshape(-1), np.float32(1), _cut(bound))
        return _round_rows(y, entropies)
    coins, integers = np.empty(y.shape, dtype=np.uint16), np.empty(y.shape, dtype=np.int16)
    fill_rows(coins, entropies)
    # `round_mostly` multiplies by 2**16: here the factors have done so, for each row its own.
    scaled = y * (factors * np.float32(2.0**16))[:, None]
    at = _kernels.round_mostly(
        scaled.reshape(-1),
        np.float32(2.0**-16),
        _cut(bound),
        coins.reshape(-1),
        integers.reshape(-1),
    )
    rows, columns = np.divmod(at, y.shape[1])
    for row in np.unique(rows).tolist():
        where = columns[rows == row]
        left = y[row, where]
        _kernels.shrink(left, factors[row], _cut(bound))
        integers[row, where] = _decide(left, coins[row, where], entropies[row])
    return integers


def round_rows_conditional(
    y: NDArray[np.float32],
    norms: NDArray[np.float64],
    radius: float,
    max_square: float,
    *,
    entropies: Sequence[Entropy],
) -> NDArray[np.int32]:
    """Return the rows of ``y``, shrunk, as `round_conditional` rounds each by its own entropy."""
    y *= _row_factors(norms, radius)[:, None]
    integers = _round_rows(y, entropies)
    # In float64 a sum of squares errs by less than 2**-30 of itself: few are near enough to count.
    squares = np.square(integers, dtype=np.float64).sum(axis=1)
    for row in np.flatnonzero(squares * (1 + 2.0**-30) > max_square).tolist():
        rounded = integers[row]
        if _kernels.sum_of_squares(rounded) > max_square and not any(
            _round(y[row], rounded, entropies[row]) <= max_square for _ in range(MAX_TRIES - 1)
        ):
            rounded[:] = 0
    return integers


def _round_rows(y: NDArray[np.float32], entropies: Sequence[Entropy]) -> NDArray[np.int32]:
    coins, integers = np.empty(y.shape, dtype=np.uint32), np.empty(y.shape, dtype=np.int32)
    fill_rows(coins, entropies)
    _kernels.round_stochastic(y.reshape(-1), coins.reshape(-1), integers.reshape(-1))
    return integers


def draw_rows(
    sampler: Sampler, count: int, *, entropies: Sequence[Entropy]
) -> NDArray[np.signedinteger[Any]]:
    """Return a row of ``count`` draws, a span at most, from each entropy."""
    rows = np.empty((len(entropies), count), dtype=sampler.dtype)
    if _is_one(entropies):
        sampler.draw_into(rows.reshape(-1), entropy=entropies[0])
    else:
        for row, entropy in zip(rows, entropies, strict=True):
            sampler.draw_into(row, entropy=entropy)
    return rows


def fill_rows(rows: NDArray[Any], entropies: Sequence[Entropy]) -> None:
    """Overwrite each row with random bits of its own entropy."""
    if _is_one(entropies):
        entropies[0].fill(rows)
    else:
        for row, entropy in zip(rows, entropies, strict=True):
            entropy.fill(row)


def _is_one(entropies: Sequence[Entropy]) -> bool:
    return all(each is entropies[0] for each in entropies)


def sum_of_rows(
    rows: NDArray[np.signedinteger[Any]], bits: int
) -> NDArray[np.unsignedinteger[Any]]:
    """Return the sum of the rows modulo ``2**bits``."""
    dtype = residue_dtype(bits)
    total: NDArray[np.unsignedinteger[Any]] = np.add.reduce(rows.astype(dtype), axis=0, dtype=dtype)
    total &= dtype.type((1 << bits) - 1)
    return total


def integer_vector(x: Tensors) -> Numbers:
    """Return ``x`` as one vector; floats may pass if `excess` finds that they are integers."""
    values = as_array("x", x)
    if values.dtype.kind not in "iuf":
        raise KindError(f"x must be an array of integers, got {values.dtype}")
    return values.reshape(-1)


def excess(x: Numbers, bounds: Integer, clip: float) -> str | None:
    """Return in words which bound ``x`` breaks, if any.

    Magnitudes are compared before they are added, so that no sum overflows, and taken in 64 bits:
    int8 has no 128. Squares are added as floats, which `integer_norm` allows for. Zeros, of which a
    histogram has many, are left out first.
    """
    x = x[np.flatnonzero(x)]
    if not len(x):
        return None
    if x.dtype.kind == "f" and not (np.isfinite(x) & (np.rint(x) == x)).all():
        return "entries that are not integers"
    peak = max(int(x.max()), -int(x.min()))
    if peak > bounds.coordinate_bound:
        return f"an entry of {peak}, beyond {bounds.coordinate_bound}"
    l1 = int(np.abs(x.astype(np.int64)).sum())
    if l1 > bounds.l1:
        return f"an L1 norm of {l1}, beyond {bounds.l1}"
    square = integer_norm(clip) ** 2
    if (
        bounds.l1 * bounds.coordinate_bound > square
        and np.square(x, dtype=np.float64).sum() > square
    ):
        return f"an L2 norm beyond {clip:g}"
    return None


def integer_chunks(x: Numbers) -> Lattices:
    """Yield ``x``, within its bounds, in chunks of int32."""
    for start in range(0, len(x), CHUNK):
        yield x[start : start + CHUNK].astype(np.int32, copy=False)


def _chunks(y: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    return (y[start : start + CHUNK] for start in range(0, len(y), CHUNK))


def _shrinkage(norm: float, radius: float, bound: float | None) -> tuple[np.float32, np.float32]:
    """Return what to multiply by, and the bound to cut to.

    The factor and each product round up by at most 2**-24 of themselves (denormal products by
    2**-150, far below ``radius``), which the last factor outweighs.
    """
    factor = np.float32(radius / norm * (1 - 2.0**-22) if norm > radius else 1)
    return factor, _cut(bound)


def _row_factors(norms: NDArray[np.float64], radius: float) -> NDArray[np.float32]:
    """Return what `_shrinkage` multiplies each row by."""
    factors = np.ones(len(norms), dtype=np.float32)
    beyond = norms > radius
    factors[beyond] = radius / norms[beyond] * (1 - 2.0**-22)
    return factors


def _cut(bound: float | None) -> np.float32:
    return np.float32(np.inf) if bound is None else _float32_below(bound)


def _float32_below(bound: float) -> np.float32:
    nearest = np.float32(bound)
    return nearest if float(nearest) <= bound else np.nextafter(nearest, np.float32(0))


def _round_short(
    y: NDArray[np.float32], factor: np.float32, bound: np.float32, *, entropy: Entropy
) -> Iterator[NDArray[np.int16]]:
    coins = np.empty(min(CHUNK, len(y)), dtype=np.uint16)
    integers = np.empty(len(coins), dtype=np.int16)
    for part in _chunks(y):
        drawn, rounded = coins[: len(part)], integers[: len(part)]
        entropy.fill(drawn)
        at = _kernels.round_mostly(part, factor, bound, drawn, rounded)
        if at.size:
            left = part[at]
            _kernels.shrink(left, factor, bound)
            rounded[at] = _decide(left, drawn[at], entropy)
        yield rounded


def _decide(y: NDArray[np.float32], coins: NDArray[np.uint16], entropy: Entropy) -> NDArray[Any]:
    """Return ``y`` rounded with 48 random bits, of which ``coins`` are the first."""
    more = np.empty(len(y), dtype=np.uint32)
    entropy.fill(more)
    fixed = (y.astype(np.float64) * 2.0**48).astype(np.int64)
    fixed += (coins.astype(np.int64) << 32) + more
    return fixed >> 48


def _round_long(
    y: NDArray[np.float32], chunks: Iterator[NDArray[np.float32]], *, entropy: Entropy
) -> Iterator[NDArray[np.int32]]:
    coins = np.empty(min(CHUNK, len(y)), dtype=np.uint32)
    integers = np.empty(len(coins), dtype=np.int32)
    for part in chunks:
        entropy.fill(coins[: len(part)])
        _kernels.round_stochastic(part, coins[: len(part)], integers[: len(part)])
        yield integers[: len(part)]


def _round(y: NDArray[np.float32], integers: NDArray[np.int32], entropy: Entropy) -> int:
    coins = np.empty(min(CHUNK, len(y)), dtype=np.uint32)
    for start in range(0, len(y), CHUNK):
        part = y[start : start + CHUNK]
        entropy.fill(coins[: len(part)])
        _kernels.round_stochastic(part, coins[: len(part)], integers[start : start + CHUNK])
    return _kernels.sum_of_squares(integers)


def draw(sampler: Sampler, count: int, *, entropy: Entropy) -> Lattices:
    """Yield ``count`` draws chunk by chunk, in one reused buffer."""
    buffer = np.empty(min(_SPAN, count), dtype=sampler.dtype)
    for start in range(0, count, _SPAN):
        span = buffer[: min(_SPAN, count - start)]
        sampler.draw_into(span, entropy=entropy)
        yield from (span[i : i + CHUNK] for i in range(0, len(span), CHUNK))


def wrapped(
    lattice: Lattices, noise: Lattices | None, message_len: int, bits: int
) -> NDArray[np.unsignedinteger[Any]]:
    """Return the sum modulo ``2**bits`` of ``lattice`` and ``noise``, both given in chunks."""
    out = np.empty(message_len, dtype=residue_dtype(bits))
    for start, part in zip(range(0, message_len, CHUNK), lattice, strict=True):
        # The cast reduces modulo 2**8, 2**16 or 2**32, which 2**bits divides.
        np.copyto(out[start : start + CHUNK], part, casting="unsafe")
    if noise is None:
        out &= out.dtype.type((1 << bits) - 1)
    else:
        add_lattice(out, noise, bits)
    return out


def add_lattice(out: NDArray[np.unsignedinteger[Any]], lattice: Lattices, bits: int) -> None:
    """Add ``lattice``, given in chunks, to ``out`` modulo ``2**bits``."""
    for start, part in zip(range(0, len(out), CHUNK), lattice, strict=True):
        _kernels.add_wrap(out[start : start + CHUNK], part, bits)


@dataclass(frozen=True, slots=True)
class WrapEstimate:
    """The deviation of an aggregate, as its residues show it, with its standard error.

    ``deviation`` is infinite where the residues cannot be told from uniform ones: then the sum
    wrapped beyond repair.
    """

    bits: int
    deviation: float
    standard_error: float

    @property
    def k(self) -> float:
        """How many deviations fill half of the modulus (the paper's signal multiple)."""
        return 2 ** (self.bits - 1) / self.deviation if self.deviation else math.inf

    @property
    def probability(self) -> float:
        """The probability that a coordinate wrapped, were the sum normal."""
        return math.erfc(self.k / math.sqrt(2))

    def require(self, k: float) -> None:
        """Raise `WrapError` if the headroom is below ``k`` by more than three standard errors."""
        limit = 2 ** (self.bits - 1) / _checks.positive("k", k)
        if not self.deviation - 3 * self.standard_error <= limit:
            raise WrapError(
                f"the sum has a deviation of {self.deviation:.4g} and {self.bits} bits hold "
                f"{self.k:.3g} of them, fewer than {k:g}; take more bits or a smaller scale"
            )


def centred(total: Residues) -> NDArray[np.signedinteger[Any]]:
    """Return the residues as the numbers of least magnitude, in ``[-2**(b-1), 2**(b-1))``."""
    values, spare = total.values, 8 * total.values.itemsize - total.bits
    signed = values.view(f"i{values.itemsize}")
    if spare:
        signed = signed << spare >> spare
    return signed


def wrap_estimate(total: Residues) -> WrapEstimate:
    """Return how far ``total`` spreads over its modulus."""
    shift = max(0, total.bits - _BINS)
    counts = np.zeros(1 << (total.bits - shift), dtype=np.int64)
    for start in range(0, len(total), _COUNTED):  # bincount copies into numbers of 8 bytes
        part = total.values[start : start + _COUNTED] >> shift
        counts += np.bincount(part, minlength=len(counts))
    angles = 2 * np.pi * np.arange(len(counts)) / len(counts)
    resultant = abs(complex(counts @ np.cos(angles), counts @ np.sin(angles))) / len(total)
    return _estimate(min(resultant, 1.0), len(total), total.bits)


def _estimate(resultant: float, count: int, bits: int) -> WrapEstimate:
    # Uniform residues give a resultant above 5 / sqrt(count) with probability exp(-25).
    if resultant * math.sqrt(count) <= 5 and count > 25:
        return WrapEstimate(bits, math.inf, 0.0)
    angle = math.sqrt(-2 * math.log(resultant)) if resultant else math.inf
    unit = 2**bits / (2 * math.pi)
    # Var R = (1 - R**2)**2 / 2N for a wrapped normal law, and d angle = dR / (R angle).
    error = (1 - resultant**2) / (resultant * angle * math.sqrt(2 * count)) if angle else 0.0
    return WrapEstimate(bits, unit * angle, unit * error)
