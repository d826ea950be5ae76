"""Shamir sharing of 32-byte secrets over the prime field of 65537 elements.

A secret is 16 limbs of 16 bits, each shared by a polynomial of its own; so each limb, and hence the
secret, is perfectly hidden from fewer than ``threshold`` holders. Why this field: products are
below 2**32, so a matrix product in float64 is exact up to 2**21 terms; 2**32 - 1 = 65535 * 65537,
so 32 random bits give a uniform element unless they are all ones; and logarithms fit a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.entropy import Entropy
from skellam.errors import DomainError, MessageError, ShapeError, TamperError

PRIME = 65537
LIMBS = 16
SECRET_BYTES = 2 * LIMBS
SHARE_BYTES = SECRET_BYTES + 2
_GENERATOR = 3
_ORDER = PRIME - 1

Field = NDArray[np.uint32]


def split(
    secrets: Sequence[bytes], points: NDArray[np.uint16], threshold: int, *, entropy: Entropy
) -> NDArray[np.uint8]:
    """Return the shares as bytes, indexed by point and secret; any ``threshold`` points combine."""
    _checks.integer("threshold", threshold, 1, len(points))
    _check_points(points)
    limbs = np.stack([_limbs(secret) for secret in secrets])
    coefficients = np.empty((threshold, limbs.size))
    coefficients[0] = limbs.ravel()
    coefficients[1:] = _uniform(coefficients[1:].size, entropy).reshape(-1, limbs.size)
    values = (_powers(points.tobytes(), threshold) @ coefficients) % PRIME
    return pack(values.astype(np.uint32).reshape(len(points), len(secrets), LIMBS))


def combine(points: NDArray[np.uint16], shares: NDArray[np.uint8]) -> tuple[bytes, ...]:
    """Return the secrets from exactly ``threshold`` shares, indexed by point and secret.

    Shares that fewer than ``threshold`` holders gave, or that do not fit together, give a wrong
    secret or raise `TamperError`: callers compare the secret with its commitment.
    """
    _check_points(points)
    values = unpack(shares).reshape(len(points), -1)
    limbs = (weights(points.tobytes()) @ values) % PRIME
    if (limbs >= 1 << 16).any():
        raise TamperError("the shares do not combine to a secret")
    octets = limbs.astype("<u2").reshape(-1, LIMBS)
    return tuple(row.tobytes() for row in octets)


@lru_cache(maxsize=4096)
def weights(points: bytes) -> NDArray[np.float64]:
    """Return the Lagrange weights at zero for points given as little-endian 16-bit numbers."""
    # w_j = prod_{m != j} x_m / (x_m - x_j): a sum of logarithms, without a single inversion.
    logs, powers = _tables()
    x = np.frombuffer(points, dtype="<u2").astype(np.int64)
    differences = (x[None, :] - x[:, None]) % PRIME
    np.fill_diagonal(differences, 1)
    exponents = logs[x].sum() - logs[x] - logs[differences].sum(axis=1)
    result: NDArray[np.float64] = powers[exponents % _ORDER].astype(np.float64)
    return result


def pack(values: Field) -> NDArray[np.uint8]:
    """Return field elements (16 in the last axis) as 34 bytes: low halves, then the top bits."""
    low = (values & 0xFFFF).astype("<u2").view(np.uint8)
    top = np.packbits((values >> 16).astype(np.uint8), axis=-1)
    return np.concatenate([low, top], axis=-1)


def unpack(octets: NDArray[np.uint8]) -> Field:
    """Return the field elements of `pack`; raise `MessageError` for bytes that it never gives."""
    if octets.shape[-1] != SHARE_BYTES:
        raise ShapeError(f"a share has {SHARE_BYTES} bytes, got {octets.shape[-1]}")
    low = np.ascontiguousarray(octets[..., :SECRET_BYTES]).view("<u2").astype(np.uint32)
    top = np.unpackbits(octets[..., SECRET_BYTES:], axis=-1).astype(np.uint32)
    if (top & (low != 0)).any():
        raise MessageError("a share holds a number outside the field")
    return low | top << np.uint32(16)


def _limbs(secret: bytes) -> Field:
    octets = _checks.octets("secret", secret, SECRET_BYTES)
    return np.frombuffer(octets, dtype="<u2").astype(np.uint32)


def _uniform(count: int, entropy: Entropy) -> NDArray[np.uint32]:
    # 2**32 - 1 is a multiple of the prime, so all values but the last fall evenly.
    words = np.empty(count, dtype=np.uint32)
    entropy.fill(words)
    while (rejected := words == 0xFFFFFFFF).any():
        again = np.empty(int(rejected.sum()), dtype=np.uint32)
        entropy.fill(again)
        words[rejected] = again
    return words % PRIME


def _check_points(points: NDArray[np.uint16]) -> None:
    if points.dtype != np.dtype("<u2"):
        raise DomainError("points must be little-endian 16-bit numbers")
    if not (len(points) and points.min() > 0 and len(np.unique(points)) == len(points)):
        raise DomainError("points must be distinct and not zero")


@lru_cache(maxsize=64)
def _powers(points: bytes, threshold: int) -> NDArray[np.float64]:
    logs, powers = _tables()
    x = np.frombuffer(points, dtype="<u2")
    exponents = np.outer(logs[x], np.arange(threshold)) % _ORDER
    result: NDArray[np.float64] = powers[exponents].astype(np.float64)
    return result


@cache
def _tables() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return logarithms (index 0 unused) and powers of the generator 3 of the unit group."""
    powers = np.empty(_ORDER, dtype=np.int64)
    powers[0] = 1
    filled = 1
    while filled < _ORDER:
        factor = pow(_GENERATOR, filled, PRIME)
        powers[filled : 2 * filled] = powers[:filled] * factor % PRIME
        filled *= 2
    logs = np.zeros(PRIME, dtype=np.int64)
    logs[powers] = np.arange(_ORDER)
    return logs, powers
