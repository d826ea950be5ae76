"""Planning: one frozen plan, from which codec, noise, accounting and protocol all derive."""

from __future__ import annotations

from skellam.plan.choices import Accountant, Noise, NoiseBy, Rounding, Sampling, Servers, Signal
from skellam.plan.clipping import AdaptiveClip, unclipped_fraction
from skellam.plan.explanation import Explanation
from skellam.plan.guarantees import AnyGuarantees, Guarantees, TwoServerGuarantees
from skellam.plan.plan import CalibratedPlan, Plan
from skellam.plan.signal_model import PredictedError

__all__ = [
    "Accountant",
    "AdaptiveClip",
    "AnyGuarantees",
    "CalibratedPlan",
    "Explanation",
    "Guarantees",
    "Noise",
    "NoiseBy",
    "Plan",
    "PredictedError",
    "Rounding",
    "Sampling",
    "Servers",
    "Signal",
    "TwoServerGuarantees",
    "unclipped_fraction",
]


def __dir__() -> list[str]:
    return sorted(__all__)
