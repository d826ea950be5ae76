"""Privacy loss distributions: exact composition on a grid of losses, rounded to the private side.

Every distribution here is made by connecting the dots (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi
2022): it has the true pair's privacy profile at each multiple of the interval and lies above it in
between. dp_accounting composes them by FFT and charges what it truncates; what the FFT itself loses
is charged here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.accounting.conversion import epsilon_with_slack
from skellam.accounting.curves import with_slack
from skellam.errors import DomainError

Masses = NDArray[np.float64]

_POINTS = 1e4
_COMPOSED_POINTS = 5e5
_FINEST = 1e-7
_ROUND_OFF = 2e-15
"""Absolute error of delta per composition by FFT. With Parseval, T-fold composition of N points
loses at most T u log2(N) sqrt(K), u = 1.1e-16 and K < 10 the number of frequencies that matter."""


@dataclass(frozen=True, slots=True, eq=False)
class Pld:
    """The privacy loss distribution of ``compositions`` releases, in both directions."""

    distribution: Any
    """A pessimistic ``dp_accounting.pld.privacy_loss_distribution.PrivacyLossDistribution``."""
    compositions: int = 1
    slack: float = 0.0

    def __post_init__(self) -> None:
        _checks.integer("compositions", self.compositions, 1)
        _checks.non_negative("slack", self.slack)

    def __add__(self, other: Pld) -> Pld:
        try:
            composed = self.distribution.compose(other.distribution)
        except ValueError as error:
            raise DomainError(
                f"only distributions of one interval can be added: {error}"
            ) from error
        count = self.compositions + other.compositions
        return Pld(composed, count, self.slack + other.slack)

    def __mul__(self, rounds: int) -> Pld:
        n = _checks.integer("rounds", rounds, 1)
        composed = self.distribution if n == 1 else self.distribution.self_compose(n)
        return Pld(composed, self.compositions * n, self.slack * n)

    @property
    def _round_off(self) -> float:
        return 0.0 if self.compositions == 1 else self.compositions * _ROUND_OFF

    def epsilon(self, delta: float) -> float:
        """Return an epsilon at ``delta``; infinite where slack and round-off take it all."""
        return epsilon_with_slack(self._epsilon, delta, self.slack)

    def delta(self, epsilon: float) -> float:
        """Return the total delta at ``epsilon``."""
        _checks.number("epsilon", epsilon)
        delta = float(self.distribution.get_delta_for_epsilon(epsilon)) + self._round_off
        return with_slack(min(1.0, max(0.0, delta)), self.slack, epsilon)

    def _epsilon(self, delta: float) -> float:
        left = delta - self._round_off
        if not left > 0:
            return math.inf
        epsilon = float(self.distribution.get_epsilon_for_delta(left))
        return epsilon if epsilon >= 0 else math.inf


def gaussian_interval(z: float, rate: float, rounds: int) -> float:
    """Return a grid interval fine enough for ``rounds`` releases of `gaussian_pld`."""
    # The loss ten standard deviations out, and the root of its second moment or a bit more.
    far = 10 / z + 0.5 / z**2
    reach = math.log1p(rate * math.expm1(far)) if far < 700 else far
    spread = rate * math.sqrt(math.expm1(min(1 / z**2, 700.0)))
    return _interval(reach, min(spread, reach), rounds)


def gaussian_pld(z: float, *, rate: float = 1.0, interval: float, slack: float = 0.0) -> Pld:
    """Return the distribution of a (Poisson sampled) Gaussian of noise multiplier ``z``."""
    from dp_accounting.pld import privacy_loss_distribution

    # dp_accounting answers epsilon 0 for a NaN, so nothing unchecked may reach it.
    distribution = privacy_loss_distribution.from_gaussian_mechanism(
        _checks.positive("z", z),
        sampling_prob=_checks.rate("rate", rate),
        value_discretization_interval=_checks.positive("interval", interval),
    )
    return Pld(distribution, slack=slack)


def symmetrised(pld: Pld) -> Pld:
    """Return the pair that the operator C_p of Dong, Roth, Su 2019 (theorem 4.2) makes of a sample.

    ``pld`` is that of (1-p) Q + p P against Q, whose profile is the larger one at epsilon >= 0. The
    convex hull of both directions has this profile there and its mirror image below: a loss l > 0
    keeps its mass m, -l gets m e^-l, and 0 the rest.
    """
    from dp_accounting.pld import privacy_loss_distribution
    from dp_accounting.pld.pld_pmf import DensePLDPmf

    offset, masses, infinite, interval = _dense(pld.distribution._pmf_remove)  # noqa: SLF001
    positive = np.zeros(max(offset + len(masses) - 1, 1))
    kept = masses[max(0, 1 - offset) :]
    if len(kept):
        positive[-len(kept) :] = kept
    mirrored = positive * np.exp(-interval * np.arange(1, len(positive) + 1))
    centre = max(0.0, 1 - infinite - positive.sum() - mirrored.sum())
    whole = np.concatenate((mirrored[::-1], [centre], positive))
    pmf = DensePLDPmf(interval, -len(positive), whole, infinite, pessimistic_estimate=True)
    return Pld(privacy_loss_distribution.PrivacyLossDistribution(pmf), slack=pld.slack)


def pair_pld(p: Masses, q: Masses, *, interval: float, outside: float, slack: float = 0.0) -> Pld:
    """Return the distribution of the pair (p, q) of laws on one finite set, in both directions.

    ``outside`` bounds the mass that either law has elsewhere: it counts as infinite loss.
    """
    from dp_accounting.pld import privacy_loss_distribution

    remove, add = (_connected(a, b, interval, outside) for a, b in ((p, q), (q, p)))
    return Pld(privacy_loss_distribution.PrivacyLossDistribution(remove, add), slack=slack)


def pair_interval(p: Masses, q: Masses, rounds: int) -> float:
    """Return a grid interval fine enough for ``rounds`` releases of the pair (p, q)."""
    both = (p > 0) & (q > 0)
    losses = np.log(p[both] / q[both])
    spread = math.sqrt(float(np.sum(p[both] * losses**2)))
    return _interval(float(np.max(np.abs(losses), initial=1e-9)), spread, rounds)


def _interval(reach: float, spread: float, rounds: int) -> float:
    composed = min(20 * math.sqrt(rounds) * spread + rounds * spread**2, 2 * rounds * reach)
    return max(reach / _POINTS, composed / _COMPOSED_POINTS, _FINEST)


def _connected(p: Masses, q: Masses, interval: float, outside: float) -> Any:  # noqa: ANN401
    """Split each atom between the two grid losses around it so that both its masses are kept.

    With grid losses l and l + h around log(p/q): the upper part u has p-mass u and q-mass
    u e^-(l+h), the lower part (p - u) e^-l; the q-masses add up to q at one u in [0, p].
    """
    from dp_accounting.pld.pld_pmf import DensePLDPmf

    both = (p > 0) & (q > 0)
    infinite = outside + float(p[~both].sum())
    p, q = p[both], q[both]
    position = np.log(p / q) / interval
    cell = np.floor(position)
    upper = p * np.expm1(-(position - cell) * interval) / math.expm1(-interval)
    upper = np.clip(upper, 0.0, p)
    low = int(cell.min())
    index = (cell - low).astype(np.int64)
    size = int(index.max()) + 2
    masses = np.bincount(index, p - upper, size) + np.bincount(index + 1, upper, size)
    return DensePLDPmf(interval, low, masses, infinite, pessimistic_estimate=True)


def _dense(pmf: Any) -> tuple[int, Masses, float, float]:  # noqa: ANN401
    """Take a distribution of dp_accounting apart: lowest loss, masses, infinite mass, interval."""
    dense = pmf.to_dense_pmf()
    parts = dense._lower_loss, dense._probs, dense._infinity_mass, dense._discretization  # noqa: SLF001
    return int(parts[0]), np.asarray(parts[1]), float(parts[2]), float(parts[3])
