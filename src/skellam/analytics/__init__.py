"""Private statistics over many users' devices."""

from __future__ import annotations

from skellam.analytics.distributions import Cdf, Quantile, cdf, quantiles
from skellam.analytics.histograms import (
    SketchedCounts,
    SketchEstimate,
    frequencies,
    hashed_frequencies,
    histogram,
)
from skellam.analytics.query import (
    Band,
    Bounds,
    Contribution,
    Counts,
    Estimate,
    Interval,
    Outside,
    PlanOptions,
    Query,
    Statistic,
    run,
)
from skellam.analytics.totals import (
    MeanEstimate,
    MeanSquaredError,
    count,
    estimate_mean,
    mean,
    mean_error,
    sum,  # noqa: A004
)

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
