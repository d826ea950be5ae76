"""The Gaussian mechanism that dominates a release: Results A and B turned into curves.

Domination survives Poisson sampling, composition and post-processing, so every tight tool for the
Gaussian applies. Slack is not amplified by sampling here: that is safe, and it is tiny. What the
sampler of the noise costs is not in these curves.
"""

from __future__ import annotations

import math

from skellam.accounting.curves import GdpCurve
from skellam.accounting.gdp import gdp_certificate, law_of_noise
from skellam.accounting.mechanisms import (
    Adjacency,
    DiscreteLaplace,
    Gaussian,
    Joint,
    Laplace,
    Mechanism,
    Noise,
    RoundedSkellam,
    noise_of,
    rate_of,
)
from skellam.accounting.pld import Pld, gaussian_interval, gaussian_pld, symmetrised
from skellam.accounting.slack import Slack, slack_by_atoms
from skellam.errors import CertificateError


def dominating(noise: Noise) -> GdpCurve:
    """Return the Gaussian curve of one release without sampling."""
    match noise:
        case DiscreteLaplace() | Laplace():
            return GdpCurve(_pure_gdp(pure_epsilon(noise)))
        case _:
            eta, rare = gdp_certificate(noise)
            return GdpCurve(eta, Slack(rare=rare))


def sampler_by_distance(noise: Noise) -> Slack:
    """Return what the sampler of one release's noise costs by its total variation."""
    if isinstance(noise, Joint):
        return sum(map(sampler_by_distance, noise.parts), Slack(distance=noise.sampler_distance))
    return Slack(distance=noise.sampler_distance)


def sampler_by_atoms(noise: Noise) -> Slack:
    """Return what it costs by its largest error at any integer, where that is known.

    Better than its distance where epsilon is large, but it takes the law's whole table.
    """
    if isinstance(noise, Joint):
        return sum(map(sampler_by_atoms, noise.parts), Slack(distance=noise.sampler_distance))
    if isinstance(noise, Gaussian | DiscreteLaplace | Laplace) or not noise.atom_error:
        return sampler_by_distance(noise)
    largest = noise.largest if isinstance(noise, RoundedSkellam) else None
    try:
        law = law_of_noise(noise)
    except CertificateError:  # no table is that wide; the distance does not need one
        return sampler_by_distance(noise)
    return slack_by_atoms(
        law,
        dimension=noise.dimension,
        shift=min(noise.l2, largest or noise.l2),
        distance=noise.sampler_distance,
        atom_error=noise.atom_error,
    )


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
