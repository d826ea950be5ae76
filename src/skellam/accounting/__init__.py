"""What a release costs: mechanisms as data, curves as values, all bounds from above."""

from __future__ import annotations

from skellam.accounting.curves import ORDERS, PAPER_ORDERS, Curve, GdpCurve, RdpCurve
from skellam.accounting.guarantee import Audience, Guarantee, Unit
from skellam.accounting.mechanisms import (
    Adjacency,
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    DistributedDiscreteGaussian,
    Gaussian,
    Laplace,
    Mechanism,
    Noise,
    RoundedSkellam,
    Sampled,
    SampledWithoutReplacement,
    Skellam,
    noise_of,
    replace_one,
)
from skellam.accounting.records import from_record, to_record

__all__ = [
    "ORDERS",
    "PAPER_ORDERS",
    "Adjacency",
    "Audience",
    "Binomial",
    "Curve",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "DistributedDiscreteGaussian",
    "Gaussian",
    "GdpCurve",
    "Guarantee",
    "Laplace",
    "Mechanism",
    "Noise",
    "RdpCurve",
    "RoundedSkellam",
    "Sampled",
    "SampledWithoutReplacement",
    "Skellam",
    "Unit",
    "from_record",
    "noise_of",
    "replace_one",
    "to_record",
]
