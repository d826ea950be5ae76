"""Privacy loss distributions: exact composition by FFT, rounded to the private side."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from skellam import _checks
from skellam.accounting.lossgrid import LossGrid, Masses, connected, connected_cells
from skellam.accounting.slack import NO_SLACK, Slack

_POINTS = 1e4
_COMPOSED_POINTS = 5e5
_FINEST = 1e-7
_FAR = 10.0
"""Standard deviations at which a Gaussian is cut off: beyond lie 8e-24."""
_ROUND_OFF = 2e-15
"""Absolute error of delta per composition by FFT. With Parseval, T-fold composition of N points
loses at most T u log2(N) sqrt(K), u = 1.1e-16 and K < 10 the number of frequencies that matter."""


@dataclass(frozen=True, slots=True, eq=False)
class Pld:
    """The privacy loss distribution of ``compositions`` releases, in both directions."""

    remove: LossGrid
    add: LossGrid
    compositions: int = 1
    slack: Slack = NO_SLACK

    def __post_init__(self) -> None:
        _checks.integer("compositions", self.compositions, 1)

    def __add__(self, other: Pld) -> Pld:
        return Pld(
            self.remove + other.remove,
            self.add + other.add,
            self.compositions + other.compositions,
            self.slack + other.slack,
        )

    def __mul__(self, rounds: int) -> Pld:
        n = _checks.integer("rounds", rounds, 1)
        if n == 1:
            return self
        remove = self.remove * n
        add = remove if self.add is self.remove else self.add * n
        return Pld(remove, add, self.compositions * n, self.slack * n)

    def epsilon(self, delta: float) -> float:
        """Return an epsilon at ``delta``; infinite where slack and round-off take it all."""
        return self.slack.epsilon(self._epsilon, delta)

    def delta(self, epsilon: float) -> float:
        """Return the total delta at ``epsilon``."""
        _checks.number("epsilon", epsilon)
        return self.slack.delta(self._delta, epsilon)

    def _delta(self, epsilon: float) -> float:
        return max(side.delta(epsilon) for side in (self.remove, self.add)) + self._round_off

    def _epsilon(self, delta: float) -> float:
        left = delta - self._round_off
        return max(side.epsilon(left) for side in (self.remove, self.add))

    @property
    def _round_off(self) -> float:
        return _ROUND_OFF * self.compositions


def gaussian_pld(z: float, *, rate: float = 1.0, interval: float, slack: Slack = NO_SLACK) -> Pld:
    """Return the distribution of a (Poisson sampled) Gaussian of noise multiplier ``z``.

    In units of sigma: Q = N(0, 1), P = (1 - rate) Q + rate N(1/z, 1), and the loss at t is
    log(1 - rate + rate exp(t/z - 1/(2 z^2))), which rises.
    """
    _checks.positive("z", z)
    q, h = _checks.rate("rate", rate), _checks.positive("interval", interval)
    lowest, highest = math.floor(_loss(-_FAR, z, q) / h), math.ceil(_loss(_FAR + 1 / z, z, q) / h)
    edges = _threshold(h * np.arange(lowest, highest + 1, dtype=np.float64), z, q)
    plain, below, above = _cells(edges)
    moved, moved_below, moved_above = _cells(edges - 1 / z)
    mixed = q * moved + (1 - q) * plain
    remove = connected_cells(mixed, plain, interval=h, lowest=lowest)
    add = connected_cells(plain[::-1], mixed[::-1], interval=h, lowest=-highest)
    return Pld(
        _with_ends(remove, q * moved_below + (1 - q) * below, q * moved_above + (1 - q) * above),
        _with_ends(add, above, below),
        slack=slack,
    )


def gaussian_interval(z: float, rate: float, rounds: int) -> float:
    """Return a grid interval fine enough for ``rounds`` releases of `gaussian_pld`."""
    reach = _loss(_FAR + 1 / z, z, rate)
    spread = rate * math.sqrt(math.expm1(min(1 / z**2, 700.0)))
    return _interval(reach, min(spread, reach), rounds)


def pair_pld(p: Masses, q: Masses, *, interval: float, outside: float) -> Pld:
    """Return the distribution of the pair (p, q) of laws on one finite set, in both directions.

    ``outside`` bounds the mass that either law has elsewhere: it counts as infinite loss.
    """
    remove, add = (connected(a, b, interval=interval, outside=outside) for a, b in ((p, q), (q, p)))
    return Pld(remove, add)


def pair_interval(p: Masses, q: Masses, rounds: int) -> float:
    """Return a grid interval fine enough for ``rounds`` releases of `pair_pld`."""
    both = (p > 0) & (q > 0)
    losses = np.log(p[both]) - np.log(q[both])
    spread = math.sqrt(float(np.sum(p[both] * losses**2)))
    return _interval(float(np.max(np.abs(losses), initial=1e-9)), spread, rounds)


def symmetrised(pld: Pld) -> Pld:
    """Return the pair that the operator C_p of Dong, Roth, Su 2019 (theorem 4.2) makes of a sample.

    ``pld`` is that of (1-p) Q + p P against Q, whose profile is the larger one at epsilon >= 0. The
    convex hull of both directions has this profile there and its mirror image below: a loss l > 0
    keeps its mass m, -l gets m e^-l, and 0 the rest.
    """
    grid = pld.remove
    top = max(grid.lowest + len(grid.masses) - 1, 1)
    positive = np.zeros(top)
    kept = grid.masses[max(0, 1 - grid.lowest) :]
    positive[top - len(kept) :] = kept
    mirrored = positive * np.exp(-grid.interval * np.arange(1, top + 1))
    centre = max(0.0, 1 - grid.infinite - float(positive.sum() + mirrored.sum()))
    masses = np.concatenate((mirrored[::-1], [centre], positive))
    both = LossGrid(grid.interval, -top, masses, grid.infinite)
    return Pld(both, both, slack=pld.slack)


def _loss(t: float, z: float, rate: float) -> float:
    exponent = t / z - 0.5 / z**2
    if rate == 1:
        return exponent
    return math.log1p(rate * math.expm1(exponent)) if exponent < 700 else exponent


def _threshold(losses: Masses, z: float, rate: float) -> Masses:
    """Invert `_loss`; what lies below every loss is at minus infinity."""
    if rate == 1:
        return z * losses + 0.5 / z
    with np.errstate(divide="ignore"):
        ratio = np.maximum(np.expm1(np.minimum(losses, 500.0)) / rate, -1.0)
        logs = np.where(losses < 500, np.log1p(ratio), losses - math.log(rate))
    return z * logs + 0.5 / z


def _cells(edges: Masses) -> tuple[Masses, float, float]:
    """Return what a standard normal has between the edges, below and above, each to full digits."""
    from scipy.special import ndtr

    left, right = ndtr(edges), ndtr(-edges)
    between = np.where(edges[:-1] > 0, right[:-1] - right[1:], left[1:] - left[:-1])
    return between, float(left[0]), float(right[-1])


def _with_ends(grid: LossGrid, below: float, above: float) -> LossGrid:
    masses = grid.masses.copy()
    masses[0] += below
    return replace(grid, masses=masses, infinite=above)


def _interval(reach: float, spread: float, rounds: int) -> float:
    composed = min(20 * math.sqrt(rounds) * spread + rounds * spread**2, 2 * rounds * reach)
    return max(reach / _POINTS, composed / _COMPOSED_POINTS, _FINEST)
