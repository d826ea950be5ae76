"""What a release costs: mechanisms as data, curves as values, all bounds from above."""

from __future__ import annotations

from skellam.accounting.audiences import Audiences, against_public, against_server, audiences
from skellam.accounting.calibration import Calibrated, calibrate, noise_multiplier
from skellam.accounting.conversion import gaussian_delta, gaussian_epsilon, gaussian_sigma
from skellam.accounting.curves import ORDERS, PAPER_ORDERS, Curve, GdpCurve, RdpCurve
from skellam.accounting.gdp import gdp_parameter
from skellam.accounting.guarantee import Audience, Guarantee, Unit
from skellam.accounting.interop import from_distribution, from_event, to_distribution, to_event
from skellam.accounting.mechanisms import (
    Adjacency,
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    DistributedDiscreteGaussian,
    Gaussian,
    Joint,
    Laplace,
    Mechanism,
    Noise,
    RoundedSkellam,
    Sampled,
    SampledWithoutReplacement,
    Skellam,
    noise_of,
    poisson_pretence,
    replace_one,
)
from skellam.accounting.paper import rdp_bound, rdp_bound_scaled
from skellam.accounting.pld import Pld
from skellam.accounting.profile import delta_exact
from skellam.accounting.records import from_record, to_record
from skellam.accounting.renyi import rdp_exact
from skellam.accounting.rounding import kappa
from skellam.accounting.routes import (
    Method,
    Release,
    composed_delta,
    composed_epsilon,
    curves,
    delta,
    epsilon,
)

__all__ = [
    "ORDERS",
    "PAPER_ORDERS",
    "Adjacency",
    "Audience",
    "Audiences",
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
    "Noise",
    "Pld",
    "RdpCurve",
    "Release",
    "RoundedSkellam",
    "Sampled",
    "SampledWithoutReplacement",
    "Skellam",
    "Unit",
    "against_public",
    "against_server",
    "audiences",
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
    "poisson_pretence",
    "rdp_bound",
    "rdp_bound_scaled",
    "rdp_exact",
    "replace_one",
    "to_distribution",
    "to_event",
    "to_record",
]
