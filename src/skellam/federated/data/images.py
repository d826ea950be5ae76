"""Handwritten characters as examples, whatever file they came in."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skellam.errors import DataError
from skellam.federated.data.clients import Examples

SIDE = 28


def from_paper(pixels: ArrayLike, labels: ArrayLike, *, classes: int, where: str) -> Examples:
    """Return examples from pixels in which 1 is the background and 0 is ink."""
    values = _array(pixels, where)
    return from_ink(1 - values, labels, classes=classes, where=where)


def from_ink(pixels: ArrayLike, labels: ArrayLike, *, classes: int, where: str) -> Examples:
    """Return examples from pixels in which 0 is the background and 1 is ink."""
    values, targets = _array(pixels, where), np.asarray(labels).reshape(-1)
    if values.size != targets.size * SIDE * SIDE:
        raise DataError(f"{where}: {values.shape} pixels do not go with {targets.size} labels")
    if not (values.size and np.all((values >= 0) & (values <= 1))):
        raise DataError(f"{where}: pixels must lie in [0, 1], and there must be some")
    if not float(values.mean()) <= 0.5:
        raise DataError(f"{where}: more ink than background; are the two swapped?")
    if targets.dtype.kind not in "iu" or not np.all((targets >= 0) & (targets < classes)):
        raise DataError(f"{where}: labels must be whole numbers from 0 to {classes - 1}")
    return Examples(values.reshape(-1, SIDE, SIDE), targets)


def _array(pixels: ArrayLike, where: str) -> NDArray[np.float32]:
    try:
        return np.asarray(pixels, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where}: pixels must be numbers: {error}") from error
