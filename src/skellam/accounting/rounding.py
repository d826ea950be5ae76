"""Result B: what a real vector costs after unbiased stochastic rounding and Skellam noise.

A coordinate x = m + f is rounded up with probability f: its release has the law
P = (1 - f) Q(. - m) + f Q(. - m - 1), Q = Sk(variance). Take m = 0 first. P/Q rises, so thresholds
are the best tests, and the vertex at t has the quantile gap ::

    gap_f(t) = Phi^-1(S(t) + f p(t - 1)) - Phi^-1(S(t)).

Phi^-1 is concave below 1/2 and convex above, so gap_f(t) / f is largest at f -> 0 or at f = 1:
kappa is the larger of p(t - 1) / phi(Phi^-1(S(t))) over the certified t, and eta of Result A. The
integer part is a chain of m steps, m eta <= m kappa. So a REAL vector of norm r is kappa r-GDP.

Certified are the t with S(t), 1 - S(t) >= tail, that is 1 - T <= t <= T. On {X >= T} replace P by
the multiple of Q of equal mass: a chord of the trade-off curve, so still above the Gaussian one;
likewise on {X <= -T}. These ends are a rare event (lemma 1 of docs/maths/slack.md). At the end of a
chain of m steps it is {|X - m| >= T}, of probability at most 2 S(T - ceil(x)) under either law. Of
the d coordinates of a vector of norm r at most min(d, r^2 / j^2) have ceil(x) > j, so the sum of
S(T - ceil(x)) is at most d S(T - 1) + sum_j min(d, r^2 / j^2) (S(T - j - 1) - S(T - j)).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from skellam import _checks
from skellam.accounting.blocks import kappa_of_block
from skellam.accounting.gaps import (
    DEFAULT_TAIL,
    FLOAT_SAFETY,
    GdpCertificate,
    eta_of_law,
    last_threshold,
)
from skellam.accounting.laws import skellam_law
from skellam.errors import CertificateError, DomainError


def kappa(variance: float, *, tail: float, block: int = 1, largest: float | None = None) -> float:
    """Return the GDP parameter per unit of L2 norm of rounded vectors, given ``tail`` set aside.

    With ``block`` > 1 (Result B') it multiplies ``sqrt(norm^2 + block * largest^2)`` instead of the
    norm, ``largest`` being the bound on every coordinate, and ``tail`` is per block.
    """
    if not 0 < tail < 0.5:
        raise DomainError(f"tail must lie strictly between 0 and 1/2, got {tail!r}")
    if _checks.integer("block", block, 1) == 1:
        return _kappa_of_coordinate(variance, tail)
    return kappa_of_block(variance, tail, block, _largest(block, largest))


def certificate_of_rounding(
    variance: float,
    *,
    l2: float,
    dimension: int,
    tail: float,
    block: int = 1,
    largest: float | None = None,
    replaced: bool = False,
) -> GdpCertificate:
    """Return what real vectors of norm ``l2`` or less cost after rounding.

    ``replaced``: a vector is replaced by another, a chain through the zero vector whose law stays
    in place; the ends of both vectors are rare, so there are twice as many.
    """
    norm = _checks.positive("l2", l2)
    scale = kappa(variance, tail=tail, block=block, largest=largest)
    if block == 1:
        most = min(norm, largest or norm)
        _check_chain(variance, most, tail)
        eta, rare = norm * scale, _rare_coordinates(variance, tail, norm, dimension, most)
    else:
        spread = math.sqrt(block) * _largest(block, largest)
        eta = math.hypot(norm, spread) * scale
        rare = -(-dimension // block) * 2 * _power(tail, scale * spread)
    return GdpCertificate(eta, min(1.0, 2 * rare if replaced else rare))


def _power(size: float, eta: float) -> float:
    """Bound the power of a test of this size under eta-GDP.

    An end of a block has probability ``tail`` under the law that it is the end of; this bounds its
    probability under the others.
    """
    from scipy.special import log_ndtr, ndtri_exp

    return math.exp(log_ndtr(ndtri_exp(math.log(size)) + eta)) * (1 + 1e-9)


def _rare_coordinates(
    variance: float, tail: float, l2: float, dimension: int, largest: float
) -> float:
    """Bound the probability that some coordinate is beyond its last certified threshold."""
    law = skellam_law(variance)
    last, most = last_threshold(law, tail), math.ceil(largest)
    if most > last:  # moved that far, a coordinate is beyond it as often as not
        return 1.0
    steps = np.arange(1, most)
    beyond = np.exp(law.log_survival[last - most : last][::-1])
    many = np.minimum(dimension, (l2 / steps) ** 2)
    rare = dimension * float(beyond[0]) + float((many * np.diff(beyond)).sum())
    return 2 * rare * (1 + 1e-9)


def _largest(block: int, largest: float | None) -> float:
    if largest is None:
        raise DomainError(f"block={block} needs largest, the bound on every coordinate")
    return _checks.positive("largest", largest)


def _check_chain(variance: float, largest: float, tail: float) -> None:
    """Raise unless every step of the integer part's chain is inside the certificate of Result A."""
    law = skellam_law(variance)
    if not math.floor(largest) + last_threshold(law, tail) <= last_threshold(law, DEFAULT_TAIL):
        raise CertificateError(
            f"a coordinate of {largest:g} is beyond what is certified at variance {variance:g}; "
            "raise the variance or lower the norm"
        )


@lru_cache(maxsize=1024)
def _kappa_of_coordinate(variance: float, tail: float) -> float:
    from scipy.special import ndtri_exp

    law = skellam_law(variance)
    last = last_threshold(law, tail)
    quantiles = ndtri_exp(law.log_survival[1 : last + 1])
    log_density = -0.5 * quantiles**2 - 0.5 * math.log(2 * math.pi)
    steepest = math.exp((law.log_pmf[:last] - log_density).max()) * (1 + FLOAT_SAFETY)
    return max(steepest, eta_of_law(law))
