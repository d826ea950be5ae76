"""The GDP parameter of a mechanism: the Gaussian mechanism that dominates it, in any dimension."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import assert_never

from skellam.accounting.convolution import discrete_gaussian_sum_law
from skellam.accounting.gaps import GdpCertificate, certificate_of_law
from skellam.accounting.laws import Law, binomial_law, discrete_gaussian_law, skellam_law
from skellam.accounting.mechanisms import (
    Adjacency,
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    DistributedDiscreteGaussian,
    Gaussian,
    Joint,
    Laplace,
    Noise,
    RoundedSkellam,
    Skellam,
)
from skellam.accounting.rounding import certificate_of_rounding
from skellam.errors import CertificateError


def gdp_parameter(noise: Noise) -> float:
    """Return eta such that one release is eta-GDP, but for the rare event of `gdp_certificate`."""
    return gdp_certificate(noise).eta


@lru_cache(maxsize=1024)
def gdp_certificate(noise: Noise) -> GdpCertificate:
    """Return the GDP parameter of one release and what is set aside; sampling comes after it."""
    match noise:
        case Gaussian():
            return GdpCertificate(noise.l2 / noise.sigma, 0.0)
        case RoundedSkellam():
            return certificate_of_rounding(
                noise.variance,
                l2=noise.l2,
                dimension=noise.dimension,
                tail=noise.tail,
                block=noise.block,
                largest=noise.largest,
                replaced=noise.adjacency is Adjacency.REPLACE_ONE,
            )
        case Skellam() | DiscreteGaussian() | DistributedDiscreteGaussian():
            return certificate_of_law(law_of_noise(noise), l2=noise.l2, dimension=noise.dimension)
        case Binomial():
            law = law_of_noise(noise)
            return certificate_of_law(law, l2=noise.l2, dimension=noise.dimension, tail=noise.tail)
        case Joint():
            # A product of pairs: G_a x G_b = G_hypot(a, b) (Dong, Roth, Su 2019, corollary 3.3).
            etas, rare = zip(*map(gdp_certificate, noise.parts), strict=True)
            return GdpCertificate(math.hypot(*etas) * (1 + 1e-12), sum(rare))
        case DiscreteLaplace() | Laplace():
            raise CertificateError(
                "Laplace noise is not accounted as Gaussian; use its privacy loss distribution"
            )
        case _:
            assert_never(noise)


def law_of_noise(
    noise: Skellam | RoundedSkellam | DiscreteGaussian | DistributedDiscreteGaussian | Binomial,
) -> Law:
    """Return the law of one coordinate's noise."""
    match noise:
        case Skellam() | RoundedSkellam():
            return skellam_law(noise.variance)
        case DiscreteGaussian():
            return discrete_gaussian_law(noise.sigma)
        case DistributedDiscreteGaussian():
            return discrete_gaussian_sum_law(noise.sigma_local, noise.shares)
        case Binomial():
            return binomial_law(noise.trials)
        case _:
            assert_never(noise)
