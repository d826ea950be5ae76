"""Algorithm 1 as a codec: from a client's floats to residues modulo ``2**bits``, and back.

The codec states its own sensitivity and knows nothing of accounting; `skellam.plan` joins them.
"""

from __future__ import annotations

from skellam.codec.arithmetic import WrapEstimate
from skellam.codec.baseline import GaussianBaseline
from skellam.codec.codec import Codec
from skellam.codec.spec import (
    MAX_INTEGER,
    MAX_RADIUS,
    CentralDiscreteGaussian,
    CentralSkellam,
    CodecSpec,
    Conditional,
    DiscreteGaussianShares,
    Integer,
    IntegerSensitivity,
    NoiseSpec,
    NoNoise,
    RealSensitivity,
    RoundingSpec,
    Sensitivity,
    SkellamShares,
    Unbiased,
    padded_length,
    paper_scale,
    public_seed,
    rounded_norm_bound,
    sensitivity,
)
from skellam.vectors import Layout, LeftOut, Slot, Tensors, flatten

__all__ = [
    "MAX_INTEGER",
    "MAX_RADIUS",
    "CentralDiscreteGaussian",
    "CentralSkellam",
    "Codec",
    "CodecSpec",
    "Conditional",
    "DiscreteGaussianShares",
    "GaussianBaseline",
    "Integer",
    "IntegerSensitivity",
    "Layout",
    "LeftOut",
    "NoNoise",
    "NoiseSpec",
    "RealSensitivity",
    "RoundingSpec",
    "Sensitivity",
    "SkellamShares",
    "Slot",
    "Tensors",
    "Unbiased",
    "WrapEstimate",
    "flatten",
    "padded_length",
    "paper_scale",
    "public_seed",
    "rounded_norm_bound",
    "sensitivity",
]


def __dir__() -> list[str]:
    return sorted(__all__)
