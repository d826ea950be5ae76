"""Result B: what a real vector costs after unbiased stochastic rounding and Skellam noise.

A coordinate x = m + f is rounded up with probability f: its release has the law
P = (1 - f) Q(. - m) + f Q(. - m - 1), Q = Sk(variance). Take m = 0 first. P/Q rises, so thresholds
are the best tests, and the vertex at t has the quantile gap ::

    gap_f(t) = Phi^-1(S(t) + f p(t - 1)) - Phi^-1(S(t)).

Phi^-1 is concave below 1/2 and convex above, so gap_f(t) / f is largest at f -> 0 or at f = 1:
kappa is the larger of p(t - 1) / phi(Phi^-1(S(t))) over the certified t, and eta of Result A. The
integer part is a chain of m steps, m eta <= m kappa. So a REAL vector of norm r is kappa r-GDP.

Certified are the t with S(t), 1 - S(t) >= tail, that is 1 - T <= t <= T. On {X >= T} replace P by
the multiple of Q of equal mass: a chord of the trade-off curve, so still above the Gaussian one.
As P/Q rises this moves f max_j (p(T + j - 1) - p(T - 1) S(T + j) / S(T)), j >= 1, of P's mass; on
{X <= -T} it moves f max_j (p(T + j) - p(T) S(T + j) / S(T)). Both sums are computed, at f = 1.
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
from skellam.accounting.laws import Law, skellam_law
from skellam.errors import CertificateError, DomainError


def kappa(variance: float, *, tail: float, block: int = 1, largest: float | None = None) -> float:
    """Return the GDP parameter per unit of L2 norm of rounded vectors, given ``tail`` set aside.

    With ``block`` > 1 (Result B') it multiplies ``sqrt(norm^2 + block * largest^2)`` instead of the
    norm, ``largest`` being the bound on every coordinate, and ``tail`` is per block.
    """
    return _certificate(variance, tail, block, largest).eta


def rounding_slack(
    variance: float, *, dimension: int, tail: float, block: int = 1, largest: float | None = None
) -> float:
    """Return the mass that `kappa` sets aside, over all coordinates of one release."""
    blocks = -(-_checks.integer("dimension", dimension, 1) // _checks.integer("block", block, 1))
    return blocks * _certificate(variance, tail, block, largest).slack


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

    ``replaced``: a vector is replaced by another, a chain through the zero vector, whose law must
    then stay in place. Result B moves P alone. Result B' moves Q too, unless the upper end of P is
    made a multiple of Q instead: that moves at most the power of the test of size ``tail``.
    """
    norm = _checks.positive("l2", l2)
    scale = kappa(variance, tail=tail, block=block, largest=largest)
    slack = rounding_slack(variance, dimension=dimension, tail=tail, block=block, largest=largest)
    if block == 1:
        _check_chain(variance, min(norm, largest or norm), tail)
        return GdpCertificate(norm * scale, slack)
    spread = math.sqrt(block) * _largest(block, largest)
    if replaced:
        slack *= 1 + _power(tail, scale * spread) / tail
    return GdpCertificate(math.hypot(norm, spread) * scale, slack)


def _certificate(variance: float, tail: float, block: int, largest: float | None) -> GdpCertificate:
    if _checks.integer("block", block, 1) == 1:
        return _one_coordinate(variance, tail)
    if not 0 < tail < 0.5:
        raise DomainError(f"tail must lie strictly between 0 and 1/2, got {tail!r}")
    return GdpCertificate(kappa_of_block(variance, tail, block, _largest(block, largest)), tail)


def _largest(block: int, largest: float | None) -> float:
    if largest is None:
        raise DomainError(f"block={block} needs largest, the bound on every coordinate")
    return _checks.positive("largest", largest)


def _power(size: float, eta: float) -> float:
    """Bound the power of a test of this size under eta-GDP."""
    from scipy.special import log_ndtr, ndtri_exp

    return math.exp(log_ndtr(ndtri_exp(math.log(size)) + eta)) * (1 + 1e-9)


def _check_chain(variance: float, largest: float, tail: float) -> None:
    """Raise unless every step of the integer part's chain is inside the certificate of Result A."""
    law = skellam_law(variance)
    if not math.floor(largest) + last_threshold(law, tail) <= last_threshold(law, DEFAULT_TAIL):
        raise CertificateError(
            f"a coordinate of {largest:g} is beyond what is certified at variance {variance:g}; "
            "raise the variance or lower the norm"
        )


@lru_cache(maxsize=1024)
def _one_coordinate(variance: float, tail: float) -> GdpCertificate:
    from scipy.special import ndtri_exp

    law = skellam_law(variance)
    last = last_threshold(law, tail)
    quantiles = ndtri_exp(law.log_survival[1 : last + 1])
    log_density = -0.5 * quantiles**2 - 0.5 * math.log(2 * math.pi)
    steepest = math.exp((law.log_pmf[:last] - log_density).max()) * (1 + FLOAT_SAFETY)
    return GdpCertificate(max(steepest, eta_of_law(law)), _moved(law, last))


def _moved(law: Law, last: int) -> float:
    """Bound the mass that leaves its place when both ends of P are made multiples of Q."""
    p, beyond = np.exp(law.log_pmf), np.exp(law.log_survival)
    share = beyond[last + 1 :] / beyond[last]
    upper = (p[last:-1] - p[last - 1] * share).max()
    lower = (p[last + 1 :] - p[last] * share).max()
    return float(upper + lower + 1e-11 * p[last - 1])
