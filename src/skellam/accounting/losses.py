"""Loss distributions of mechanisms: their own where known, else the dominating Gaussian's."""

from __future__ import annotations

from skellam.accounting.domination import (
    dominating_interval,
    dominating_pld,
    needs_symmetry,
    pure_epsilon,
)
from skellam.accounting.mechanisms import (
    DiscreteLaplace,
    Laplace,
    Mechanism,
    Noise,
    noise_of,
    rate_of,
)
from skellam.accounting.pairs import Pair, pure_pair, scalar_pair
from skellam.accounting.pld import Pld, pair_interval, pair_pld, symmetrised


def has_own_pld(mechanism: Mechanism) -> bool:
    """Tell whether the mechanism's own pair is known, not only a Gaussian that dominates it."""
    return _pair(noise_of(mechanism)) is not None


def pld(mechanism: Mechanism, *, interval: float) -> Pld:
    """Return the loss distribution of one release on a grid of this interval."""
    noise, rate = noise_of(mechanism), rate_of(mechanism)
    pair = _pair(noise)
    if pair is None:
        return dominating_pld(mechanism, interval=interval)
    shifted, plain, outside = pair.sampled(rate)
    own = pair_pld(shifted, plain, interval=interval, outside=outside)
    return symmetrised(own) if needs_symmetry(noise, rate) else own


def pld_interval(mechanism: Mechanism, rounds: int) -> float:
    """Return a grid interval fine enough for ``rounds`` releases."""
    pair = _pair(noise_of(mechanism))
    if pair is None:
        return dominating_interval(mechanism, rounds)
    shifted, plain, _ = pair.sampled(rate_of(mechanism))
    return pair_interval(shifted, plain, rounds)


def _pair(noise: Noise) -> Pair | None:
    own = scalar_pair(noise)
    if own is None and isinstance(noise, DiscreteLaplace | Laplace):
        return pure_pair(pure_epsilon(noise))
    return own
