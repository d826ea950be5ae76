"""Correlated rounds: the GDP parameter of Skellam noise over a band of rounds (Result C).

docs/maths/correlated_noise.md has the proofs. Round t opens ``sum_j c_j X_{t-j} + Z_t``. Given all
that was opened before, one user's vectors shift it by a vector ``D_t`` that the past decides.

*Integer vectors.* Round t is ``eta |D_t|``-GDP given the past (Result A). On every path the squares
sum to at most ``l2^2 squared_sensitivity``, and parameters that are chosen by the past compose to
the square root of the largest sum of their squares (Smith and Thakurta 2022; lemma 1 there).

*Rounded vectors.* A coordinate x = m + f takes part in len(c) rounds with one and the same integer,
m or m + 1. A test of size a has power at most ``(1-f) Phi(z + m s) + f Phi(z + (m+1) s)``,
``z = Phi^-1(a)``, ``s = eta ||c||``: that of the best test between the same mixture of NORMALS and
N(0, 1). So that pair dominates, and Results B and B' hold for it in place of Skellam's law:

    gap_f(z) = Phi^-1((1 - f) Phi(z) + f Phi(z + s)) - z <= f max(s, (Phi(z + s) - Phi(z)) / phi(z))

as Phi^-1 is concave below 1/2 and convex above. The second term falls in z, so that its value at
the smallest certified size is the largest. The integer part is a shift of z by m s, which only
moves it to larger sizes: certified are all z + m s >= Phi^-1(tail), and what is beyond has
probability ``tail`` under one law and at most ``Phi(Phi^-1(tail) + s)`` under the other.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import assert_never

import numpy as np

from skellam import bands
from skellam.accounting.gdp import (
    DEFAULT_TAIL,
    FLOAT_SAFETY,
    GdpCertificate,
    certificate_of_law,
    eta_skellam,
    last_threshold,
    max_over_cells,
    power_bound,
    required_bound,
    slope_of_scores,
    survival,
)
from skellam.accounting.laws import Table, skellam_law
from skellam.accounting.mechanisms import (
    Adjacency,
    Banded,
    BandedSkellam,
    RoundedBandedSkellam,
    separation_of,
)
from skellam.errors import CertificateError

_STEP = 0.04
_MAX_GRID = 1 << 13


def participations_of(noise: Banded) -> int:
    """Return how often a user can take part in the rounds that the run can open."""
    return bands.possible_participations(
        noise.participations, separation_of(noise), noise.run_rounds
    )


def touched_rounds(noise: Banded) -> int:
    """Return how many opened rounds a user's vectors enter, at most."""
    times = participations_of(noise)
    return bands.touched_rounds(noise.band, participations=times, rounds=noise.run_rounds)


def certificate(noise: Banded) -> GdpCertificate:
    """Return the GDP parameter of all rounds together, and what is set aside."""
    match noise:
        case BandedSkellam():
            return _certificate_of_integers(noise)
        case RoundedBandedSkellam():
            return _certificate_of_rounding(noise)
        case _:
            assert_never(noise)


def _certificate_of_integers(noise: BandedSkellam) -> GdpCertificate:
    times, apart = participations_of(noise), separation_of(noise)
    squared = bands.squared_sensitivity(
        noise.band, participations=times, separation=apart, rounds=noise.run_rounds
    )
    peak = noise.l2 * bands.peak(noise.band, participations=times, separation=apart)
    one = certificate_of_law(skellam_law(noise.variance), l2=peak, dimension=noise.dimension)
    eta = eta_skellam(noise.variance) * noise.l2 * math.sqrt(squared) * (1 + 1e-12)
    return GdpCertificate(eta, min(1.0, one.rare * touched_rounds(noise)))


def _certificate_of_rounding(noise: RoundedBandedSkellam) -> GdpCertificate:
    shift = eta_skellam(noise.variance) * math.hypot(*noise.band) * (1 + 1e-12)
    slope = kappa_normal(
        shift, tail=noise.tail, block=noise.block, coordinate_bound=noise.coordinate_bound
    )
    if noise.block == 1:
        eta, rare = noise.l2 * slope, noise.dimension * power_bound(noise.tail, shift)
    else:
        spread = math.sqrt(noise.block) * required_bound(noise.block, noise.coordinate_bound)
        eta = math.hypot(noise.l2, spread) * slope
        rare = -(-noise.dimension // noise.block) * 2 * power_bound(noise.tail, slope * spread)
    if noise.adjacency is Adjacency.REPLACE_ONE:  # the ends of both vectors are rare
        rare *= 2
    times = participations_of(noise)
    uncertified = noise.dimension * touched_rounds(noise) * _uncertified(noise)
    return GdpCertificate(
        eta * math.sqrt(times) * (1 + 1e-12), min(1.0, times * rare + uncertified)
    )


def _uncertified(noise: RoundedBandedSkellam) -> float:
    """Bound the chance that a coordinate of a round is beyond what Result A certifies."""
    law, bound = skellam_law(noise.variance), min(noise.l2, noise.coordinate_bound or noise.l2)
    shift = noise.band[0] * math.ceil(bound)
    return 2 * survival(law, last_threshold(law, DEFAULT_TAIL) - shift)


@lru_cache(maxsize=1024)
def kappa_normal(
    shift: float, *, tail: float, block: int = 1, coordinate_bound: float | None = None
) -> float:
    """Return `kappa` for normal noise: the GDP parameter per unit of a rounded vector's norm.

    An integer step is a shift of the standard normal law by ``shift``.
    """
    if block == 1:
        return max(shift, _first_slope(shift, tail)) * (1 + FLOAT_SAFETY)
    bound = required_bound(block, coordinate_bound)
    worst = max_over_cells(lambda cell: _normal_slope(shift, tail, block, cell), bound)
    if not 0 < worst < math.inf:
        raise CertificateError(f"no bound on rounding was found for steps of {shift:g}")
    return worst


def _first_slope(shift: float, tail: float) -> float:
    """(Phi(z + s) - Phi(z)) / phi(z) at Phi(z) = tail: the integral of exp(-z u - u^2/2) to s."""
    from scipy.special import ndtri

    z = float(ndtri(tail))
    nodes, weights = np.polynomial.legendre.leggauss(64)
    panels = math.ceil(abs(z) * shift / 8) + 1  # so that no panel spans more than e^8
    u = (np.arange(panels)[:, None] + (nodes + 1) / 2) * shift / panels
    return float((np.exp(-z * u - u * u / 2) @ weights).sum()) * shift / panels / 2


def _normal_slope(shift: float, tail: float, block: int, cell: tuple[float, float]) -> float:
    """Bound kappa_B over fractions in ``cell``, as `skellam.accounting.gdp.steepest` does.

    The score of one coordinate is s = exp(shift w - shift^2/2) - 1, w a normal variable. Masses and
    means of the grid's cells are differences of normal distribution functions.
    """
    from scipy.special import ndtri_exp

    low, high = cell
    spacing = _STEP * math.sqrt(math.expm1(shift * shift))
    reach = shift - float(ndtri_exp(math.log(1e-12 * tail / block**2)))
    top = math.expm1(min(shift * (reach - shift / 2), 700.0))
    if not 0 < (size := top / (1 + low * top) / spacing) < _MAX_GRID:
        raise CertificateError(
            f"blocks of {block} have no certificate for steps of {shift:g} deviations; take "
            "block=1, or a larger scale"
        )
    above = spacing * np.arange(math.ceil(size) + 1.0)
    below = spacing * np.arange(math.ceil(1 / (1 - high) / spacing) + 1.0)
    upper = _split_cells(shift, low, above, reach)
    lower = _split_cells(shift, high, -below, reach)
    grid = np.zeros(upper.size + lower.size - 1)
    zero = lower.size - 1
    grid[zero:] += upper
    grid[: zero + 1] += lower[::-1]
    grid[zero] += max(0.0, 1 - grid.sum())
    lost = 4 * block * 1e-12 * tail / block**2
    log_grid = np.log(grid, out=np.full(grid.size, -np.inf), where=grid > 0)
    # a cell's moment is a difference of masses: their float64 noise over a score of about shift
    noise = 1e-13 / shift
    return slope_of_scores(log_grid, zero, block, tail, lost / spacing) * spacing * (1 + noise)


def _split_cells(shift: float, u: float, values: Table, reach: float) -> Table:
    """Return the masses at ``values`` of the score s/(1 + u s) under (1 + u s) dQ.

    All that lies between two neighbours is split between them, keeping mass and mean.
    """
    from scipy.special import ndtr

    with np.errstate(divide="ignore"):
        ratio = np.where(u * values < 1, 1 + values / np.abs(1 - u * values), np.inf)
        log_ratio = np.log(np.maximum(0.0, ratio))
    ends = np.clip(log_ratio / shift + shift / 2, shift - reach, reach)
    sign = 1.0 if values[-1] > 0 else -1.0

    def between(mean: float) -> Table:
        return np.abs(np.diff(ndtr(-sign * (ends - mean))))

    plain, moved = between(0.0), between(shift)
    masses, moments = plain + u * (moved - plain), np.abs(moved - plain)
    steps = np.abs(np.diff(values))
    far = np.clip((moments - np.abs(values[:-1]) * masses) / steps, 0.0, masses)
    grid = np.zeros(values.size)
    grid[:-1] += masses - far
    grid[1:] += far
    return grid
