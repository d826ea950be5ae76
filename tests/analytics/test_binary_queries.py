"""The paper's comparison: binary queries of 10,000 users with a central deviation of 50.

Origin of the first two columns: Agarwal, Kairouz, Liu 2021, the discussion of small local noise;
order 2, sensitivity 1, dimension 1.
"""

import numpy as np
import pytest

from skellam import accounting, analytics
from skellam.accounting.laws import discrete_gaussian_sum_law, skellam_law
from skellam.accounting.rdp import distributed_discrete_gaussian_rdp

N = 10_000


def order_two(law):
    whole = np.concatenate((law.log_pmf[:0:-1], law.log_pmf))
    logs = 2 * whole[:-1] - whole[1:]
    return logs.max() + np.log(np.exp(logs - logs.max()).sum())


def test_order_two_by_the_papers_bounds():
    assert accounting.rdp_bound(2500, 1, 1, 2) == pytest.approx(4.0036e-4, rel=1e-9)
    bound = distributed_discrete_gaussian_rdp(
        sigma_local=0.5, shares=N, l1=1, l2=1, dimension=1, order=2
    )
    assert bound == pytest.approx(723.34, rel=1e-4)


def test_order_two_by_exact_convolution():
    assert order_two(skellam_law(2500.0)) == pytest.approx(4e-4, rel=1e-6)
    assert order_two(discrete_gaussian_sum_law(0.5, N)) == pytest.approx(4.6509e-4, rel=1e-4)


def test_epsilon_is_that_of_gaussian_noise_or_less():
    gaussian, skellam, shares = (
        accounting.epsilon(noise, delta=1e-6)
        for noise in (
            accounting.Gaussian(50.0, 1.0),
            accounting.Skellam(2500.0, 1.0, 1.0),
            accounting.DistributedDiscreteGaussian(0.5, N, 1.0, 1.0),
        )
    )
    assert skellam <= gaussian
    assert shares == pytest.approx(0.0769, rel=1e-2)


def test_a_count_needs_no_more_noise_than_a_trusted_server_would_add():
    for epsilon in (0.1, 1.0, 5.0):
        query = analytics.count(clients=N, epsilon=epsilon, delta=1e-6)
        assert query.plan.variance <= accounting.gaussian_sigma(epsilon, 1e-6, 1.0) ** 2
