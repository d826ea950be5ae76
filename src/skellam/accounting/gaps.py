"""Result A: integer noise as a Gaussian mechanism, by its widest quantile gap.

For one coordinate, a shift of 1 and log-concave noise the best tests are thresholds, so the
trade-off function is piecewise linear with a vertex at every integer t. It lies above that of the
pair N(eta, 1), N(0, 1) iff every vertex does (the region above is convex), that is iff ::

    gap(t) = Phi^-1(S(t - 1)) - Phi^-1(S(t)) <= eta,     S(t) = P(X >= t).

A shift by k is a chain of k such steps, k eta-GDP, and coordinates add in squares (Dong, Roth, Su
2019, theorem 2.14 and corollary 3.3): an integer vector v costs ``||v||_2 eta``.

The certificate evaluates every gap with S(t) >= tail; the rest is charged to delta. Let T be the
last certified threshold. For a shift by k the vertices at t <= T lie above the Gaussian curve; on
{X >= T} replace the shifted law P by the multiple of Q of equal mass, a chord of the curve and so
still above. Likewise at the other end. Both ends together are a rare event (lemma 1 of
docs/maths/slack.md), of probability at most 2 S(T - k) under either law. Nothing here asks the
support to be unbounded: for a binomial law T is its last atom.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from skellam import _checks
from skellam.accounting.laws import Law, skellam_law
from skellam.errors import CertificateError

FLOAT_SAFETY = 5e-10
"""Relative margin on GDP parameters: float64 noise in a gap is below 3e-10 at variance 1e10."""

DEFAULT_TAIL = 1e-300


class GdpCertificate(NamedTuple):
    """``eta``-GDP but for an event of probability ``rare``, which is added to delta."""

    eta: float
    rare: float


def eta_of_law(law: Law, *, tail: float = DEFAULT_TAIL) -> float:
    """Return the GDP parameter of a shift by one: the widest certified gap, rounded up."""
    from scipy.special import ndtri_exp

    last = last_threshold(law, tail)
    gaps = -np.diff(ndtri_exp(law.log_survival[: last + 1]))
    if law.shift == 0.0:
        gaps[0] = _central_gap(law)
    return float(gaps.max()) * (1 + FLOAT_SAFETY)


@lru_cache(maxsize=1024)
def eta_skellam(variance: float) -> float:
    """Return the GDP parameter of Sk(variance) at a shift by one; the tail set aside is 1e-300."""
    return eta_of_law(skellam_law(variance))


def certificate_of_law(
    law: Law, *, l2: float, dimension: int, tail: float = DEFAULT_TAIL
) -> GdpCertificate:
    """Return what integer vectors of norm ``l2`` or less cost under i.i.d. noise of this law."""
    norm = _checks.positive("l2", l2)
    d = _checks.integer("dimension", dimension, 1)
    last = last_threshold(law, tail)
    beyond = 2 * _survival(law, last - max(1, math.floor(norm)))
    rare = min(1.0, max(1, min(d, norm**2)) * beyond)
    return GdpCertificate(norm * eta_of_law(law, tail=tail), rare)


def last_threshold(law: Law, tail: float) -> int:
    """Return the largest k with P(X >= k + shift) >= tail, or raise if only the centre has it."""
    _checks.open_unit("tail", tail)
    # log_survival falls, so its negative is sorted; the first threshold is the centre itself
    last = int(np.searchsorted(-law.log_survival, -math.log(tail), side="right")) - 1
    if last < 1:
        raise CertificateError(
            f"no threshold beyond the centre has probability {tail:g}; "
            "raise the variance or lower the tail"
        )
    return last


def _central_gap(law: Law) -> float:
    """2 Phi^-1((1 + p) / 2), p the central atom, without cancellation."""
    from scipy.special import erfinv, ndtri_exp

    p = math.exp(law.log_pmf[0])
    return float(2 * math.sqrt(2) * erfinv(p) if p < 0.5 else -2 * ndtri_exp(law.log_survival[1]))


def _survival(law: Law, k: int) -> float:
    """Bound P(X >= k + shift) from above, for any integer k."""
    return math.exp(law.log_survival[k]) * (1 + 1e-9) if k >= 0 else 1.0
