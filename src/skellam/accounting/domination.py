"""The Gaussian mechanism that dominates a release: Results A and B turned into curves.

Domination survives Poisson sampling, composition and post-processing, so every tight tool for the
Gaussian applies. Slack is not amplified by sampling here: that is safe, and it is tiny.
"""

from __future__ import annotations

import math

from skellam.accounting.curves import GdpCurve
from skellam.accounting.gdp import gdp_certificate
from skellam.accounting.mechanisms import (
    Adjacency,
    DiscreteLaplace,
    Laplace,
    Mechanism,
    Noise,
    noise_of,
    rate_of,
)
from skellam.accounting.pld import Pld, gaussian_interval, gaussian_pld, symmetrised


def dominating(noise: Noise) -> GdpCurve:
    """Return the Gaussian curve of one release without sampling."""
    match noise:
        case DiscreteLaplace() | Laplace():
            return GdpCurve(_pure_gdp(pure_epsilon(noise)), noise.sampler_distance)
        case _:
            eta, slack = gdp_certificate(noise)
            return GdpCurve(eta, slack + noise.sampler_distance)


def pure_epsilon(noise: DiscreteLaplace | Laplace) -> float:
    """Return epsilon of (discrete) Laplace noise, at delta 0."""
    return noise.l1 / noise.scale


def dominating_pld(mechanism: Mechanism, *, interval: float) -> Pld:
    """Return the loss distribution of the dominating Gaussian, sampled as ``mechanism`` is."""
    noise, rate = noise_of(mechanism), rate_of(mechanism)
    curve = dominating(noise)
    pld = gaussian_pld(1 / curve.mu, rate=rate, interval=interval, slack=curve.slack)
    return symmetrised(pld) if needs_symmetry(noise, rate) else pld


def needs_symmetry(noise: Noise, rate: float) -> bool:
    """Tell whether both neighbours are samples: under replace-one neither law of a pair is plain.

    Then C_p of Dong, Roth, Su applies, to cohorts of fixed size (their theorem 4.2) and, by
    advanced joint convexity (Balle, Barthe, Gaboardi 2018, theorem 2), to Poisson cohorts.
    """
    return noise.adjacency is Adjacency.REPLACE_ONE and rate < 1


def dominating_interval(mechanism: Mechanism, rounds: int) -> float:
    """Return a grid interval fine enough for `dominating_pld`."""
    z = 1 / dominating(noise_of(mechanism)).mu
    return gaussian_interval(z, rate_of(mechanism), rounds)


def _pure_gdp(epsilon: float) -> float:
    """Return the least mu whose trade-off curve lies below that of any epsilon-DP mechanism.

    The latter has one vertex, at 1/(1 + e^epsilon) (Dong, Roth, Su 2019, section 2.3).
    """
    from scipy.special import ndtri_exp

    vertex = -epsilon - math.log1p(math.exp(-epsilon))
    return float(-2 * ndtri_exp(vertex)) * (1 + 1e-9)
