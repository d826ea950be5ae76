"""Exact laws of rounded, noisy releases and of blocks of them, by sums of positive terms."""

import math

import numpy as np
from scipy.special import ndtri

from oracles import exact_profile


def coordinate(masses, x, margin):
    """The law of round(x) + noise on the window that ``margin`` leaves of ``masses``."""
    m, f = divmod(abs(x), 1.0)
    steps = [int(math.copysign(k, x)) for k in (m, m + 1)]
    moved = [masses[margin - k : masses.size - margin - k] for k in steps]
    return (1 - f) * moved[0] + f * moved[1]


def pair(variance, vector, reach):
    """The joint laws of the release of ``vector`` and of the zero vector."""
    margin = 1 + math.ceil(max(map(abs, vector)))
    masses = exact_profile.skellam_masses(variance, reach + margin)
    released = [coordinate(masses, x, margin) for x in vector]
    plain = [coordinate(masses, 0.0, margin)] * len(vector)
    return exact_profile.product(released), exact_profile.product(plain)


def block_slope(variance, block, y, tail, points=100):
    """The GDP parameter of a block of equal values y over y sqrt(block), cut at ``tail``.

    The loss is put on a grid of ``points`` to a deviation by connecting the dots (each atom keeps
    both its masses), so the result is from above; ``block`` is a power of two.
    """
    masses = exact_profile.skellam_masses(variance, 20 + int(13 * math.sqrt(variance)))
    margin = 1 + math.ceil(y)
    p, q = coordinate(masses, y, margin), coordinate(masses, 0.0, margin)
    loss = np.log(p / q)
    spacing = math.sqrt((q * loss**2).sum()) / points
    at = np.floor(loss / spacing).astype(int)
    upper = q * np.expm1(loss - at * spacing) / math.expm1(spacing)
    first = at.min()
    plain = np.bincount(at - first, q - upper, np.ptp(at) + 2)
    plain += np.bincount(at - first + 1, upper, plain.size)
    for _ in range(block.bit_length() - 1):
        plain, first = np.convolve(plain, plain), 2 * first
        kept = np.flatnonzero(plain > 1e-10 * tail)
        plain, first = plain[kept[0] : kept[-1] + 1], first + kept[0]
    released = plain * np.exp(spacing * (first + np.arange(plain.size)))
    z_plain, z_released = _quantiles(plain), _quantiles(released)
    beyond = np.cumsum(plain[::-1])[::-1]
    inside = (beyond >= tail) & (np.cumsum(plain) - plain >= tail)
    return (z_released - z_plain)[inside].max() / (y * math.sqrt(block))


def _quantiles(masses):
    """Phi^-1(P(K >= k)), from whichever tail is the smaller."""
    above = np.cumsum(masses[::-1])[::-1]
    below = np.maximum(np.cumsum(masses) - masses, 1e-300)
    return np.where(above < 0.5, ndtri(np.minimum(above, 0.5)), -ndtri(np.minimum(below, 0.5)))
