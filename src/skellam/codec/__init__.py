"""Algorithm 1 as a codec: from a client's floats to residues modulo ``2**bits``, and back.

The codec states its own sensitivity and knows nothing of accounting; `skellam.plan` joins them.
"""

from __future__ import annotations

from skellam.codec.baseline import GaussianBaseline
from skellam.codec.bounds import (
    IntegerSensitivity,
    RealSensitivity,
    Sensitivity,
    paper_scale,
    rounded_norm_bound,
    sensitivity,
)
from skellam.codec.codec import Codec
from skellam.codec.layout import Layout, LeftOut, Slot
from skellam.codec.rotation import padded_length
from skellam.codec.seed import public_seed
from skellam.codec.spec import (
    CentralDiscreteGaussian,
    CentralSkellam,
    CodecSpec,
    Conditional,
    DiscreteGaussianShares,
    Noise,
    NoNoise,
    Rounding,
    SkellamShares,
    Unbiased,
    Whole,
)
from skellam.codec.wrap import WrapEstimate

__all__ = [
    "CentralDiscreteGaussian",
    "CentralSkellam",
    "Codec",
    "CodecSpec",
    "Conditional",
    "DiscreteGaussianShares",
    "GaussianBaseline",
    "IntegerSensitivity",
    "Layout",
    "LeftOut",
    "NoNoise",
    "Noise",
    "RealSensitivity",
    "Rounding",
    "Sensitivity",
    "SkellamShares",
    "Slot",
    "Unbiased",
    "Whole",
    "WrapEstimate",
    "padded_length",
    "paper_scale",
    "public_seed",
    "rounded_norm_bound",
    "sensitivity",
]
