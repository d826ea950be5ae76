"""The joint between codec and accounting: one frozen plan, many readers."""

from __future__ import annotations

from skellam.plan.choices import Accountant, Noise, Rounding, Sampling
from skellam.plan.clipping import AdaptiveClip, share_within
from skellam.plan.cohorts import Tolerance
from skellam.plan.load import PredictedError
from skellam.plan.plan import Plan
from skellam.plan.solution import Solution

__all__ = [
    "Accountant",
    "AdaptiveClip",
    "Noise",
    "Plan",
    "PredictedError",
    "Rounding",
    "Sampling",
    "Solution",
    "Tolerance",
    "share_within",
]
