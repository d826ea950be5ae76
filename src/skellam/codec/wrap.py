"""Wrapping: residues as centred numbers, and whether the sum fitted the modulus at all.

For a normal sum of deviation ``sigma`` the mean of ``exp(2 pi i v / 2**b)`` over the residues has
length ``R = exp(-(2 pi sigma / 2**b)**2 / 2)``, wrapped or not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.errors import WrapError
from skellam.vectors import Residues

_BINS = 16


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
        """Raise `WrapError` if there is less room than ``k`` by more than three standard errors."""
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
    counts = np.bincount(total.values >> shift, minlength=1 << (total.bits - shift))
    angles = 2 * np.pi * np.arange(len(counts)) / len(counts)
    length = abs(complex(counts @ np.cos(angles), counts @ np.sin(angles))) / len(total)
    return _estimate(min(length, 1.0), len(total), total.bits)


def _estimate(length: float, count: int, bits: int) -> WrapEstimate:
    # Uniform residues give a length above 5 / sqrt(count) with probability exp(-25).
    if length * math.sqrt(count) <= 5 and count > 25:
        return WrapEstimate(bits, math.inf, 0.0)
    angle = math.sqrt(-2 * math.log(length)) if length else math.inf
    unit = 2**bits / (2 * math.pi)
    # Var R = (1 - R**2)**2 / 2N for a wrapped normal law, and d angle = dR / (R angle).
    error = (1 - length**2) / (length * angle * math.sqrt(2 * count)) if angle else 0.0
    return WrapEstimate(bits, unit * angle, unit * error)
