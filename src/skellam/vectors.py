"""Vectors: reals, integers, and residues modulo a power of two, each a type of its own.

A float cannot enter the ring and an unwrapped integer cannot leave it: only the codec turns one
kind into another. Each vector remembers whether any of the randomness in it can be replayed
(``replayable``); that mark is contagious, so that a ledger can refuse to call the result private.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self, SupportsFloat

import numpy as np
from numpy.typing import DTypeLike, NDArray

from skellam import _checks
from skellam.errors import DomainError, KindError, ShapeError


def residue_dtype(bits: int) -> np.dtype[Any]:
    """Return the narrowest unsigned type that holds residues modulo ``2**bits``."""
    _checks.integer("bits", bits, 2, 32)
    return np.dtype(np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32)


@dataclass(frozen=True, slots=True, eq=False)
class _Vector:
    """One-dimensional, read-only values."""

    values: NDArray[Any]

    def __post_init__(self) -> None:
        if not isinstance(self.values, np.ndarray):
            raise KindError(f"values must be a NumPy array, got {type(self.values).__name__}")
        if self.values.ndim != 1:
            raise ShapeError(f"values must have one dimension, got shape {self.values.shape}")
        view = self.values.view()
        view.flags.writeable = False
        _checks.assign(self, values=view)

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False and dtype is not None and np.dtype(dtype) != self.values.dtype:
            raise KindError(f"a {self.values.dtype} vector becomes {dtype} only by a copy")
        return np.array(self.values, dtype=dtype, copy=copy)


@dataclass(frozen=True, slots=True, eq=False)
class Reals(_Vector):
    """A vector of floats: what a model or an analyst works with."""

    replayable: bool = False

    def __post_init__(self) -> None:
        _Vector.__post_init__(self)
        if self.values.dtype.kind != "f":
            raise KindError(f"Reals hold floats, got {self.values.dtype}")

    def __truediv__(self, divisor: SupportsFloat) -> Self:
        x = _checks.number("divisor", divisor)
        if not (x != 0 and np.isfinite(x)):
            raise DomainError(f"divisor must be finite and not zero, got {x!r}")
        return replace(self, values=self.values / x)

    def __mul__(self, factor: SupportsFloat) -> Self:
        return replace(self, values=self.values * _checks.number("factor", factor))


@dataclass(frozen=True, slots=True, eq=False)
class Lattice(_Vector):
    """A vector of integers that has not been wrapped: noise, or a rounded update."""

    replayable: bool = False

    def __post_init__(self) -> None:
        _Vector.__post_init__(self)
        if self.values.dtype.kind != "i":
            raise KindError(f"Lattice holds signed integers, got {self.values.dtype}")


@dataclass(frozen=True, slots=True, eq=False)
class Residues(_Vector):
    """A vector modulo ``2**bits``: the only kind that leaves a client.

    ``label`` names the plan and round that the residues belong to; only like can be added to like.
    ``messages`` counts the clients' messages in a sum, each with a share of noise.
    """

    bits: int
    label: bytes = b""
    replayable: bool = False
    messages: int = 1

    def __post_init__(self) -> None:
        _Vector.__post_init__(self)
        _checks.integer("messages", self.messages, 0)
        kind = residue_dtype(self.bits)
        if self.values.dtype != kind:
            raise KindError(f"residues of {self.bits} bits are {kind}, got {self.values.dtype}")
        if self.values.size and int(self.values.max()) >> self.bits:
            raise DomainError(f"values must be below 2**{self.bits}, got {self.values.max()}")

    def require_like(self, other: Residues) -> None:
        """Raise unless ``other`` can be added: same width, length and label."""
        if self.bits != other.bits:
            raise DomainError(f"cannot add residues of {other.bits} bits to {self.bits} bits")
        if len(self) != len(other):
            raise ShapeError(f"cannot add a vector of length {len(other)} to one of {len(self)}")
        if self.label != other.label:
            raise DomainError("cannot add messages of different plans or rounds")

    def __add__(self, other: Residues) -> Self:
        self.require_like(other)
        mask = self.values.dtype.type((1 << self.bits) - 1)
        return replace(
            self,
            values=(self.values + other.values) & mask,
            replayable=self.replayable or other.replayable,
            messages=self.messages + other.messages,
        )
