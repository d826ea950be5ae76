"""The pair of laws that a scalar integer mechanism shows for its largest shift."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skellam.accounting.convolution import discrete_gaussian_sum_law
from skellam.accounting.laws import Law, binomial_law, discrete_gaussian_law, skellam_law
from skellam.accounting.mechanisms import (
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    DistributedDiscreteGaussian,
    Noise,
    Skellam,
    l1_bound,
)

Table = NDArray[np.float64]

_OUTSIDE = 1e-20
"""Mass beyond each end of a table; it is counted as infinite loss."""
_FAINTEST = -690.0
"""Log-masses below are no normal float64: they count as none, so the loss is infinite there."""
_LARGEST_TABLE = 10**7


class Pair(NamedTuple):
    """``shifted`` and ``plain`` probabilities of the same outcomes, and what lies elsewhere."""

    shifted: Table
    plain: Table
    outside: float = 2 * _OUTSIDE

    def sampled(self, rate: float) -> Pair:
        """Return the pair of a Poisson sample: the user takes part with probability ``rate``."""
        return self._replace(shifted=rate * self.shifted + (1 - rate) * self.plain)


def scalar_pair(noise: Noise) -> Pair | None:
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
    if 2 * reach + shift > _LARGEST_TABLE:
        return None
    # Atoms lie at k + law.shift and mirrored; count them from the leftmost one of the table.
    first = -reach if law.shift == 0 else -reach - 1
    k = np.arange(first, reach + shift + 1, dtype=np.float64) + law.shift
    return Pair(_masses(law, k - shift), _masses(law, k))


def _masses(law: Law, x: Table) -> Table:
    index = np.round(np.abs(x) - law.shift).astype(np.int64)
    inside = index < len(law.log_pmf)
    logs = np.where(inside, law.log_pmf[np.where(inside, index, 0)], -math.inf)
    return np.where(logs > _FAINTEST, np.exp(logs), 0.0)


def _laplace_pair(scale: float, shift: int) -> Pair | None:
    reach = math.ceil(-math.log(_OUTSIDE) * scale) + 1
    if 2 * reach + shift > _LARGEST_TABLE:
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
