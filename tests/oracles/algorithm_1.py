"""Algorithm 1 and its parts written out slowly, with Python integers and dense matrices."""

import math

import numpy as np


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
