"""Accounting: what a release costs, with mechanisms as data and curves as values, from above."""

from __future__ import annotations

from skellam.accounting.accountants import (
    Calibrated,
    Method,
    Release,
    calibrate,
    composed_delta,
    composed_epsilon,
    curves,
    delta,
    epsilon,
    noise_multiplier,
)
from skellam.accounting.curves import (
    ORDERS,
    PAPER_ORDERS,
    Curve,
    GdpCurve,
    RdpCurve,
    Slack,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
)
from skellam.accounting.gdp import gdp_parameter, kappa
from skellam.accounting.guarantee import (
    Audience,
    Guarantee,
    Unit,
    against_either_server,
    against_public,
    against_server,
)
from skellam.accounting.interop import from_distribution, from_event, to_distribution, to_event
from skellam.accounting.laws import MAX_VARIANCE
from skellam.accounting.mechanisms import (
    Adjacency,
    BandedSkellam,
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    DistributedDiscreteGaussian,
    Gaussian,
    Joint,
    Laplace,
    Mechanism,
    NoiseMechanism,
    RoundedBandedSkellam,
    RoundedSkellam,
    Sampled,
    SampledKnownSize,
    SampledWithoutReplacement,
    Skellam,
    noise_of,
    one_participation,
    replace_one,
)
from skellam.accounting.pld import Pld
from skellam.accounting.rdp import rdp_bound, rdp_bound_scaled, sum_distance
from skellam.accounting.records import from_record, to_record
from skellam.accounting.renyi import delta_exact, rdp_exact

__all__ = [
    "MAX_VARIANCE",
    "ORDERS",
    "PAPER_ORDERS",
    "Adjacency",
    "Audience",
    "BandedSkellam",
    "Binomial",
    "Calibrated",
    "Curve",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "DistributedDiscreteGaussian",
    "Gaussian",
    "GdpCurve",
    "Guarantee",
    "Joint",
    "Laplace",
    "Mechanism",
    "Method",
    "NoiseMechanism",
    "Pld",
    "RdpCurve",
    "Release",
    "RoundedBandedSkellam",
    "RoundedSkellam",
    "Sampled",
    "SampledKnownSize",
    "SampledWithoutReplacement",
    "Skellam",
    "Slack",
    "Unit",
    "against_either_server",
    "against_public",
    "against_server",
    "calibrate",
    "composed_delta",
    "composed_epsilon",
    "curves",
    "delta",
    "delta_exact",
    "epsilon",
    "from_distribution",
    "from_event",
    "from_record",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sigma",
    "gdp_parameter",
    "kappa",
    "noise_multiplier",
    "noise_of",
    "one_participation",
    "rdp_bound",
    "rdp_bound_scaled",
    "rdp_exact",
    "replace_one",
    "sum_distance",
    "to_distribution",
    "to_event",
    "to_record",
]


def __dir__() -> list[str]:
    return sorted(__all__)
