"""Loss grids: composed privacy losses on the multiples of an interval, from above.

Connecting the dots (Doroshenko et al. 2022) puts a loss between two grid losses on both, so that
the two laws of a pair keep their masses; the profile never falls. All intervals are powers of two,
so every grid lies on any finer one, and on a coarser one after connecting the dots once more. What
is cut off, and what an FFT may get wrong, is counted as infinite loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from skellam.accounting.losslaw import MASS_ERROR, LossLaw, Masses
from skellam.accounting.pld import Composition

MAX_POINTS = 1 << 17
_FINENESS = 32
"""Intervals in the standard deviation of one release; they add 1/6000 to its variance."""
_TRIMMED = 5e-16
"""Mass that may be cut off at each end."""
_FEW_ROUNDS = 16
"""So many equal releases are added one to another; of more, one power is taken."""
_UNIT = 2.0**-53
_SUM_ERROR = 4 * MAX_POINTS * _UNIT
"""Relative error of recursive sums of as many positive terms."""


@dataclass(frozen=True, slots=True, eq=False)
class LossGrid:
    """Probability ``masses`` of the losses (lowest + i) * interval, and of infinite loss.

    ``lost`` is the part of ``infinite`` that arithmetic takes; ``variance`` is the exact one of the
    finite losses, before any was put on a grid.
    """

    interval: float
    lowest: int
    masses: Masses
    infinite: float
    lost: float
    variance: float

    def __add__(self, other: LossGrid) -> LossGrid:
        interval = min(self.interval, other.interval)
        while (self._span + other._span) / interval > MAX_POINTS:
            interval *= 2
        return self.on(interval)._convolved(other.on(interval))

    def on(self, interval: float) -> LossGrid:
        """Return the same losses on the multiples of ``interval``."""
        if self.interval < interval:
            return self._coarser().on(interval)
        return self if self.interval == interval else self._finer(interval)

    @property
    def inflation(self) -> float:
        """By which part the grid's variance exceeds the true one: about what epsilon grows by."""
        total = float(self.masses.sum())
        if not (self.variance > 0 and total > 0):
            return 0.0
        index = np.arange(len(self.masses))
        mean = _sum(self.masses * index) / total
        variance = _sum(self.masses * (index - mean) ** 2) / total * self.interval**2
        return variance / self.variance - 1

    def profile(self) -> tuple[Masses, Masses]:
        """Return the losses, and the finite part of delta at each, by sums of positive terms."""
        from scipy.signal import lfilter

        # delta(l_i) - delta(l_(i+1)) = (e^h - 1) E[e^(l_i - loss); loss > l_i].
        h = self.interval
        fall = math.exp(-h)
        above = lfilter([0.0, fall], [1.0, -fall], self.masses[::-1])
        profile = math.expm1(h) * np.cumsum(above)[::-1] * (1 + _SUM_ERROR)
        losses = h * np.arange(self.lowest, self.lowest + len(self.masses), dtype=np.float64)
        return losses, profile

    @property
    def _span(self) -> float:
        return len(self.masses) * self.interval

    def _finer(self, interval: float) -> LossGrid:
        factor = round(self.interval / interval)
        masses = np.zeros(factor * (len(self.masses) - 1) + 1)
        masses[::factor] = self.masses
        return replace(self, interval=interval, lowest=factor * self.lowest, masses=masses)

    def _coarser(self) -> LossGrid:
        """Connect the dots of an interval of twice the length.

        An odd multiple is the middle between its neighbours: the upper one gets the part
        (1 - e^-h)/(1 - e^-2h) = 1/(1 + e^-h).
        """
        start, h = self.lowest % 2, self.interval
        padded = np.zeros(start + len(self.masses) + (start + len(self.masses)) % 2)
        padded[start : start + len(self.masses)] = self.masses
        even, odd = padded[0::2], padded[1::2]
        upper = odd * min(1.0, (1 + 4 * _UNIT) / (1 + math.exp(-h)))
        masses = np.append(even + (odd - upper), 0.0)
        masses[1:] += upper
        return replace(self, interval=2 * h, lowest=(self.lowest - start) // 2, masses=masses)

    def _convolved(self, other: LossGrid) -> LossGrid:
        from scipy import fft

        length = len(self.masses) + len(other.masses) - 1
        size = 1 << (length - 1).bit_length()
        product = fft.rfft(self.masses, size) * fft.rfft(other.masses, size)
        masses = np.maximum(fft.irfft(product, size)[:length], 0.0)
        # A butterfly errs by at most 6 units of its inputs' norm, so a transform by w in proportion
        # to the Euclidean norm, and each of its values by w in proportion to the sum. With sums of
        # at most 1 either factor's error costs the product w times the smaller of both norms: the
        # one in norm, the other value by value; so does the way back. The sum of all errors is at
        # most their norm times the root of their number.
        wrong = 6 * _UNIT * (math.log2(size) + 2)
        norm = min(float(np.linalg.norm(grid.masses)) for grid in (self, other))
        error = 4 * wrong * math.sqrt(size) * norm
        return _trimmed(
            LossGrid(
                self.interval,
                self.lowest + other.lowest,
                masses,
                self.infinite + other.infinite + error,
                self.lost + other.lost + error,
                self.variance + other.variance,
            ),
            max(_TRIMMED, error),
        )


def loss_grid(law: LossLaw, rounds: int) -> LossGrid:
    """Return the losses of ``rounds`` releases by a mechanism of this ``law``."""
    if 1 < rounds <= _FEW_ROUNDS:
        half = loss_grid(law, rounds // 2)
        return half + half + loss_grid(law, 1) if rounds % 2 else half + half
    total, variance = float(law.masses.sum()), 0.0
    if total > 0:
        mean = _sum(law.masses * law.losses) / total
        variance = _sum(law.masses * (law.losses - mean) ** 2) / total
    interval, releases = _interval(law, variance, rounds), Composition(((law, rounds),))
    lowest, masses, infinite = releases.grid(interval)
    masses, lost = masses * (1 + 2 * MASS_ERROR), infinite - releases.infinite
    found = LossGrid(interval, lowest, masses, infinite, lost, rounds * variance)
    return _trimmed(found, max(_TRIMMED, lost))


def _sum(values: Masses) -> float:
    """Return the sum on this thread; of long vectors BLAS waits for others, on a busy machine."""
    return float(values.sum())


def _interval(law: LossLaw, variance: float, rounds: int) -> float:
    """Return a power of two that is fine enough for one release, if the grid is not too long."""
    inside = law.losses[law.masses > _TRIMMED / len(law.masses)]
    reach = float(inside[-1] - inside[0]) if len(inside) else 0.0
    span = min(rounds * reach, reach + 20 * math.sqrt(rounds * variance))
    widest = float(law.losses[-1] - law.losses[0]) / (8 * MAX_POINTS)
    min_interval = max(2 * span / MAX_POINTS, math.sqrt(variance) / _FINENESS, widest, 2.0**-40)
    return 2.0 ** math.floor(math.log2(min_interval))


def _trimmed(grid: LossGrid, share: float) -> LossGrid:
    """Cut off ``share`` at either end: the left moves up to the lowest loss, the right to infinity.

    That removes what an FFT leaves where nothing is; grids would only grow otherwise.
    """
    left = int(np.searchsorted(np.cumsum(grid.masses), share))
    right = len(grid.masses) - int(np.searchsorted(np.cumsum(grid.masses[::-1]), share))
    if left >= right:
        return grid
    masses = grid.masses[left:right].copy()
    masses[0] += grid.masses[:left].sum()
    cut = float(grid.masses[right:].sum()) * (1 + _SUM_ERROR)
    return replace(
        grid,
        lowest=grid.lowest + left,
        masses=masses,
        infinite=grid.infinite + cut,
        lost=grid.lost + cut,
    )
