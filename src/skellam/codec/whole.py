"""Vectors that are whole already: checked against their bounds, and sent as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skellam.codec.bounds import whole_norm
from skellam.codec.layout import Tensors
from skellam.codec.rotation import CHUNK
from skellam.codec.spec import Whole
from skellam.errors import KindError

Numbers = NDArray[np.integer[Any] | np.floating[Any]]


def whole_vector(x: Tensors) -> Numbers:
    """Return ``x`` as one vector; floats may pass if `excess` finds that they are whole."""
    values = np.asarray(x)
    if values.dtype.kind not in "iuf":
        raise KindError(f"x must be an array of whole numbers, got {values.dtype}")
    return values.reshape(-1)


def excess(x: Numbers, bounds: Whole, clip: float) -> str | None:
    """Return in words which bound ``x`` breaks, if any.

    Magnitudes are compared before they are added, so that no sum overflows, and taken in 64 bits:
    int8 has no 128. Squares are added as floats, which `whole_norm` allows for. Zeros, of which a
    histogram has many, are left out first.
    """
    x = x[np.flatnonzero(x)]
    if not len(x):
        return None
    if x.dtype.kind == "f" and not (np.isfinite(x) & (np.rint(x) == x)).all():
        return "entries that are not whole"
    peak = max(int(x.max()), -int(x.min()))
    if peak > bounds.largest:
        return f"an entry of {peak}, beyond {bounds.largest}"
    l1 = int(np.abs(x.astype(np.int64)).sum())
    if l1 > bounds.l1:
        return f"an L1 norm of {l1}, beyond {bounds.l1}"
    square = whole_norm(clip) ** 2
    if bounds.l1 * bounds.largest > square and np.square(x, dtype=np.float64).sum() > square:
        return f"an L2 norm beyond {clip:g}"
    return None


def chunks(x: Numbers) -> Iterator[NDArray[np.signedinteger[Any]]]:
    """Yield ``x``, within its bounds, in chunks of int32."""
    for start in range(0, len(x), CHUNK):
        yield x[start : start + CHUNK].astype(np.int32, copy=False)
