"""The GDP parameter of a mechanism: the Gaussian mechanism that dominates it, in any dimension."""

from __future__ import annotations

from functools import lru_cache
from typing import assert_never

from skellam.accounting.convolution import discrete_gaussian_sum_law
from skellam.accounting.gaps import DEFAULT_TAIL, GdpCertificate, certificate_of_law
from skellam.accounting.laws import Law, binomial_law, discrete_gaussian_law, skellam_law
from skellam.accounting.mechanisms import (
    Adjacency,
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    DistributedDiscreteGaussian,
    Gaussian,
    Laplace,
    Noise,
    RoundedSkellam,
    Skellam,
)
from skellam.accounting.rounding import certificate_of_rounding
from skellam.errors import CertificateError


def gdp_parameter(noise: Noise) -> float:
    """Return eta such that one release is eta-GDP, up to the slack of `gdp_certificate`."""
    return gdp_certificate(noise).eta


@lru_cache(maxsize=1024)
def gdp_certificate(noise: Noise) -> GdpCertificate:
    """Return the GDP parameter of one release and the mass set aside; sampling comes after it.

    The sampler's own distance is not in the slack: it belongs to whoever drew the noise.
    """
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
        case Skellam():
            return _integer(noise, skellam_law(noise.variance))
        case DiscreteGaussian():
            return _integer(noise, discrete_gaussian_law(noise.sigma))
        case DistributedDiscreteGaussian():
            return _integer(noise, discrete_gaussian_sum_law(noise.sigma_local, noise.shares))
        case Binomial():
            return _integer(noise, binomial_law(noise.trials), tail=noise.tail)
        case DiscreteLaplace() | Laplace():
            raise CertificateError(
                "Laplace noise is not accounted as Gaussian; use its privacy loss distribution"
            )
        case _:
            assert_never(noise)


def _integer(
    noise: Skellam | DiscreteGaussian | DistributedDiscreteGaussian | Binomial,
    law: Law,
    tail: float = DEFAULT_TAIL,
) -> GdpCertificate:
    return certificate_of_law(law, l2=noise.l2, dimension=noise.dimension, tail=tail)
