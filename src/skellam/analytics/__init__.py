"""Private statistics over many users' devices."""

from __future__ import annotations

from skellam.analytics.contribution import Contribution, Outside
from skellam.analytics.estimates import Band, Counts, Estimate, Interval
from skellam.analytics.histograms import frequencies, histogram
from skellam.analytics.mean_estimation import MeanSquaredError, estimate_mean, mean_error
from skellam.analytics.query import Bounds, Query, Statistic, Terms
from skellam.analytics.running import run
from skellam.analytics.totals import count, sum  # noqa: A004

__all__ = [
    "Band",
    "Bounds",
    "Contribution",
    "Counts",
    "Estimate",
    "Interval",
    "MeanSquaredError",
    "Outside",
    "Query",
    "Statistic",
    "Terms",
    "count",
    "estimate_mean",
    "frequencies",
    "histogram",
    "mean_error",
    "run",
    "sum",
]
