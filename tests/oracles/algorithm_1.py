"""Algorithm 1 and its parts written out slowly, with Python integers and dense matrices."""

import math

import numpy as np

from skellam import SeededEntropy
from skellam.entropy import random_bytes


def modular_clip(value, low, high):
    """The number congruent to ``value`` modulo ``high - low`` in ``[low, high)``."""
    return (value - low) % (high - low) + low


def packed(values, bits):
    """One big integer whose lowest bits are the first value."""
    number = sum(int(v) << (i * bits) for i, v in enumerate(values))
    return number.to_bytes(math.ceil(len(values) * bits / 8), "little")


def hadamard_matrix(order):
    """Sylvester's matrix: the sign is the parity of the common bits of row and column."""
    return np.array([[(-1.0) ** (i & j).bit_count() for j in range(order)] for i in range(order)])


def hartley_matrix(order):
    return np.array(
        [
            [
                math.cos(2 * math.pi * i * j / order) + math.sin(2 * math.pi * i * j / order)
                for j in range(order)
            ]
            for i in range(order)
        ]
    )


def rotation_matrix(length):
    block = length & -length
    return np.kron(hartley_matrix(length // block), hadamard_matrix(block)) / math.sqrt(length)


def exact_norm(floats):
    """The L2 norm of float32 values: their squares are exact in float64, and so is ``fsum``."""
    return math.sqrt(math.fsum(float(v) ** 2 for v in floats))


def clipped(x, clip):
    x = np.asarray(x, dtype=np.float64)
    peak = np.abs(x).max()
    norm = peak * np.linalg.norm(x / peak) if peak else 0.0
    return x * min(1.0, clip / norm) if norm else x


def signs(length, public_seed):
    octets = random_bytes(math.ceil(length / 8), entropy=SeededEntropy(public_seed, "codec/signs"))
    return np.array([-1.0 if octets[i // 8] >> (i % 8) & 1 else 1.0 for i in range(length)])


def subset(length, kept, public_seed):
    octets = random_bytes(8 * length, entropy=SeededEntropy(public_seed, "codec/subset"))
    keys = [int.from_bytes(octets[8 * i : 8 * i + 8], "little") for i in range(length)]
    return sorted(sorted(range(length), key=keys.__getitem__)[:kept])


def encode(x, spec, public_seed, coins, noise, width=32):
    """One client's residues, given its coins of so many bits and its noise."""
    padded = np.concatenate([clipped(x, spec.clip), np.zeros(spec.padded_dim - spec.dimension)])
    y = (
        spec.scale
        * rotation_matrix(spec.padded_dim)
        @ (signs(spec.padded_dim, public_seed) * padded)
    )
    if spec.sent_dim < spec.padded_dim:
        y = clipped(y[subset(spec.padded_dim, spec.sent_dim, public_seed)], spec.radius)
    bound = getattr(spec.rounding, "coordinate_bound", None)
    if bound is not None:
        y = np.clip(y, -bound, bound)
    whole = [(int(v * 2**width) + int(coin)) >> width for v, coin in zip(y, coins, strict=True)]
    return [(w + int(z)) % 2**spec.bits for w, z in zip(whole, noise, strict=True)]
