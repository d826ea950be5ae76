"""Seeded statistics of the noise: each verdict is fixed, and each states how rarely it is wrong."""

import numpy as np
import pytest
from scipy import stats

from oracles import poisson_difference
from skellam.entropy import SeededEntropy
from skellam.noise import (
    DiscreteGaussianSampler,
    DiscreteLaplaceSampler,
    GaussianSampler,
    LaplaceSampler,
    SkellamSampler,
)

FALSE_ALARM = 1e-7
DRAWS = 1 << 24
LAWS = [SkellamSampler(v) for v in (0.25, 1, 100, 1e4, 1e6)]
OTHERS = [
    DiscreteGaussianSampler(0.7),
    DiscreteGaussianSampler(300),
    DiscreteLaplaceSampler(2),
    DiscreteLaplaceSampler(400),
]


def seeded(context):
    return SeededEntropy(b"statistics of the noise, seeded.", context)


def cells(law, size, smallest=50):
    """Return the inner edges of runs of integers that ``size`` draws hit ``smallest`` times."""
    k = np.arange(-law.bound, law.bound + 1)
    expected = np.cumsum(law.pmf(k) * size)
    marks = np.searchsorted(expected, np.arange(smallest, size - smallest, smallest))
    return np.unique(k[marks])


def counts(values, edges):
    return np.bincount(np.searchsorted(edges, values), minlength=len(edges) + 1)


def expected_counts(law, edges, size):
    k = np.arange(-law.bound, law.bound + 1)
    return np.bincount(
        np.searchsorted(edges, k), weights=law.pmf(k) * size, minlength=len(edges) + 1
    )


def chi_square_p(values, law):
    edges = cells(law, len(values))
    expected = expected_counts(law, edges, len(values))
    expected *= len(values) / expected.sum()
    return stats.chisquare(counts(values, edges), expected).pvalue


@pytest.mark.parametrize("law", [*LAWS, *OTHERS], ids=str)
def test_draws_follow_the_law(law):
    """Chi-square and moments on 2**24 draws; false alarm at most 3e-7 a law, over seeds."""
    x = law.draw(DRAWS, entropy=seeded(f"law/{law}")).values
    assert chi_square_p(x, law) > FALSE_ALARM
    k = np.arange(-law.bound, law.bound + 1).astype(float)
    fourth = float(np.sum(law.pmf(k.astype(int)) * k**4))
    squares = x.astype(float) ** 2
    z = stats.norm.isf(FALSE_ALARM / 2)
    assert abs(x.mean(dtype=float)) < z * np.sqrt(law.variance / DRAWS)
    assert abs(squares.mean() - law.variance) < z * np.sqrt((fourth - law.variance**2) / DRAWS)


@pytest.mark.parametrize(("variance", "shares"), [(1, 16), (100, 100), (1e6, 10)])
def test_shares_add_up_to_the_law_of_the_whole(variance, shares):
    """Chi-square on 2**18 sums of n shares of variance v/n; false alarm 1e-7 over seeds."""
    share = SkellamSampler(variance / shares)
    entropy = seeded(f"shares/{variance}/{shares}")
    total = sum(share.draw(1 << 18, entropy=entropy).values.astype(np.int64) for _ in range(shares))
    assert chi_square_p(total, SkellamSampler(variance)) > FALSE_ALARM


@pytest.mark.parametrize("variance", [0.25, 3, 1e4])
def test_draws_are_like_the_difference_of_two_poissons(variance):
    """Two-sample chi-square on 2**20 draws each; false alarm 1e-7 over seeds."""
    law = SkellamSampler(variance)
    ours = law.draw(1 << 20, entropy=seeded(f"poisson/{variance}")).values
    theirs = poisson_difference.draw(variance, 1 << 20, seed=1)
    edges = cells(law, 1 << 20)
    table = np.array([counts(ours, edges), counts(theirs, edges)])
    assert stats.chi2_contingency(table).pvalue > FALSE_ALARM


def test_neighbouring_draws_are_uncorrelated():
    """Correlation at five lags of 2**22 draws; false alarm at most 5e-7 over seeds."""
    x = SkellamSampler(100).draw(1 << 22, entropy=seeded("lags")).values.astype(float)
    z = stats.norm.isf(FALSE_ALARM / 2)
    for lag in (1, 2, 3, 1 << 16, 1 << 17):
        products = x[lag:] * x[:-lag]
        assert abs(products.mean()) < z * 100 / np.sqrt(len(products))


@pytest.mark.parametrize(
    ("law", "ideal"),
    [(GaussianSampler(2), stats.norm(scale=2)), (LaplaceSampler(3), stats.laplace(scale=3))],
    ids=["Gaussian", "Laplace"],
)
def test_continuous_draws_follow_the_law(law, ideal):
    """Chi-square on 2**20 draws in 1024 cells of equal mass; false alarm 1e-7 over seeds."""
    x = law.draw(1 << 20, entropy=seeded(f"law/{law}")).values
    found = np.bincount((ideal.cdf(x) * 1024).astype(int), minlength=1024)
    assert stats.chisquare(found).pvalue > FALSE_ALARM
    assert x.var() == pytest.approx(law.variance, rel=0.02)


@pytest.mark.parametrize("value", [0.3, -0.3, 5.0625, -5.0625])
def test_rounding_is_unbiased(value):
    """Binomial count of roundings away on 2**22 coins; false alarm 1e-7 over seeds."""
    from skellam import _kernels

    size = 1 << 22
    coins = np.empty(size, dtype=np.uint32)
    seeded(f"coins/{value}").fill(coins)
    out = np.empty(size, dtype=np.int32)
    _kernels.round_stochastic(np.full(size, value, dtype=np.float32), coins, out)
    away = int(np.count_nonzero(np.abs(out) > abs(value)))
    fraction = abs(float(np.float32(value))) % 1
    assert stats.binomtest(away, size, fraction).pvalue > FALSE_ALARM
