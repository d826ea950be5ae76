"""Private statistics over many users' devices."""

from __future__ import annotations

from skellam.analytics.contribution import Contribution, Outside
from skellam.analytics.distributions import Cdf, Quantile, cdf, quantiles
from skellam.analytics.estimates import Band, Counts, Estimate, Interval
from skellam.analytics.histograms import frequencies, histogram
from skellam.analytics.mean_estimation import MeanSquaredError, estimate_mean, mean_error
from skellam.analytics.query import Bounds, PlanOptions, Query, Statistic
from skellam.analytics.running import run
from skellam.analytics.sketches import SketchedCounts, SketchEstimate, hashed_frequencies
from skellam.analytics.totals import MeanEstimate, count, mean, sum  # noqa: A004

__all__ = [
    "Band",
    "Bounds",
    "Cdf",
    "Contribution",
    "Counts",
    "Estimate",
    "Interval",
    "MeanEstimate",
    "MeanSquaredError",
    "Outside",
    "PlanOptions",
    "Quantile",
    "Query",
    "SketchEstimate",
    "SketchedCounts",
    "Statistic",
    "cdf",
    "count",
    "estimate_mean",
    "frequencies",
    "hashed_frequencies",
    "histogram",
    "mean",
    "mean_error",
    "quantiles",
    "run",
    "sum",
]


def __dir__() -> list[str]:
    return sorted(__all__)
