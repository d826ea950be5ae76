"""Hot loops: rotation, norm, rounding, table look-up, wrapping.

NumPy does the work by default, Numba where it repays its start.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from skellam._kernels import _numpy
from skellam.errors import DomainError, KindError, MissingExtraError, ShapeError

VARIABLE = "SKELLAM_KERNELS"
"""The name of the environment variable that chooses the back end."""
_REPAID = 1 << 28
"""Elements that NumPy takes about as long over as Numba takes to start (half a second)."""
_LONG = 1 << 20
"""Floats that Numba takes from the first on, in every process, so that all add them alike.

A hundred messages of this length repay its start; a process that sends only one does not.
"""


MAX_REAL = 2.0**31 - 1
"""The largest absolute value that `round_stochastic` takes: what it may round to fits int32."""
MAX_MOSTLY = 2.0**14
"""The largest absolute value that `round_mostly` gives: times 2**48 it fits int64."""
_MOSTLY_ONE = np.float32(2.0**16)


class Backend(Protocol):
    """The loops that each back end has."""

    def hadamard(self, x: NDArray[np.float32]) -> None: ...

    def flip(
        self,
        x: NDArray[Any],
        bits: NDArray[np.uint8],
        gain: np.floating[Any],
        out: NDArray[np.float32],
    ) -> None: ...

    def square_norm(self, y: NDArray[Any]) -> float: ...

    def square_norms(self, y: NDArray[np.float32]) -> NDArray[np.float64]: ...

    def shrink(self, y: NDArray[np.float32], factor: np.float32, bound: np.float32) -> None: ...

    def look_up(
        self, cells: NDArray[Any], words: NDArray[Any], out: NDArray[Any]
    ) -> NDArray[np.int64]: ...

    def round_stochastic(
        self, y: NDArray[Any], coins: NDArray[np.uint32], out: NDArray[np.int32]
    ) -> None: ...

    def round_mostly(
        self,
        y: NDArray[np.float32],
        scale: np.float32,
        limit: np.float32,
        coins: NDArray[np.uint16],
        out: NDArray[np.int16],
    ) -> NDArray[np.int64]: ...

    def sum_of_squares(self, values: NDArray[np.int32]) -> int: ...

    def add_wrap(self, out: NDArray[Any], addend: NDArray[Any], bits: int) -> None: ...


def hadamard(x: NDArray[np.float32]) -> None:
    """Replace ``x`` (float32, its length a power of two) by its Walsh-Hadamard transform.

    Of a matrix every row is transformed, to the same floats as alone. The transform is not
    normalised: applied twice it multiplies by its length.
    """
    if x.dtype != np.float32 or x.ndim not in (1, 2) or not x.flags.c_contiguous:
        raise KindError("x must be a contiguous array of float32 with one dimension or two")
    length = x.shape[-1]
    if length.bit_count() != 1:
        raise ShapeError(f"the length of x must be a power of two, got {length}; pad it")
    _for_floats(length).hadamard(x)


def flip(x: NDArray[Any], bits: NDArray[np.uint8], gain: float, out: NDArray[np.float32]) -> None:
    """Set ``out`` to ``gain`` times ``x``, negated where its bit is set (the lowest bit first).

    The product is rounded to the type of ``x`` (float32 or float64), as is ``gain`` before it.
    """
    # One product a float: the back ends agree on it as they do on integers.
    _for_integers(len(x)).flip(x, bits, x.dtype.type(gain), out)


def square_norm(y: NDArray[Any]) -> float:
    """Return the sum of squares of the floats in ``y``, or infinity where it overflows.

    Of float64 it is within ``2**-32`` of itself. Of float32 it is within ``2**-15.9``, and within
    2**-124 a float beside that: 2**8 squares may be added in float32, in any order, and what is too
    small for float32 may vanish.
    """
    return _for_floats(len(y)).square_norm(y)


def square_norms(y: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the `square_norm` of each row, the same float as alone; for rows below 2**20."""
    return _for_floats(y.shape[1]).square_norms(y)


def shrink(y: NDArray[np.float32], factor: np.float32, bound: np.float32) -> None:
    """Multiply ``y`` by ``factor`` and cut it to ``-bound .. bound``, in place."""
    _for_integers(len(y)).shrink(y, factor, bound)


def look_up(cells: NDArray[Any], words: NDArray[Any], out: NDArray[Any]) -> NDArray[np.int64]:
    """Set ``out`` to the cell of each word's first bits; return the indices that stay undecided.

    There are ``2**p`` cells and p bits of a word count. A cell that holds the smallest value of its
    type is a mark: the draw is not decided by those bits. ``out`` has the type of ``cells``.
    """
    return _for_integers(len(out)).look_up(cells, words, out)


def round_stochastic(y: NDArray[Any], coins: NDArray[np.uint32], out: NDArray[np.int32]) -> None:
    """Round ``y`` to integers at random into ``out``.

    What is rounded without bias is y' = trunc(2**32 y) / 2**32: with uniform ``coins`` the mean of
    ``out`` is y' exactly and ``out`` is one of the two integers next to y'. So |y'| <= |y| in every
    coordinate (no norm ever grows), |y - y'| < 2**-32, and y' = y for every float32 of absolute
    value 2**-9 or more. ``y`` is float32 or float64 with |y| <= 2**31 - 1.
    """
    if y.dtype not in (np.float32, np.float64) or coins.dtype != np.uint32 or out.dtype != np.int32:
        raise KindError("y must be float32 or float64, coins uint32 and out int32")
    if not y.shape == coins.shape == out.shape == (y.size,):
        raise ShapeError("y, coins and out must be one-dimensional and of one length")
    # Compared as Python floats: in float32 the limit itself would round up to 2**31.
    if y.size and not (float(y.max()) <= MAX_REAL and float(y.min()) >= -MAX_REAL):
        raise DomainError("y must lie in [-(2**31 - 1), 2**31 - 1] and be no NaN; clip or scale it")
    _for_integers(len(out)).round_stochastic(y, coins, out)


def round_mostly(
    y: NDArray[np.float32],
    factor: np.float32,
    bound: np.float32,
    coins: NDArray[np.uint16],
    out: NDArray[np.int16],
) -> NDArray[np.int64]:
    """Shrink ``y`` as `shrink` does and round it into ``out`` where 16 bits decide; say where not.

    The ``coins`` are the first bits of a uniform U of 48. What is rounded without bias is y' =
    trunc(2**48 y) / 2**48, to the floor of y' + U / 2**48. The indices that are returned, one in
    2**16 on average, are those where the other 32 bits matter, or may seem to. ``bound`` is at most
    `MAX_MOSTLY`; ``y`` itself stays as it is.
    """
    if y.dtype != np.float32 or coins.dtype != np.uint16 or out.dtype != np.int16:
        raise KindError("y must be float32, coins uint16 and out int16")
    if not y.shape == coins.shape == out.shape == (y.size,):
        raise ShapeError("y, coins and out must be one-dimensional and of one length")
    if not 0 <= bound <= MAX_MOSTLY:
        raise DomainError(f"bound must lie in [0, 2**14], got {bound}")
    scale, limit = factor * _MOSTLY_ONE, bound * _MOSTLY_ONE
    return _for_integers(len(out)).round_mostly(y, scale, limit, coins, out)


def sum_of_squares(values: NDArray[np.int32]) -> int:
    """Return the exact sum of the squares of ``values``."""
    return _for_integers(len(values)).sum_of_squares(values)


def add_wrap(out: NDArray[Any], addend: NDArray[Any], bits: int) -> None:
    """Add the signed integers ``addend`` to the residues ``out`` modulo ``2**bits``, in place."""
    if out.dtype.kind != "u" or addend.dtype.kind != "i" or not 1 <= bits <= 8 * out.itemsize:
        raise KindError(f"out must be unsigned with {bits} bits or more, addend signed")
    if not out.shape == addend.shape == (out.size,):
        raise ShapeError("out and addend must be one-dimensional and of one length")
    _for_integers(len(out)).add_wrap(out, addend, bits)


class _Meter:
    """Counts what this process has done, so that it never pays twice the best (ski rental)."""

    elements = 0


_meter = _Meter()


def _for_integers(size: int) -> Backend:
    """Return the back end for ``size`` more elements; both give the same integers."""
    _meter.elements += size
    return _choose(_meter.elements > _REPAID)


def _for_floats(size: int) -> Backend:
    """Return the back end for ``size`` floats; by size alone, so that a rerun adds them alike."""
    return _choose(size >= _LONG)


def _choose(repaid: bool) -> Backend:
    match os.environ.get(VARIABLE):
        case None | "":
            return _compiled() if repaid and _numba_is_installed() else _numpy
        case "numpy":
            return _numpy
        case "numba":
            return _compiled()
        case other:
            raise DomainError(f"{VARIABLE} must be numpy or numba, or unset; got {other!r}")


@cache
def _numba_is_installed() -> bool:
    return find_spec("numba") is not None


def _compiled() -> Backend:
    if not _numba_is_installed():
        raise MissingExtraError("Numba is not installed: pip install 'skellam[fast]'")
    from skellam._kernels import _numba

    return _numba
