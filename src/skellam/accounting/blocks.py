"""Result B': rounding priced by blocks of coordinates, whose far tails average out.

*Equal values.* Sort the |x_i|, cut them into blocks of B, raise every value to its block's largest
y_j: P_y against Q only gets easier to tell apart as y grows, and a reflection changes nothing. As
y_j is at most the smallest value of the block before, sum_j B y_j^2 <= r^2 + B largest^2. It is
left to show that one block of equal values y is ``kappa_B sqrt(B) y``-GDP.

*A path.* Let P_u be the B-fold product at value u, and phi any test, of power pi(u). With
F = Phi^-1(pi), ``F' = pi' / phi(F)`` and pi' = E_u[phi V], V the score: a sum of B independent
copies of s / (1 + u s), s = p(x - 1) / p(x) - 1, for u in [0, 1] (then it repeats). So F' <= K with
K the largest M(b) / phi(Phi^-1(b)), M(b) = max of E[phi V] over tests of size b, for b in
[tail, 1 - tail]; and F(y) - F(0) <= K y as long as pi stays in that range.

*The tails.* Where Q's best test has size tail, and where P misses with probability tail, make P a
multiple of Q of equal mass: chords of the trade-off curve, so the changed pair is GDP, and Q stays
in place. Both ends together are a rare event; `rounding` charges its probability for every block.

*All u at once.* M grows with the convex order: M(b) = min_c (c b + E(V - c)+). The score has
E_u(X - c)+ = E_0(s - c (1 + u s))+, which falls in u for c >= 0, and E_u(c - X)+ rises for c <= 0.
So over u in [low, high] the score lies below W: the positive values of u = low, the negative ones
of u = high, and 0 with the rest. Cells cover [0, 1/2]; u and 1 - u are mirror images.

*Numbers.* Each atom of W is split between its two grid neighbours, keeping mass and mean: larger in
convex order, also after summing, and smaller again for a finer grid. Between two vertices M is
a chord, so vertices suffice, and the point at the tail itself. Cutting s off at +-reach loses at
most B (2 p(reach) + 2 (B - 1) p(0) S(reach)) of any E[phi V]; that is added.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from skellam.accounting.convolution import log_sum, quantile_bound
from skellam.accounting.gaps import DEFAULT_TAIL, FLOAT_SAFETY, last_threshold
from skellam.accounting.laws import Law, Table, skellam_law
from skellam.errors import CertificateError

_FIRST_CELL = 1 / 128
_STEP = 0.04


@lru_cache(maxsize=1024)
def kappa_of_block(variance: float, tail: float, block: int, largest: float) -> float:
    """Return kappa_B for blocks of coordinates of at most ``largest``, ``tail`` being set aside."""
    law, end = skellam_law(variance), min(largest, 0.5)
    worst = steepest(law, tail, block, (0.0, min(end, _FIRST_CELL)))
    cells = [(_FIRST_CELL, end)] if end > _FIRST_CELL else []
    while cells:
        low, high = cells.pop()
        found = steepest(law, tail, block, (low, high))
        if found > 1.0001 * worst and high > 1.2 * low:
            cells += [(low, math.sqrt(low * high)), (math.sqrt(low * high), high)]
        else:
            worst = max(worst, found)
    if not 0 < worst < math.inf:
        raise CertificateError(f"no bound on rounding was found at variance {variance:g}")
    return worst


def steepest(
    law: Law, tail: float, block: int, cell: tuple[float, float], *, step: float = _STEP
) -> float:
    """Bound kappa_B over fractions in ``cell``; the grid has ``step`` deviations of one score."""
    low, high = cell
    reach = 1 + last_threshold(law, max(1e-12 * tail / block**2, DEFAULT_TAIL))
    p, steps = np.exp(law.log_pmf[: reach + 1]), np.diff(law.log_pmf[: reach + 1])
    # s(x) at x = 1, 2, ... and -s(-x) at x = 0, 1, ...
    up, down = np.expm1(-steps), -np.expm1(steps)
    values = np.concatenate((up / (1 + low * up), -down / (1 - high * down)))
    masses = np.concatenate((p[1:] * (1 + low * up), p[:-1] * (1 - high * down)))
    spacing = step * math.sqrt((masses * values**2).sum())
    grid, zero = _split(values / spacing, masses)
    lost = 2 * block * (p[-2] + (block - 1) * p[0] * math.exp(law.log_survival[reach - 1]))
    upper = _steepest_above(grid, zero, block, tail, lost / spacing)
    lower = _steepest_above(grid[::-1], grid.size - 1 - zero, block, tail, lost / spacing)
    return max(upper, lower) * spacing / math.sqrt(block) * (1 + FLOAT_SAFETY)


def _split(values: Table, masses: Table) -> tuple[Table, int]:
    """Return the logs of the masses on the grid of the integers, and where its zero is."""
    floor = np.floor(values)
    share, at = values - floor, (floor - floor.min()).astype(np.int64)
    grid = np.bincount(at, masses * (1 - share), int(at.max()) + 2)
    grid += np.bincount(at + 1, masses * share, grid.size)
    zero = -int(floor.min())
    grid[zero] += max(0.0, 1 - masses.sum())
    return np.log(grid, out=np.full(grid.size, -np.inf), where=grid > 0), zero


def _steepest_above(log_grid: Table, zero: int, block: int, tail: float, lost: float) -> float:
    """Bound E[V; V >= c] / phi(Phi^-1(P(V >= c))) over P(V >= c) from a half down to tail."""
    from scipy.special import ndtri_exp

    top, theta = quantile_bound(log_grid, block, math.log(1e-12 * tail))
    origin = block * zero
    variance = (np.exp(log_grid) * (np.arange(log_grid.size) - zero) ** 2).sum()
    first = origin - math.ceil(math.sqrt(block * variance))  # P(V >= -deviation) >= 1/2 (Cantelli)
    masses = np.exp(log_sum(log_grid, block, first, top))
    beyond = np.cumsum(masses[::-1])[::-1]
    values = np.arange(first - origin, top + 1 - origin, dtype=np.float64)
    moments = np.cumsum((masses * values)[::-1])[::-1]
    lost += 1e-12 * tail * (top - origin + 1 / -math.expm1(-theta))
    beyond, moments = np.append(beyond, 0.0), np.append(moments, 0.0) + lost
    # vertices above 3/4 are left to the other side, whose tails they are
    start, last = np.searchsorted(-beyond, [-0.75, -tail], side="right").tolist()
    sizes = np.append(beyond[start:last], tail)
    moments = np.append(moments[start:last], np.interp(tail, beyond[::-1], moments[::-1]))
    log_density = -0.5 * ndtri_exp(np.log(sizes)) ** 2 - 0.5 * math.log(2 * math.pi)
    return float((moments * np.exp(-log_density)).max())
