"""Layouts: how a model's tensors become one vector, and the vector tensors again."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from skellam.errors import DomainError, KindError, ShapeError
from skellam.vectors import Reals


class SupportsDLPack(Protocol):
    """A tensor of any library that shares its memory by DLPack, such as torch."""

    def __dlpack__(self, **kwargs: object) -> object:
        """Return a capsule with the tensor's memory."""

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return where the memory is."""


Tensor: TypeAlias = NDArray[Any] | SupportsDLPack | Reals | float
Tensors: TypeAlias = Tensor | Sequence[Tensor] | Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Slot:
    """One tensor of the vector: its name, shape and type."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A tensor that is not part of the vector, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Layout:
    """The order, names, shapes and types of the tensors in a vector, and what was left out."""

    slots: tuple[Slot, ...]
    left_out: tuple[LeftOut, ...]

    @classmethod
    def of(cls, tensors: Tensors, *, only: Collection[str] | None = None) -> Layout:
        """Return the layout of the float tensors, or of those that ``only`` names.

        A list's tensors are named by their positions. Integer and boolean tensors (counters, masks)
        cannot be averaged: `left_out` lists them, unless ``only`` asks for one, which raises.
        """
        arrays = _named(tensors)
        unknown = set(only or ()) - set(arrays)
        if unknown:
            raise DomainError(f"only names {sorted(unknown)}, but there are {sorted(arrays)}")
        slots: list[Slot] = []
        left: list[LeftOut] = []
        for name, array in arrays.items():
            if only is not None and name not in only:
                left.append(LeftOut(name, "not named"))
            elif array.dtype.kind in "iub" and only is None:
                left.append(LeftOut(name, f"{array.dtype} cannot be averaged"))
            else:
                slots.append(Slot(name, array.shape, _float_dtype(name, array)))
        return cls(tuple(slots), tuple(left))

    @property
    def dimension(self) -> int:
        """The number of coordinates."""
        return sum(math.prod(slot.shape) for slot in self.slots)

    def flatten(self, tensors: Tensors) -> NDArray[np.floating[Any]]:
        """Return the vector of ``tensors``, which must have this layout."""
        arrays = _named(tensors)
        for slot in self.slots:
            if slot.name not in arrays or arrays[slot.name].shape != slot.shape:
                raise ShapeError(f"tensor {slot.name!r} must be there with shape {slot.shape}")
        parts = [_flat(slot.name, arrays[slot.name]) for slot in self.slots]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.float32)

    def join(
        self, vector: Reals | NDArray[np.floating[Any]], *, like: Tensors | None = None
    ) -> dict[str, NDArray[Any]]:
        """Return the tensors of ``vector`` by name; with ``like``, in its order with its others."""
        values = np.asarray(vector)
        if values.shape != (self.dimension,):
            raise ShapeError(f"vector must have length {self.dimension}, got shape {values.shape}")
        tensors: dict[str, NDArray[Any]] = {}
        start = 0
        for slot in self.slots:
            stop = start + math.prod(slot.shape)
            tensors[slot.name] = values[start:stop].reshape(slot.shape).astype(slot.dtype)
            start = stop
        if like is None:
            return tensors
        return {name: array.copy() for name, array in _named(like).items()} | tensors


def flatten(x: Tensors) -> NDArray[np.floating[Any]]:
    """Return ``x`` as one vector of float32 or float64, without a copy where it is one already."""
    if isinstance(x, (Sequence, Mapping)):
        return Layout.of(x).flatten(x)
    return _flat("x", _array("x", x))


def _named(tensors: Tensors) -> dict[str, NDArray[Any]]:
    if isinstance(tensors, Mapping):
        return {name: _array(name, tensor) for name, tensor in tensors.items()}
    items = tensors if isinstance(tensors, Sequence) else [tensors]
    return {str(i): _array(str(i), tensor) for i, tensor in enumerate(items)}


def _array(name: str, tensor: Tensor) -> NDArray[Any]:
    if isinstance(tensor, np.ndarray):
        return tensor
    if isinstance(tensor, Reals):
        return tensor.values
    try:
        if hasattr(tensor, "__dlpack__"):
            # torch exports no tensor that requires a gradient.
            shared: Any = tensor.detach() if hasattr(tensor, "detach") else tensor
            return np.from_dlpack(shared, device="cpu")
        return np.asarray(tensor)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise KindError(f"{name} is no tensor that NumPy can read: {error}") from error


def _flat(name: str, array: NDArray[Any]) -> NDArray[np.floating[Any]]:
    dtype = _float_dtype(name, array)
    return array.reshape(-1).astype(np.promote_types(dtype, np.float32), copy=False)


def _float_dtype(name: str, array: NDArray[Any]) -> np.dtype[Any]:
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise KindError(f"{name} must be of float16, float32 or float64, got {array.dtype}")
    return array.dtype
