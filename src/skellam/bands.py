"""Bands of correlated rounds: coefficients, sensitivities, and the noise that they leave.

Round ``t`` opens ``Y_t = sum_j c_j X_{t-j} + Z_t``, that is ``Y = C X + Z`` with the lower
triangular Toeplitz matrix C of the band ``c``, and ``C^-1 Y = X + C^-1 Z`` estimates the sums. The
band multiplies the signal, never the noise: Z is fresh on the integers in every round.

*Sensitivity.* A user takes part in rounds ``t_1 < ... < t_k``, any two at least ``separation``
apart, with vectors of norm at most 1: the opened sums move by ``D = sum_i C[:, t_i] g_i``. Two
columns t <= u have the product ``sum_{v < T - u} c_v c_{v + u - t}``. It is not negative, and as c
does not increase it falls in ``u - t`` and in ``u``. Compare any ``t_i`` with ``(i - 1)
separation``: both the gaps and the rounds themselves are at least as large. So the norm of D is
largest for these earliest and closest rounds and for equal vectors; that is what is computed, and
it is attained (Kalinin and Lampert 2024, theorem 2, has it for matrices of reals).
"""

from __future__ import annotations

import itertools
import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.errors import DomainError, ShapeError

MAX_BAND: Final = 1 << 12
MAX_COEFFICIENT: Final = (1 << 16) - 1


def require_band(band: tuple[int, ...]) -> tuple[int, ...]:
    """Return ``band`` if ``c_0 > c_1 >= ... >= 0`` without a common factor.

    ``c_0 > c_1`` keeps the inverse stable (Eneström, Kakeya): the estimates' errors do not grow.
    """
    if not isinstance(band, tuple) or not 1 <= len(band) <= MAX_BAND:
        raise ShapeError(f"band must be a tuple of 1 to {MAX_BAND} integers, got {band!r}")
    for c in band:
        _checks.integer("a coefficient of the band", c, 0, MAX_COEFFICIENT)
    pairs = list(itertools.pairwise(band))
    if any(left < right for left, right in pairs) or (pairs and band[0] == band[1]):
        raise DomainError(f"band must have c_0 > c_1 >= c_2 >= ... >= 0, got {band}")
    if math.gcd(*band) != 1:
        raise DomainError(
            f"band must have no common factor, got {band}; divide it by {math.gcd(*band)}"
        )
    return band


def possible_participations(participations: int, separation: int, rounds: int | None) -> int:
    """Return how often a user can take part in ``rounds`` rounds, at most ``participations``."""
    return participations if rounds is None else min(participations, -(-rounds // separation))


def squared_sensitivity(
    band: tuple[int, ...], *, participations: int, separation: int, rounds: int | None = None
) -> int:
    """Return the squared norm by which a user's unit vectors move all opened sums, at most.

    It is exact, and attained. ``rounds`` is the number of rounds that are opened; without it, as
    many as it takes for all participations to count in full.
    """
    k = possible_participations(participations, separation, rounds)
    overlaps = min(k, -(-len(band) // separation))
    return sum(
        (1 if m == 0 else 2) * _products(band, m * separation, range(m, k), separation, rounds)
        for m in range(overlaps)
    )


def _products(
    band: tuple[int, ...], lag: int, indices: range, separation: int, rounds: int | None
) -> int:
    """Sum the products of columns ``i separation`` and ``lag`` before it over ``indices``."""
    width = len(band) - lag
    sums = np.cumsum(np.array(band[:width], dtype=np.int64) * np.array(band[lag:], dtype=np.int64))
    if rounds is None:
        return len(indices) * int(sums[-1])
    uncut = range(indices.start, max(indices.start, (rounds - width) // separation + 1))
    full = min(len(uncut), len(indices))
    cut = (rounds - i * separation for i in indices[full:])
    return full * int(sums[-1]) + sum(int(sums[left - 1]) for left in cut)


def peak(band: tuple[int, ...], *, participations: int, separation: int) -> int:
    """Return the norm by which a user's unit vectors move one opened sum, at most."""
    return sum(itertools.islice(band[::separation], participations))


def touched_rounds(band: tuple[int, ...], *, participations: int, rounds: int | None = None) -> int:
    """Return a bound on the opened sums that a user's vectors move at all."""
    touched = participations * len(band)
    return touched if rounds is None else min(touched, rounds)


def responses(
    band: tuple[int, ...] | NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return ``w * r``: the first terms of ``weights(z) / band(z)``.

    With weights 1, 0, 0, ... that is the column of ``C^-1``: what one round's noise does to later
    estimates. With the weights that a server gives to the estimates (`workload`) it is what one
    round's noise does to later models.
    """
    from scipy.signal import lfilter

    return np.asarray(lfilter([1.0], np.asarray(band, dtype=np.float64), weights))


def workload(rounds: int, momentum: float = 0.0) -> NDArray[np.float64]:
    """Return what an estimate adds to the model 0, 1, 2, ... rounds later, at learning rate 1.

    ``v <- momentum v + estimate``, ``model <- model + v`` gives 1, 1 + m, 1 + m + m^2, ...
    """
    return np.cumsum(momentum ** np.arange(rounds, dtype=np.float64))


def model_variances(
    band: tuple[int, ...] | NDArray[np.float64], *, rounds: int, momentum: float = 0.0
) -> NDArray[np.float64]:
    """Return the variance of the noise in the model after each round, for noise of variance 1."""
    return np.cumsum(responses(band, workload(rounds, momentum)) ** 2)


def estimate_variances(
    band: tuple[int, ...] | NDArray[np.float64], *, rounds: int
) -> NDArray[np.float64]:
    """Return the variance of the noise in each estimate, for noise of variance 1."""
    return np.cumsum(responses(band, np.eye(1, rounds)[0]) ** 2)
