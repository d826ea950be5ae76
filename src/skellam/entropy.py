"""Entropy, the only source of randomness: AES-256-CTR, keyed by the system or by a seed.

`SystemEntropy` is what privacy needs. `SeededEntropy` replays: it is for what everybody must draw
alike (rotations, masks) and for tests; whatever is drawn from it is marked ``replayable``, and a
ledger gives no guarantee for it.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Protocol, final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from skellam import _checks
from skellam.errors import DomainError, KindError

SEED_BYTES = 32
_ZEROS = memoryview(bytes(1 << 17))
_REKEY_AFTER = 1 << 26
"""Bytes under one key: 2**22 blocks, so that counter mode is within 2**-85 of random bits."""


class Entropy(Protocol):
    """Where random bits come from."""

    @property
    def replayable(self) -> bool:
        """Whether somebody who knows a seed can draw the same bits again."""

    def fill(self, buffer: NDArray[Any]) -> None:
        """Overwrite every byte of ``buffer`` with random bits."""


def random_bytes(count: int, *, entropy: Entropy) -> bytes:
    """Return ``count`` random bytes."""
    buffer = np.empty(_checks.integer("count", count, 0), dtype=np.uint8)
    entropy.fill(buffer)
    return buffer.tobytes()


@final
class SystemEntropy:
    """Secret random bits from AES-256-CTR under keys of ``os.urandom``.

    Every thread has a key of its own, a forked child never continues its parent's stream, and a
    copy or a pickle carries no key.
    """

    __slots__ = ("_local",)
    replayable = False

    def __init__(self) -> None:
        self._local = threading.local()

    def fill(self, buffer: NDArray[Any]) -> None:
        """Overwrite every byte of ``buffer`` with random bits."""
        octets = _octets(buffer)
        for start in range(0, len(octets), _REKEY_AFTER):
            part = octets[start : start + _REKEY_AFTER]
            _encrypt_zeros(self._stream(len(part)), part)

    def _stream(self, count: int) -> CipherContext:
        local = self._local
        left = getattr(local, "left", 0) - count
        if left < 0 or local.generation != _fork.generation:
            local.stream = _stream(os.urandom(32))
            local.generation = _fork.generation
            left = _REKEY_AFTER - count
        local.left = left
        stream: CipherContext = local.stream
        return stream

    def __reduce__(self) -> tuple[type[SystemEntropy], tuple[()]]:
        return SystemEntropy, ()


@final
class SeededEntropy:
    """Bits that a 32-byte seed and a context determine; other contexts give independent bits."""

    __slots__ = ("_lock", "_stream")
    replayable = True

    def __init__(self, seed: bytes, context: str) -> None:
        if not isinstance(context, str) or not context:
            raise DomainError("context must be a non-empty string that says what the bits are for")
        self._stream = _stream(
            derive_key(_checks.octets("seed", seed, SEED_BYTES), context.encode())
        )
        self._lock = threading.Lock()

    def fill(self, buffer: NDArray[Any]) -> None:
        """Overwrite every byte of ``buffer`` with the next bits of the stream."""
        with self._lock:
            _encrypt_zeros(self._stream, _octets(buffer))


def derive_key(secret: bytes, context: bytes) -> bytes:
    """Return a 32-byte key from ``secret`` for ``context`` alone (HKDF-SHA256, RFC 5869)."""
    return HKDF(SHA256(), 32, salt=None, info=b"skellam/1/" + context).derive(secret)


def _stream(key: bytes) -> CipherContext:
    return Cipher(AES(key), CTR(bytes(16))).encryptor()


def _octets(buffer: NDArray[Any]) -> memoryview:
    if not isinstance(buffer, np.ndarray) or buffer.dtype.kind not in "uif":
        raise KindError("buffer must be a NumPy array of numbers")
    if not (buffer.flags.c_contiguous and buffer.flags.writeable):
        raise DomainError("buffer must be C-contiguous and writeable; pass a fresh array")
    return buffer.reshape(-1).view(np.uint8).data


def _encrypt_zeros(stream: CipherContext, octets: memoryview) -> None:
    size = len(_ZEROS)
    for start in range(0, len(octets), size):
        part = octets[start : start + size]
        stream.update_into(_ZEROS[: len(part)], part)


class _Fork:
    """Counts the forks that led to this process."""

    generation = 0

    def count(self) -> None:
        self.generation += 1


_fork = _Fork()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fork.count)
