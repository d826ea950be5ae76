import itertools
import math

import mpmath
import pytest
from experiments.advanced_composition import (
    composed_laplace,
    direct_skellam,
    direct_skellam_delta,
    direct_skellam_epsilon,
    dwork_rothblum_vadhan,
    kairouz_oh_viswanath,
)
from hypothesis import given
from hypothesis import strategies as st

from skellam.accounting import DiscreteLaplace, Skellam, epsilon
from skellam.accounting.losslaw import scalar_pair
from skellam.errors import DomainError


def hockey_stick(pair, epsilon):
    shifted, plain, _ = pair
    return math.fsum(
        max(0.0, p - math.exp(epsilon) * q) for p, q in zip(shifted, plain, strict=True)
    )


@given(st.floats(0.5, 400), st.integers(1, 4), st.floats(0.05, 6))
def test_the_direct_bound_lies_above_the_exact_delta(variance, shift, at):
    exact = hockey_stick(scalar_pair(Skellam(variance, shift)), at)
    assert exact <= direct_skellam_delta(variance, shift, at) + 1e-15


@given(st.floats(1, 1e4), st.integers(1, 4), st.floats(1e-12, 1e-2))
def test_the_direct_epsilon_meets_its_delta(variance, shift, delta):
    found = direct_skellam_epsilon(variance, shift, delta)
    assert direct_skellam_delta(variance, shift, found) <= delta


@pytest.mark.parametrize("at", [0.1, 0.7])
@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_optimal_composition_is_that_of_randomised_responses(at, rounds):
    p = 1 / (1 + math.exp(-at))
    found = kairouz_oh_viswanath(at, 0.0, rounds=rounds, total=0.01)
    total = 0.0
    for answers in itertools.product((0, 1), repeat=rounds):
        ones = sum(answers)
        likely = p ** (rounds - ones) * (1 - p) ** ones
        other = p**ones * (1 - p) ** (rounds - ones)
        total += max(0.0, likely - math.exp(found) * other)
    assert total == pytest.approx(0.01, rel=1e-6) or (found == 0 and total <= 0.01)


@given(st.floats(0.001, 2), st.integers(1, 2000), st.floats(1e-9, 0.1))
def test_optimal_composition_never_costs_more_than_the_older_rule_or_addition(at, rounds, total):
    optimal = kairouz_oh_viswanath(at, 0.0, rounds=rounds, total=total)
    older = dwork_rothblum_vadhan(at, 0.0, rounds=rounds, total=total)
    assert optimal <= older * (1 + 1e-9) <= rounds * at * (1 + 2e-9)


def test_rounds_that_use_up_delta_leave_no_finite_epsilon():
    assert kairouz_oh_viswanath(0.1, 1e-3, rounds=100, total=1e-2) == math.inf
    assert dwork_rothblum_vadhan(0.1, 1e-3, rounds=100, total=1e-2) == math.inf


def test_the_papers_order_of_methods_holds_in_the_scalar_case():
    """Figure 2 of the paper: loss distributions, then Rényi, then direct with composition."""
    release = Skellam(variance=2500, l2=1)
    pld, rdp = (epsilon(release, rounds=100, delta=1e-6, method=m) for m in ("pld", "paper"))
    optimal, older = direct_skellam(2500, 1, rounds=100, delta=1e-6)
    assert pld < rdp < optimal < older


def test_discrete_laplace_composes_no_better_than_its_loss_distribution():
    scale = math.sqrt(1250)
    pld = epsilon(DiscreteLaplace(scale, 1), rounds=100, delta=1e-6, method="pld")
    optimal, older = composed_laplace(scale, 1, rounds=100, delta=1e-6)
    assert pld <= optimal * (1 + 1e-4) < older


def test_the_bessel_ratio_behind_the_direct_bound_holds():
    """I_(k-1)/I_k(mu) <= exp(asinh(k/mu)) for k >= 1, at thirty digits."""
    with mpmath.workdps(30):
        for mu, k in itertools.product((0.01, 1, 30, 1e4), (1, 2, 10, 1000)):
            ratio = mpmath.besseli(k - 1, mu) / mpmath.besseli(k, mu)
            assert ratio <= mpmath.exp(mpmath.asinh(mpmath.mpf(k) / mu))


@pytest.mark.parametrize("bad", [math.nan, 0.0, -1.0])
def test_bad_arguments_raise(bad):
    for answer in (
        lambda: direct_skellam_delta(bad, 1, 1.0),
        lambda: direct_skellam_delta(1.0, 1, bad),
        lambda: direct_skellam_epsilon(1.0, 0, 1e-5),
        lambda: direct_skellam(1.0, 1, rounds=1, delta=bad),
        lambda: kairouz_oh_viswanath(bad, 0.0, rounds=1, total=0.1),
        lambda: kairouz_oh_viswanath(1.0, math.nan, rounds=1, total=0.1),
        lambda: dwork_rothblum_vadhan(1.0, 0.0, rounds=0, total=0.1),
        lambda: dwork_rothblum_vadhan(1.0, 0.0, rounds=1, total=bad),
        lambda: composed_laplace(bad, 1.0, rounds=1, delta=0.1),
    ):
        with pytest.raises(DomainError):
            answer()
