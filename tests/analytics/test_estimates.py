"""Intervals against the exact law, and over whole runs."""

import numpy as np
import pytest
from scipy.stats import binom, skellam

import skellam as sk
from skellam import analytics
from skellam.analytics.query import Counts, Estimate, half_width
from skellam.errors import DomainError
from skellam.noise import SkellamSampler


@pytest.mark.parametrize("variance", [0.01, 0.5, 3.0, 14.2, 1e4])
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
def test_the_half_width_is_the_least_that_covers(variance, confidence):
    law = skellam(variance / 2, variance / 2)
    h = half_width(variance, confidence)
    assert law.cdf(h) - law.cdf(-h - 1) >= confidence - 1e-12
    assert h == 0 or law.cdf(h - 1) - law.cdf(-h) < confidence


def test_without_noise_there_is_no_width():
    assert half_width(0.0, 0.95) == 0


def test_intervals_cover_at_their_stated_rate_over_1000_runs():
    """Seeded. The covered runs are binomial at the law's own rate; both ends are 1e-6 quantiles."""
    query = analytics.count(clients=50, epsilon=1.0, delta=1e-6)
    users = [["row"]] * 30 + [[]] * 20
    entropy = sk.SeededEntropy(bytes(32), "coverage")
    covered, values = 0, []
    for _ in range(1000):
        answer = analytics.run(query, users, entropy=entropy)
        low, high = answer.interval(0.9)
        covered += low <= 30 <= high
        values.append(answer.value)
    law = skellam(answer.variance / 2, answer.variance / 2)
    half = half_width(answer.variance, 0.9)
    rate = law.cdf(half) - law.cdf(-half - 1)
    assert rate >= 0.9
    assert binom.ppf(5e-7, 1000, rate) <= covered <= binom.ppf(1 - 5e-7, 1000, rate)
    # Unbiased: five standard errors, a chance of 6e-7.
    assert abs(np.mean(values) - 30) <= 5 * answer.deviation / np.sqrt(1000)


def test_simultaneous_intervals_cover_all_buckets_at_once():
    """Seeded. A Bonferroni band of 0.9 misses at most 100 of 1000 times; 143 has a chance of 1e-5,
    and the band's own rate is below a tenth: 160 has one below 1e-8.
    """
    entropy, variance = sk.SeededEntropy(bytes(32), "band"), 14.2
    labels = tuple(range(50))
    misses = each = 0
    for _ in range(1000):
        noise = SkellamSampler(variance).draw(50, entropy=entropy).values
        counts = Counts(labels, noise.astype(float), variance)
        low, high = counts.interval(0.9, simultaneous=True)
        misses += not np.all((low <= 0) & (high >= 0))
        low, high = counts.interval(0.9)
        each += np.sum((low <= 0) & (high >= 0))
    assert misses <= 160
    assert each / 50_000 >= 0.9


def test_post_processing_is_an_option():
    counts = Counts(("a", "b"), np.array([-3.0, 5.0]), 4.0)
    cut = counts.non_negative()
    assert cut.values.tolist() == [0, 5]
    assert (cut.interval().low >= 0).all()
    assert counts.values.tolist() == [-3, 5]
    assert Estimate(-2.0, 4.0).non_negative().interval() == (0, 2 - 2 + half_width(4.0, 0.95))


def test_a_sum_over_a_public_number_is_a_mean():
    mean = Estimate(50.0, 4.0, unit=0.5).per(10)
    assert mean.value == 5
    assert mean.deviation == pytest.approx(0.1)


@pytest.mark.parametrize("confidence", [0.0, 1.0, np.nan, 2.0])
def test_a_confidence_is_a_probability(confidence):
    with pytest.raises(DomainError, match="confidence"):
        Estimate(0.0, 1.0).interval(confidence)
