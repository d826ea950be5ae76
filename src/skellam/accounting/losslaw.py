"""Privacy loss laws of one release, by connecting the dots.

Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022: an outcome whose loss lies between two knots is
split between them so that both laws keep their mass. The result has the true profile at each knot
and lies above it in between. Knots need not be equidistant; rounding errors are covered by moving a
little more mass to the upper knot (a larger loss is never more private), and by a factor
1 + ``MASS_ERROR`` a release on the whole profile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.accounting.laws import (
    Law,
    binomial_law,
    discrete_gaussian_law,
    discrete_gaussian_sum_law,
    skellam_law,
)
from skellam.accounting.mechanisms import (
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    DistributedDiscreteGaussian,
    NoiseMechanism,
    Skellam,
    l1_bound,
)

Masses = NDArray[np.float64]

MASS_ERROR = 1e-13
"""Relative error of a cell's probability: ndtr errs by 2e-14 up to 13 deviations, and a cell has at
least a hundredth of the tail that starts with it."""
PROFILE_ERROR = 1e-10
_LOSS_ERROR = 4e-12
"""More than two log-probabilities of `skellam.accounting.laws` can be wrong by."""
_FAR = 12.0
"""Deviations at which a Gaussian is cut off: 1.8e-33 lie beyond, and count as infinite loss."""
_STEP = 1 / 64
_MAX_ATOMS = 1 << 14
_OUTSIDE = 1e-20
"""Mass beyond each end of a table; it is counted as infinite loss."""
_FAINTEST = -690.0
"""Log-masses below are no normal float64: they count as none, so the loss is infinite there."""
_MAX_TABLE = 10**7


@dataclass(frozen=True, slots=True, eq=False)
class LossLaw:
    """Probability ``masses`` of the rising ``losses``, and of ``infinite`` loss."""

    losses: Masses
    masses: Masses
    infinite: float

    def delta(self, epsilon: float) -> float:
        """Return the profile at ``epsilon``: the mean of 1 - e^(epsilon - loss) where positive."""
        above = self.losses > epsilon
        kept = -np.expm1(epsilon - self.losses[above]) * self.masses[above]
        return min(1.0, self.infinite + float(np.sum(kept)) * (1 + MASS_ERROR))

    def profile(self) -> Masses:
        """Return the profile at each loss but for infinite ones, by sums of positive terms."""
        # delta(l_i) - delta(l_(i+1)) = (e^(l_(i+1) - l_i) - 1) * E[e^(l_i - loss); loss > l_i].
        gaps = np.diff(self.losses)
        below = np.zeros(len(self.losses))
        total = 0.0
        for i in range(len(gaps) - 1, -1, -1):
            above = total + self.masses[i + 1]
            below[i] = above * -math.expm1(-gaps[i])
            total = above * math.exp(-gaps[i])
        return np.cumsum(below[::-1])[::-1] * (1 + 1e-11)

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon >= 0 whose profile is at most ``delta``, or infinity."""
        left = delta - self.infinite
        return epsilon_at(self.losses, self.profile(), left) if left > 0 else math.inf


def tilted_moments(law: LossLaw, theta: float) -> tuple[float, float]:
    """Return mean and variance of one finite loss under the tilt."""
    weights = theta * law.losses + np.log(np.maximum(law.masses, 1e-320))
    weights = np.exp(weights - weights.max())
    weights /= weights.sum()
    # Sums, not products of matrices: threads that wait for the next one would burn the processor.
    mean = float((weights * law.losses).sum())
    return mean, float((weights * (law.losses - mean) ** 2).sum())


def log_moment(losses: NDArray[np.floating], masses: Masses, theta: Masses) -> Masses:
    """Return the log of the mean of e^(theta loss), for each ``theta``."""
    with np.errstate(divide="ignore"):
        weights = np.log(masses) + theta[:, None] * losses
    top = weights.max(axis=1)
    return np.asarray(top + np.log(np.exp(weights - top[:, None]).sum(axis=1)))


def epsilon_at(losses: Masses, profile: Masses, delta: float) -> float:
    """Return the least epsilon >= 0 at which a profile, linear in e^epsilon, is at most ``delta``.

    ``profile`` has its values at ``losses``. Below the first loss it is taken for its value there
    plus what is left to 1 at epsilon = -infinity, a chord of a convex function.
    """
    exceeding = np.flatnonzero(profile > delta)
    if not len(exceeding):
        first, value = float(losses[0]), float(profile[0])
        if first <= 0:
            return 0.0
        share = (1 - delta) / (1 - value) if value < 1 else 1.0
        return max(0.0, first + math.log(min(1.0, share)))
    i = int(exceeding[-1])
    if i + 1 == len(losses):
        return math.inf
    share = (profile[i] - delta) / (profile[i] - profile[i + 1])
    gap = float(losses[i + 1] - losses[i])
    rise = math.log1p(share * math.expm1(gap)) if gap < 700 else gap
    return max(0.0, float(losses[i]) + min(gap, rise * (1 + 1e-12)))


def gaussian_laws(z: float, rate: float) -> tuple[LossLaw, LossLaw]:
    """Return the losses of a (Poisson sampled) Gaussian of noise multiplier ``z``: remove and add.

    In units of sigma: Q = N(0, 1), P = (1 - rate) Q + rate N(1/z, 1), and the loss at t is
    log(1 - rate + rate exp(t/z - 1/(2 z^2))), which rises. Knots are equidistant in t.
    """
    from scipy.special import ndtr

    _checks.positive("z", z)
    q, shift = _checks.rate("rate", rate), 1 / z
    t = _knots(shift)
    losses, error = _gaussian_losses(t, shift, q)
    plain, moved = _cells(t), _cells(t - shift)
    mixed = q * moved + (1 - q) * plain
    low, high = float(ndtr(t[0])), float(ndtr(-t[-1]))
    mixed_low = q * float(ndtr(t[0] - shift)) + (1 - q) * low
    mixed_high = q * float(ndtr(shift - t[-1])) + (1 - q) * high
    remove = _connected_cells(mixed, plain, losses + error, 2 * error)
    add = _connected_cells(plain[::-1], mixed[::-1], (error - losses)[::-1], 2 * error[::-1])
    return _with_ends(remove, mixed_low, mixed_high), _with_ends(add, high, low)


def pair_law(p: Masses, q: Masses, *, outside: float) -> LossLaw:
    """Return the losses of p against q, two laws on one set; ``outside`` bounds p's mass elsewhere.

    Losses are taken a little larger than they are, by more than tables of probabilities err.
    """
    both = (p > 0) & (q > 0)
    infinite = min(1.0, outside + float(p[~both].sum()) * (1 + MASS_ERROR))
    if not both.any():
        return LossLaw(np.zeros(1), np.zeros(1), infinite)
    losses = np.log(p[both]) - np.log(q[both]) + _LOSS_ERROR
    order = np.argsort(losses, kind="stable")
    return coarsened(LossLaw(losses[order], p[both][order], infinite))


def profile_law(losses: Masses, own: Masses, other: Masses) -> LossLaw:
    """Connect the dots of a profile at the ``losses``, which rise from 0, and at their negatives.

    ``own`` is delta(e) there; ``other`` is that of the other direction, whose mirror image,
    1 - e^e + e^e other(-e), is the profile for e < 0. Both must err by less than ``PROFILE_ERROR``
    relative to themselves.
    """
    middle = len(losses) - 1
    losses = np.concatenate((-losses[:0:-1], losses))
    x = np.exp(losses)
    right, left = own * (1 + PROFILE_ERROR), x[:middle] * other[:0:-1] * (1 + PROFILE_ERROR)
    # Minus the slopes of delta in x = e^e: Q's mass at larger losses. They must fall; taking the
    # largest of those to the right raises the profile.
    falls = -np.diff(np.append(left, right[0])) / np.diff(x[: middle + 1])
    tails = np.concatenate(([-left[0] / x[0]], falls))
    tails = np.concatenate((1 + tails, -np.diff(right) / np.diff(x[middle:]), [0.0]))
    tails = np.maximum.accumulate(tails[::-1])[::-1]
    return LossLaw(losses, -np.diff(tails) * x, float(right[-1]))


def coarsened(law: LossLaw, max_atoms: int = _MAX_ATOMS) -> LossLaw:
    """Return a law of few atoms that lies above ``law`` and close to it."""
    size = len(law.losses)
    if size <= max_atoms:
        return law
    starts = np.arange(0, size, -(-size // max_atoms))
    p = np.add.reduceat(law.masses, starts)
    # Q's mass relative to the lower knot of each cell, so that nothing overflows.
    lengths = np.diff(np.append(starts, size))
    base = np.repeat(law.losses[starts], lengths)
    relative = np.add.reduceat(law.masses * np.exp(base - law.losses), starts)
    knots = np.append(law.losses[starts], law.losses[-1])
    return _split(p, relative, knots, np.zeros(len(knots)), law.infinite)


def snapped(law: LossLaw, interval: float) -> tuple[NDArray[np.int64], Masses]:
    """Return the law on multiples of ``interval``: which ones (some twice), and their masses."""
    position = (law.losses + 1e-15 * np.abs(law.losses)) / interval
    cell = np.floor(position)
    part = np.expm1((cell - position) * interval) / math.expm1(-interval)
    upper = np.clip(part, 0.0, 1.0) * law.masses
    index = cell.astype(np.int64)
    return np.concatenate((index, index + 1)), np.concatenate((law.masses - upper, upper))


def _knots(shift: float) -> Masses:
    reach = np.arange(-_FAR, _FAR + _STEP, _STEP)
    if shift <= 2 * _FAR:
        return np.arange(-_FAR, _FAR + shift + _STEP, _STEP)
    return np.concatenate((reach, shift + reach))


def _gaussian_losses(t: Masses, shift: float, rate: float) -> tuple[Masses, Masses]:
    """Return the losses at ``t`` and what rounding can make of them."""
    exponent = shift * (t - shift / 2)
    wrong = 1e-15 * (shift * (np.abs(t) + shift) + np.abs(exponent))
    if rate == 1:
        return exponent, wrong
    grown = rate * np.expm1(np.minimum(exponent, 600.0))
    losses = np.where(exponent < 600, np.log1p(grown), exponent + math.log(rate))
    slope = np.minimum(1.0, rate / (1 - rate) * np.exp(np.minimum(exponent, 600.0)))
    return losses, slope * wrong + 1e-15 * (np.abs(losses) + rate)


def _cells(edges: Masses) -> Masses:
    """Return what a standard normal has between the edges, to full digits in both tails."""
    from scipy.special import ndtr

    left, right = ndtr(edges), ndtr(-edges)
    return np.where(edges[:-1] > 0, right[:-1] - right[1:], left[1:] - left[:-1])


def _connected_cells(p: Masses, q: Masses, knots: Masses, error: Masses) -> LossLaw:
    """Return the losses of p against q, given the masses of both between consecutive ``knots``.

    Losses of a cell may lie below its lower knot by ``error``: raised to it, Q's mass shrinks by
    that much relative to itself, which the split allows for.
    """
    relative = q * np.exp(np.minimum(knots[:-1], 700.0))
    return _split(p, relative, knots, error, 0.0)


def _split(p: Masses, relative: Masses, knots: Masses, error: Masses, infinite: float) -> LossLaw:
    """Split cells between their knots; ``relative`` is Q's mass times e^(lower knot)."""
    slack = 4 * MASS_ERROR + error[:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        upper = (p - relative * (1 - slack)) / -np.expm1(-np.diff(knots))
    upper = np.where(np.diff(knots) > 0, np.clip(upper, 0.0, p), p)
    masses = np.append(p - upper, 0.0)
    masses[1:] += upper
    return LossLaw(np.maximum.accumulate(knots), masses, infinite)


def _with_ends(law: LossLaw, below: float, above: float) -> LossLaw:
    masses = law.masses.copy()
    masses[0] += below
    return LossLaw(law.losses, masses, law.infinite + above * (1 + 1e-9))


class Pair(NamedTuple):
    """``shifted`` and ``unshifted`` probabilities of the same outcomes, and what lies elsewhere."""

    shifted: Masses
    unshifted: Masses
    outside: float = 2 * _OUTSIDE

    def sampled(self, rate: float) -> Pair:
        """Return the pair of a Poisson sample: the user takes part with probability ``rate``."""
        return self._replace(shifted=rate * self.shifted + (1 - rate) * self.unshifted)


def scalar_pair(noise: NoiseMechanism) -> Pair | None:
    """Return the exact pair of an integer mechanism that moves one coordinate, None for any other.

    That is one of dimension 1, or of an L1 sensitivity below 2, so of a histogram to which a user
    adds one row: the other coordinates have the same law either way and tell nothing. All these
    laws are log-concave, so a smaller shift is never easier to tell apart.
    """
    match noise:
        case Skellam(variance=variance, l2=l2) if _moves_one(noise):
            return _pair(skellam_law(variance), math.floor(l2))
        case DiscreteGaussian(sigma=sigma, l2=l2) if _moves_one(noise):
            return _pair(discrete_gaussian_law(sigma), math.floor(l2))
        case DistributedDiscreteGaussian(sigma_local=sigma, shares=shares, l2=l2) if _moves_one(
            noise
        ):
            return _pair(discrete_gaussian_sum_law(sigma, shares), math.floor(l2))
        case Binomial(trials=trials, l2=l2) if _moves_one(noise):
            return _pair(binomial_law(trials), math.floor(l2))
        case DiscreteLaplace(scale=scale, l1=l1, dimension=1):
            return _laplace_pair(scale, math.floor(l1))
        case _:
            return None


def _moves_one(
    noise: Skellam | DiscreteGaussian | DistributedDiscreteGaussian | Binomial,
) -> bool:
    return noise.dimension == 1 or l1_bound(noise) < 2


def _pair(law: Law, shift: int) -> Pair | None:
    reach = int(np.sum(law.log_survival > math.log(_OUTSIDE)))
    if 2 * reach + shift > _MAX_TABLE:
        return None
    # Atoms lie at k + law.shift and mirrored; count them from the leftmost one of the table.
    first = -reach if law.shift == 0 else -reach - 1
    k = np.arange(first, reach + shift + 1, dtype=np.float64) + law.shift
    return Pair(_masses(law, k - shift), _masses(law, k))


def _masses(law: Law, x: Masses) -> Masses:
    index = np.round(np.abs(x) - law.shift).astype(np.int64)
    inside = index < len(law.log_pmf)
    logs = np.where(inside, law.log_pmf[np.where(inside, index, 0)], -math.inf)
    return np.where(logs > _FAINTEST, np.exp(logs), 0.0)


def _laplace_pair(scale: float, shift: int) -> Pair | None:
    reach = math.ceil(-math.log(_OUTSIDE) * scale) + 1
    if 2 * reach + shift > _MAX_TABLE:
        return None
    k = np.arange(-reach, reach + shift + 1)
    peak = math.tanh(0.5 / scale)
    shifted, plain = (peak * np.exp(-np.abs(x) / scale) for x in (k - shift, k))
    return Pair(shifted, plain)


def pure_pair(epsilon: float) -> Pair:
    """Return the pair that dominates every epsilon-DP mechanism: randomised response."""
    likely = 1 / (1 + math.exp(-epsilon))
    unlikely = likely * math.exp(-epsilon)
    return Pair(np.array([likely, unlikely]), np.array([unlikely, likely]), 0.0)
