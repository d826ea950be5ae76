"""Vectors: reals, integers, and residues modulo a power of two, each a type of its own.

Tensors become one vector by a `Layout`, and residues become bytes by `pack_residues`: exactly
``bits`` bits a coordinate, the lowest bits first.

A float cannot enter the ring and an unwrapped integer cannot leave it: only the codec turns one
kind into another. Each vector remembers whether any of the randomness in it can be replayed
(``replayable``); that mark is contagious, so that a ledger can refuse to call the result private.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, Protocol, Self, SupportsFloat, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from skellam import _checks
from skellam.errors import DomainError, KindError, ShapeError

_CHUNK: Final = 1 << 18
"""Residues packed at a time: fewer make many short calls, more would leave the cache."""


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
            raise KindError(
                f"a {self.values.dtype} vector becomes {dtype} only by a copy; leave copy=False out"
            )
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
            raise DomainError(
                f"cannot add residues of {other.bits} bits to {self.bits} bits; use one plan"
            )
        if len(self) != len(other):
            raise ShapeError(f"cannot add a vector of length {len(other)} to one of {len(self)}")
        if self.label != other.label:
            raise DomainError(
                "cannot add messages of different plans or rounds; use one codec for all"
            )

    def __add__(self, other: Residues) -> Self:
        self.require_like(other)
        mask = self.values.dtype.type((1 << self.bits) - 1)
        return replace(
            self,
            values=(self.values + other.values) & mask,
            replayable=self.replayable or other.replayable,
            messages=self.messages + other.messages,
        )


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
    return _flat("x", as_array("x", x))


def _named(tensors: Tensors) -> dict[str, NDArray[Any]]:
    if isinstance(tensors, Mapping):
        return {name: as_array(name, tensor) for name, tensor in tensors.items()}
    items = tensors if isinstance(tensors, Sequence) else [tensors]
    return {str(i): as_array(str(i), tensor) for i, tensor in enumerate(items)}


def as_array(name: str, tensor: Tensors) -> NDArray[Any]:
    """Return ``tensor`` as an array, without a copy where NumPy can read its memory."""
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


def packed_size(length: int, bits: int) -> int:
    """Return how many bytes ``length`` residues of ``bits`` bits take."""
    return -(-length * bits // 8)


def pack_residues(values: NDArray[np.unsignedinteger[Any]], bits: int) -> bytes:
    """Return ``values``, all below ``2**bits``, in `packed_size` bytes."""
    if bits == 8 * values.itemsize:
        return values.astype(_little(bits), copy=False).tobytes()
    parts = (_pack(values[i : i + _CHUNK], bits) for i in range(0, len(values), _CHUNK))
    return b"".join(parts)


def unpack_residues(data: bytes, length: int, bits: int) -> NDArray[np.unsignedinteger[Any]]:
    """Return the ``length`` residues that `pack_residues` put into ``data``, or raise."""
    if len(data) != packed_size(length, bits):
        raise ShapeError(
            f"{length} residues of {bits} bits are {packed_size(length, bits)} bytes, "
            f"got {len(data)}"
        )
    if bits == 8 * residue_dtype(bits).itemsize:
        return np.frombuffer(data, dtype=_little(bits)).astype(residue_dtype(bits))
    octets = np.frombuffer(data, dtype=np.uint8)
    if length * bits % 8 and octets[-1] >> length * bits % 8:
        raise DomainError("data must end in zero bits after the last residue")
    out = np.empty(length, dtype=residue_dtype(bits))
    step = _CHUNK * bits // 8
    for i, start in enumerate(range(0, length, _CHUNK)):
        part = out[start : start + _CHUNK]
        part[:] = _unpack(octets[i * step : (i + 1) * step], len(part), bits)
    return out


def _little(bits: int) -> np.dtype[Any]:
    return residue_dtype(bits).newbyteorder("<")


def _pack(values: NDArray[np.unsignedinteger[Any]], bits: int) -> bytes:
    lanes, columns = _lanes(bits)
    padded = np.zeros(-(-len(values) // (lanes * _residues_a_word(bits))) * lanes, dtype="<u8")
    padded.view(_little(bits))[: len(values)] = values
    # Of v0 + 2**t v1 the second term becomes 2**c v1, for numbers of c bits in t, and so on.
    for size, content in _halvings(bits)[::-1]:
        pairs = padded.view(f"<u{size // 4}")
        high = pairs >> size
        high *= (1 << size) - (1 << content)
        pairs -= high
    words = padded.reshape(-1, lanes)
    out = np.empty((len(words), columns), dtype="<u8")
    _spread(words, out, [(lane, column, -shift) for lane, column, shift in _overlaps(bits)])
    return out.tobytes()[: packed_size(len(values), bits)]


def _unpack(octets: NDArray[np.uint8], length: int, bits: int) -> NDArray[Any]:
    lanes, columns = _lanes(bits)
    rows = -(-length // (lanes * _residues_a_word(bits)))
    padded = np.zeros((rows, columns), dtype="<u8")
    padded.view(np.uint8).reshape(-1)[: len(octets)] = octets
    words = np.empty((rows, lanes), dtype="<u8")
    _spread(padded, words, [(column, lane, shift) for lane, column, shift in _overlaps(bits)])
    words &= (1 << bits * _residues_a_word(bits)) - 1
    for size, content in _halvings(bits):
        pairs = words.view(f"<u{size // 4}")
        high = pairs >> content
        high *= (1 << size) - (1 << content)
        pairs += high
    return words.view(_little(bits)).reshape(-1)[:length]


def _spread(
    source: NDArray[np.uint64], target: NDArray[np.uint64], parts: list[tuple[int, int, int]]
) -> None:
    """Set columns of ``target`` to those of ``source``, shifted to the left, or'ed together."""
    begun = set[int]()
    for at, to, shift in parts:
        move = np.left_shift if shift >= 0 else np.right_shift
        if to in begun:
            target[:, to] |= move(source[:, at], abs(shift))
        else:
            move(source[:, at], abs(shift), out=target[:, to])
        begun.add(to)


def _residues_a_word(bits: int) -> int:
    return 8 // residue_dtype(bits).itemsize


def _halvings(bits: int) -> list[tuple[int, int]]:
    """Return the sizes of the two halves of 64 bits and so on, and the bits used of each half."""
    smallest, sizes = 8 * residue_dtype(bits).itemsize, (32, 16, 8)
    return [(size, bits * size // smallest) for size in sizes if size >= smallest]


def _lanes(bits: int) -> tuple[int, int]:
    """Return how many words of the bits of `_residues_a_word` fill how many words of 64 bits."""
    used = bits * _residues_a_word(bits)
    return 64 // math.gcd(64, used), used // math.gcd(64, used)


@cache
def _overlaps(bits: int) -> tuple[tuple[int, int, int], ...]:
    """Return which lanes share bits with which word of 64 bits, and the shift between the two."""
    used = bits * _residues_a_word(bits)
    return tuple(
        (lane, column, 64 * column - lane * used)
        for lane in range(_lanes(bits)[0])
        for column in range(lane * used // 64, -(-(lane + 1) * used // 64))
    )
