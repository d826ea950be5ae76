"""Which back end does the work: NumPy by default, Numba where it repays its start."""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from skellam._kernels import _numpy
from skellam.errors import DomainError, MissingExtraError

VARIABLE = "SKELLAM_KERNELS"
_REPAID = 1 << 28
"""Elements that NumPy takes about as long over as Numba takes to start (half a second)."""
_LONG = 1 << 20
"""Floats that Numba takes from the first on, in every process, so that all add them alike.

A hundred messages of this length repay its start; a process that sends only one does not.
"""


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

    def sum_of_squares(self, whole: NDArray[np.int32]) -> int: ...

    def add_wrap(self, out: NDArray[Any], addend: NDArray[Any], bits: int) -> None: ...


class _Meter:
    """Counts what this process has done, so that it never pays twice the best (ski rental)."""

    elements = 0


_meter = _Meter()


def for_integers(size: int) -> Backend:
    """Return the back end for ``size`` more elements; both give the same integers."""
    _meter.elements += size
    return _choose(_meter.elements > _REPAID)


def for_floats(size: int) -> Backend:
    """Return the back end for ``size`` floats; by size alone, so that a rerun adds them alike."""
    return _choose(size >= _LONG)


def _choose(repaid: bool) -> Backend:
    match os.environ.get(VARIABLE):
        case None | "":
            return _numba() if repaid and _numba_is_installed() else _numpy
        case "numpy":
            return _numpy
        case "numba":
            return _numba()
        case other:
            raise DomainError(f"{VARIABLE} must be numpy or numba, or unset; got {other!r}")


@cache
def _numba_is_installed() -> bool:
    return find_spec("numba") is not None


def _numba() -> Backend:
    if not _numba_is_installed():
        raise MissingExtraError("Numba is not installed: pip install 'skellam[fast]'")
    from skellam._kernels import _numba as compiled

    return compiled
