"""One direction of a privacy loss distribution, on the multiples of an interval.

Every grid is made by connecting the dots (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022): an
outcome's loss lies between two grid losses, and its mass is split so that both laws keep theirs.
The result has the true profile at each grid loss and lies above it in between.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from skellam.errors import DomainError

Masses = NDArray[np.float64]

_TRUNCATED = 1e-15
"""Mass that a composition may cut off, and charges as infinite loss."""

_LOSS_ERROR = 4e-12
"""More than two log-probabilities of `skellam.accounting.laws` can be wrong by."""


@dataclass(frozen=True, slots=True, eq=False)
class LossGrid:
    """Probability ``masses`` of the losses (lowest + i) * interval, and of infinite loss."""

    interval: float
    lowest: int
    masses: Masses
    infinite: float

    def __add__(self, other: LossGrid) -> LossGrid:
        from scipy.signal import fftconvolve

        if self.interval != other.interval:
            raise DomainError(
                "only loss distributions of one interval can be added, "
                f"got {self.interval:g} and {other.interval:g}"
            )
        masses = np.maximum(fftconvolve(self.masses, other.masses), 0.0)
        infinite = self.infinite + other.infinite - self.infinite * other.infinite
        return LossGrid(self.interval, self.lowest + other.lowest, masses, infinite)._trimmed()

    def __mul__(self, rounds: int) -> LossGrid:
        from scipy import fft

        if not self.masses.any():
            return replace(self, infinite=1.0)
        low, high = self._reach(rounds)
        length = fft.next_fast_len(max(high - low + 1, len(self.masses)), real=True)
        powered = fft.irfft(fft.rfft(self.masses, length) ** rounds, length)
        masses = np.maximum(np.roll(powered, -(low % length))[: high - low + 1], 0.0)
        finite = math.log1p(-self.infinite) if self.infinite < 1 else -math.inf
        infinite = min(1.0, _TRUNCATED - math.expm1(rounds * finite))
        return LossGrid(self.interval, self.lowest * rounds + low, masses, infinite)

    def delta(self, epsilon: float) -> float:
        """Return the profile at ``epsilon``: the mean of 1 - e^(epsilon - loss) where positive."""
        losses = self.losses()
        above = losses > epsilon
        kept = -np.expm1(epsilon - losses[above]) * self.masses[above]
        return self.infinite + float(np.sum(kept))

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon >= 0 whose profile is at most ``delta``, or infinity."""
        if not self.infinite <= delta:
            return math.inf
        first = max(0, -self.lowest)
        losses, masses = self.losses()[first:], self.masses[first:]
        if not len(losses):
            return 0.0
        # Just below losses[j] the profile is upper[j] - e^epsilon lower[j]: sums over i >= j.
        upper = self.infinite + np.cumsum(masses[::-1])[::-1]
        lower = np.cumsum((masses * np.exp(-losses))[::-1])[::-1]
        at_loss = upper - np.exp(np.minimum(losses, 700.0)) * lower
        exceeding = np.flatnonzero(at_loss > delta)
        j = int(exceeding[-1]) + 1 if len(exceeding) else 0
        if j >= len(losses):
            return float(losses[-1])
        excess = float(upper[j]) - delta
        if excess <= 0:
            return float(losses[j - 1]) if j else 0.0
        return max(0.0, math.log(excess / lower[j])) if lower[j] > 0 else float(losses[j])

    def losses(self) -> Masses:
        """Return the grid losses."""
        top = self.lowest + len(self.masses)
        return self.interval * np.arange(self.lowest, top, dtype=np.float64)

    def _reach(self, rounds: int) -> tuple[int, int]:
        """Bound by Chernoff which indices the composition reaches, up to the truncated mass."""
        size = len(self.masses)
        rates = np.arange(1, 21)[:, None] / size
        i = np.arange(size)
        logs = {sign: np.log(np.exp(sign * rates * i) @ self.masses) for sign in (1, -1)}
        spare = math.log(2 / _TRUNCATED)
        high = np.min((rounds * logs[1] + spare) / rates[:, 0])
        low = np.max(-(rounds * logs[-1] + spare) / rates[:, 0])
        return max(0, math.floor(low)), min((size - 1) * rounds, math.ceil(high))

    def _trimmed(self) -> LossGrid:
        """Cut faint tails off: the left one moves up to the lowest loss, the right to infinity."""
        share = _TRUNCATED / 2
        left = int(np.searchsorted(np.cumsum(self.masses), share))
        right = len(self.masses) - int(np.searchsorted(np.cumsum(self.masses[::-1]), share))
        if left >= right:
            return self
        masses = self.masses[left:right].copy()
        masses[0] += self.masses[:left].sum()
        infinite = self.infinite + float(self.masses[right:].sum())
        return LossGrid(self.interval, self.lowest + left, masses, infinite)


def connected(p: Masses, q: Masses, *, interval: float, outside: float) -> LossGrid:
    """Return the losses of p against q, two laws on one set; ``outside`` bounds p's mass elsewhere.

    An atom of loss l + f, grid losses l and l + h: the upper part has p-mass
    p (1 - e^-f)/(1 - e^-h). Losses are taken a little larger than they are, by more than tables of
    probabilities err.
    """
    both = (p > 0) & (q > 0)
    infinite = min(1.0, outside + float(p[~both].sum()))
    if not both.any():
        return LossGrid(interval, 0, np.zeros(1), infinite)
    p, q = p[both], q[both]
    position = (np.log(p) - np.log(q) + _LOSS_ERROR) / interval
    cell = np.floor(position)
    upper = p * np.expm1(-(position - cell) * interval) / math.expm1(-interval)
    return _split(interval, cell.astype(np.int64), p, np.clip(upper, 0.0, p), infinite)


def connected_cells(p: Masses, q: Masses, *, interval: float, lowest: int) -> LossGrid:
    """Return the losses of p against q, given the masses of both between consecutive grid losses.

    Cell i has losses from (lowest + i) to (lowest + i + 1) intervals, and splits like one atom.
    """
    cell = lowest + np.arange(len(p))
    ratio = np.exp(np.minimum(interval * cell, 700.0))
    upper = (p - ratio * q) / -math.expm1(-interval)
    return _split(interval, cell, p, np.clip(upper, 0.0, p), 0.0)


def _split(
    interval: float, cell: NDArray[np.int64], p: Masses, upper: Masses, infinite: float
) -> LossGrid:
    lowest = int(cell.min())
    index, size = cell - lowest, int(cell.max()) - lowest + 2
    masses = np.zeros(size)
    np.add.at(masses, index, p - upper)
    np.add.at(masses, index + 1, upper)
    return LossGrid(interval, lowest, masses, infinite)
