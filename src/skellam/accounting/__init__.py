"""What a release costs: mechanisms as data, curves as values, all bounds from above."""

from __future__ import annotations

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
    "Adjacency",
    "Binomial",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "DistributedDiscreteGaussian",
    "Gaussian",
    "Laplace",
    "Mechanism",
    "Noise",
    "RoundedSkellam",
    "Sampled",
    "SampledWithoutReplacement",
    "Skellam",
    "from_record",
    "noise_of",
    "replace_one",
    "to_record",
]
