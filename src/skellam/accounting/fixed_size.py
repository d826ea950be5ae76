"""Result D: secret cohorts of a fixed, or publicly known, size under add/remove.

The neighbours are the same data with one user's vector zeroed out. One round's pair is, given the
other members of the cohort, p P_x + (1 - p) P_r against p Q + (1 - p) P_r: x is the user's vector,
r that of whoever is drawn in its place, p the share of the population in the cohort. The proof,
that of the composition, and the numbers are in docs/maths/fixed_size.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias, assert_never

import numpy as np

from skellam.accounting.curves import Values, gaussian_profile, mills, mills_fall
from skellam.accounting.losslaw import LossLaw, gaussian_laws, profile_law
from skellam.accounting.mechanisms import SampledKnownSize, SampledWithoutReplacement

_FAR = 12.0
_STEP = 1 / 32
_MAX_LOSS = 600.0
_MAX_ETA = 20.0
"""Beyond, sampling is worth nothing and the Gaussian itself is taken, which is safe."""
_NODES_PER_DEVIATION = 4


def remove_profile(eta: float, share: float, epsilons: Values) -> Values:
    """Bound delta of one round at each of ``epsilons`` >= 0, the user's vector on the left.

    ``share`` times the supremum over s of Phi(s + eta) - A Phi(s - eta) - B Phi(s), with B = e^e
    and A = (1 - share) (B - 1)/share. At the best s, y = e^(-s eta) has y^2 = A + B e^(eta^2/2) y,
    which says phi(s + eta) = A phi(s - eta) + B phi(s). So the difference is phi(s + eta) times a
    mean of M(a) - M(a + 2 eta) and M(a) - M(a + eta), M Mills' ratio and a = -s - eta, with weights
    A/y^2 and 1 - A/y^2: positive terms.
    """
    from scipy.special import ndtr

    top = epsilons + eta * eta / 2
    ratio = 4 * (1 - share) / share * np.expm1(epsilons) * np.exp(-2 * top)
    root = 1 + np.sqrt(1 + ratio)
    far = ratio / root**2
    a = (top + np.log1p(ratio / root / 2)) / eta - eta
    density = np.exp(-np.minimum(a * a / 2, 745.0)) / math.sqrt(2 * math.pi)
    if eta <= 1:
        delta = density * (far * mills_fall(a, 2 * eta) + (1 - far) * mills_fall(a, eta))
    else:
        rest = far * mills(a + 2 * eta) + (1 - far) * mills(a + eta)
        delta = np.where(a > 0, density * mills(a), ndtr(-a)) - density * rest * (1 - 1e-13)
    return np.asarray(np.minimum(1.0, share * delta * (1 + 1e-11) + 1e-300))


def add_profile(eta: float, share: float, epsilons: Values) -> Values:
    """Bound delta of one round at each of ``epsilons`` >= 0, the user's vector on the right.

    ``share`` times the profile of eta-GDP at log(1 + (e^e - 1)/share): the worst r is x itself.
    """
    return share * gaussian_profile(eta, np.log1p(np.expm1(epsilons) / share))


Sizes: TypeAlias = Sequence[tuple[float, float]]
"""Shares of the population in a cohort, with their probabilities."""


def fixed_size_laws(eta: float, sizes: Sizes) -> tuple[LossLaw, LossLaw]:
    """Return the losses of one round, remove and add; every vector is ``eta``-GDP of none."""
    if eta > _MAX_ETA:
        return gaussian_laws(1 / eta, 1.0)
    losses = _losses(eta, sizes)
    remove, add = (_mean(profile, eta, sizes, losses) for profile in (remove_profile, add_profile))
    return profile_law(losses, remove, add), profile_law(losses, add, remove)


def replaced_size_law(eta: float, sizes: Sizes) -> LossLaw:
    """Return the losses under replace-one, any two vectors being ``eta``-GDP of each other.

    The operator C_p of Dong, Roth, Su 2019 has the profile `add_profile` in both directions.
    """
    if eta > _MAX_ETA:
        return gaussian_laws(1 / eta, 1.0)[0]
    losses = _losses(eta, sizes)
    profile = _mean(add_profile, eta, sizes, losses)
    return profile_law(losses, profile, profile)


@lru_cache(maxsize=64)
def sizes_of(mechanism: SampledWithoutReplacement | SampledKnownSize) -> Sizes:
    """Return the shares of the population that a cohort of ``mechanism`` may be, with weights."""
    match mechanism:
        case SampledWithoutReplacement():
            return ((mechanism.rate, 1.0),)
        case SampledKnownSize():
            every = poisson_sizes(mechanism.rate, mechanism.population)
            return max_sizes(every, mechanism.run_chance)
        case _:
            assert_never(mechanism)


def poisson_sizes(rate: float, population: int) -> Sizes:
    """Return shares and weights that bound the mean of a profile over n ~ Bin(population, rate).

    For fixed e both profiles are suprema of functions linear in the share and 0 at share 0, so they
    are convex in it and rise: a size between two nodes is split between them, its mean kept; sizes
    below the first node count as that one, and sizes above the last as the whole population.
    """
    from scipy.special import bdtrc

    if rate == 1:
        return ((1.0, 1.0),)
    deviation = math.sqrt(population * rate * (1 - rate))
    reach = math.ceil(_FAR * deviation) + 60
    mode = math.floor((population + 1) * rate)
    low, high = max(0, mode - reach), min(population, mode + reach)
    n = np.arange(low, high + 1, dtype=np.float64)
    # P(n + 1)/P(n) = (population - n)/(n + 1) * rate/(1 - rate), summed up from the mode.
    ratios = np.log((population - n[:-1]) / (n[1:]) * (rate / (1 - rate)))
    logs = np.concatenate(([0.0], np.cumsum(ratios)))
    mass = np.exp(logs - logs[mode - low])
    mass /= mass.sum()
    step = max(1, math.floor(deviation / _NODES_PER_DEVIATION))
    node, part = np.divmod(n - low, step)
    index = node.astype(np.int64)
    weights = np.bincount(index, mass * (1 - part / step), int(index[-1]) + 2)
    weights += np.bincount(index + 1, mass * part / step, int(index[-1]) + 2)
    shares = np.minimum(1.0, (low + step * np.arange(len(weights))) / population)
    beyond = float(bdtrc(high, population, rate)) if high < population else 0.0
    found = [(float(p), float(w)) for p, w in zip(shares, weights, strict=True) if p > 0 and w > 0]
    return (*found, (1.0, beyond * (1 + 1e-9) + 1e-300))


def max_sizes(sizes: Sizes, chance: float) -> Sizes:
    """Return the law of the largest ``sizes``, given that it is one of those, of this ``chance``.

    Profiles rise with the share, so no other event of this chance, or of a larger one, has a larger
    mean of them.
    """
    found, left = list[tuple[float, float]](), chance
    for share, weight in sorted(sizes, reverse=True):
        found.append((share, min(weight, left) / chance))
        left -= min(weight, left)
    return tuple(found)


def _mean(
    profile: Callable[[float, float, Values], Values], eta: float, sizes: Sizes, losses: Values
) -> Values:
    return np.asarray(sum(w * profile(eta, p, losses) for p, w in sizes))


def _losses(eta: float, sizes: Sizes) -> Values:
    """Return knots from 0 on: log(1 + share (e^y - 1)), y in steps of eta/32."""
    share = sum(p * w for p, w in sizes)
    y = eta * _STEP * np.arange(math.ceil(2 * (_FAR + eta) / _STEP) + 1)
    return np.asarray(np.log1p(share * np.expm1(y[y <= _MAX_LOSS])))
