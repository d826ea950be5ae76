"""Arithmetic of both servers modulo ``2**bits``: masks, the band, noise, estimates."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray

from skellam.bands import MAX_BAND
from skellam.entropy import SeededEntropy, derive_key
from skellam.errors import DomainError, MessageError, ShapeError
from skellam.noise import SkellamSampler
from skellam.protocol.masks import add_masks
from skellam.protocol.wire import MAX_LENGTH, Blob, Many, Nested
from skellam.twoserver.constants import RunConstants, digest, number
from skellam.twoserver.messages import RoundNumber
from skellam.vectors import pack_residues, residue_dtype, unpack_residues

Ring = NDArray[np.unsignedinteger[Any]]
_ESTIMATE: Final = "<f8"


@dataclass(frozen=True, slots=True)
class Slot:
    """A vector of one round that the band still needs: little-endian numbers."""

    round_: RoundNumber
    values: Annotated[bytes, Blob(8 * MAX_LENGTH)]


Window = Annotated[tuple[Slot, ...], Many(Nested(Slot), MAX_BAND)]


def to_slot(round_: int, values: NDArray[Any]) -> Slot:
    """Return ``values`` of ``round_`` for the window."""
    return Slot(round_, values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes())


def advanced(window: Iterable[Slot], added: Slot, constants: RunConstants) -> tuple[Slot, ...]:
    """Return the window after the round of ``added``, without what no later round needs."""
    last = added.round_
    slots = (*window, added)
    return tuple(slot for slot in slots if last - slot.round_ < len(constants.band) - 1)


def rounds(window: Iterable[Slot]) -> tuple[int, ...]:
    """Return the rounds in ``window``."""
    return tuple(slot.round_ for slot in window)


def restricted(window: Iterable[Slot], to: Container[int]) -> tuple[Slot, ...]:
    """Return the window in which all rounds but those in ``to`` are empty."""
    return tuple(slot for slot in window if slot.round_ in to)


def zeros(constants: RunConstants) -> Ring:
    """Return the empty sum."""
    return np.zeros(constants.length, dtype=residue_dtype(constants.bits))


def to_wire(values: Ring, constants: RunConstants) -> bytes:
    """Return ``values`` with exactly ``bits`` bits a coordinate."""
    return pack_residues(values, constants.bits)


def from_wire(data: bytes, constants: RunConstants) -> Ring:
    """Return the vector that `to_wire` wrote, or raise `MessageError`."""
    try:
        return unpack_residues(data, constants.length, constants.bits)
    except (DomainError, ShapeError) as error:
        raise MessageError(str(error)) from error


def from_slot(slot: Slot, dtype: np.dtype[Any], constants: RunConstants) -> NDArray[Any]:
    """Return the vector in ``slot``, or raise `MessageError`."""
    values = np.frombuffer(slot.values, dtype=dtype.newbyteorder("<"))
    if len(values) != constants.length:
        raise MessageError(f"a stored vector has {len(values)} numbers, not {constants.length}")
    return values


def mask_key(seed: bytes, round_digest: bytes, sender: int) -> bytes:
    """Return the key of the mask that ``seed`` gives to ``sender`` in this round alone."""
    return derive_key(seed, b"twoserver/mask/" + round_digest + number(sender))


def masked(values: Ring, keys: Sequence[bytes], constants: RunConstants) -> Ring:
    """Return ``values`` plus the masks of ``keys``."""
    total = values.copy()
    add_masks(total, bits=constants.bits, added=keys)
    return total


def band_sum(current: Ring, window: Iterable[Slot], round_: int, constants: RunConstants) -> Ring:
    """Return ``sum_j c_j V_{t-j}``, where ``current`` is ``V_t`` and the window has the rest."""
    kind, modulus_mask = current.dtype.type, (1 << constants.bits) - 1
    total = current * kind(constants.band[0] & modulus_mask)
    for coefficient, slot in _lags(window, round_, constants):
        total += from_slot(slot, current.dtype, constants) * kind(coefficient & modulus_mask)
    return total & kind(modulus_mask)


def add(left: Ring, right: Ring, constants: RunConstants) -> Ring:
    """Return the sum modulo ``2**bits``."""
    return (left + right) & left.dtype.type((1 << constants.bits) - 1)


def subtract(left: Ring, right: Ring, constants: RunConstants) -> Ring:
    """Return the difference modulo ``2**bits``."""
    return (left - right) & left.dtype.type((1 << constants.bits) - 1)


def sampler(constants: RunConstants) -> SkellamSampler | None:
    """Return the law of one server's noise, or None where no noise is added."""
    return SkellamSampler(constants.variance) if constants.variance else None


def noise(key: bytes, hidden: Ring, round_digest: bytes, constants: RunConstants) -> Ring:
    """Return one server's noise for the vector ``hidden`` that it is about to show.

    It is a pseudorandom function of the round and of that very vector: one vector has one noise,
    however often it is asked for, and two vectors have independent ones, even if a server was set
    back to an older state and is asked about another set of clients.
    """
    law = sampler(constants)
    if law is None:
        return zeros(constants)
    content = digest(b"hidden", hidden.astype(hidden.dtype.newbyteorder("<")).tobytes())
    seed = derive_key(key, b"twoserver/noise/" + round_digest + content)
    entropy = SeededEntropy(seed, "twoserver/noise")
    drawn = law.draw(constants.length, entropy=entropy).values
    return drawn.astype(hidden.dtype) & hidden.dtype.type((1 << constants.bits) - 1)


def estimate(
    opened: Ring, estimates: Iterable[Slot], round_: int, constants: RunConstants
) -> NDArray[np.float64]:
    """Return ``x_t = (Y_t - sum_{j >= 1} c_j x_{t-j}) / c_0`` from ``Y_t`` modulo ``2**bits``.

    The prediction ``sum c_j x_{t-j}`` is subtracted before centring: the ring has to hold
    ``c_0 x_t`` and not the running sum.
    """
    prediction = np.zeros(constants.length)
    for coefficient, slot in _lags(estimates, round_, constants):
        prediction += coefficient * from_slot(slot, np.dtype(_ESTIMATE), constants)
    nearest = np.rint(prediction)
    half = 1 << (constants.bits - 1)
    distance = (opened.astype(np.int64) - nearest.astype(np.int64) + half) % (2 * half) - half
    return (nearest - prediction + distance) / constants.band[0]


def _lags(
    window: Iterable[Slot], round_: int, constants: RunConstants
) -> Iterator[tuple[int, Slot]]:
    for slot in window:
        lag = round_ - slot.round_
        if 1 <= lag < len(constants.band):
            yield constants.band[lag], slot
