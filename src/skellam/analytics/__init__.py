"""Private statistics over many users' devices."""

from __future__ import annotations

from skellam.analytics.mean_estimation import MeanSquaredError, estimate_mean, mean_error

__all__ = ["MeanSquaredError", "estimate_mean", "mean_error"]
