from fractions import Fraction
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from skellam.cohorts import Tolerance, exact_share
from skellam.errors import DomainError, InfeasibleError, KindError


def test_shares_are_the_decimals_that_were_written():
    """floor(0.29 * 100) is 28 in floats; 92 such pairs of a share and a size up to 100 exist."""
    for hundredths in range(100):
        tolerance = Tolerance(dropout=hundredths / 100)
        for n in range(1, 400):
            assert tolerance.dropouts(n) == hundredths * n // 100
            assert tolerance.survivors(n) == n - hundredths * n // 100


@pytest.mark.parametrize(
    ("given", "share"),
    [(0.07, Fraction(7, 100)), ("1/3", Fraction(1, 3)), (0, 0), (Fraction(1, 7), Fraction(1, 7))],
)
def test_a_share_may_be_a_float_a_text_or_a_fraction(given, share):
    assert exact_share("dropout", given) == share


@pytest.mark.parametrize("bad", [1, 1.0, -0.1, float("nan"), float("inf"), "half", "1/0"])
def test_a_share_outside_of_its_domain_is_refused(bad):
    with pytest.raises(DomainError, match=r"dropout must lie in \[0, 1\)"):
        exact_share("dropout", bad)


@pytest.mark.parametrize("bad", [None, True, [0.1]])
def test_a_share_of_another_type_is_refused(bad):
    with pytest.raises(KindError, match="dropout"):
        exact_share("dropout", bad)


@pytest.mark.parametrize("bits", [10, 30, 60])
@pytest.mark.parametrize("share", ["0.01", "0.1", "0.29", "0.5"])
@pytest.mark.parametrize("n", [2, 19, 100, 777])
def test_colluders_are_the_exact_quantile_of_the_binomial(n, share, bits):
    tolerance = Tolerance(colluding=Fraction(share), tail_bits=bits)
    c = tolerance.colluders(n)
    a, b = Fraction(share).numerator, Fraction(share).denominator
    weights = [comb(n, i) * a**i * (b - a) ** (n - i) for i in range(n + 1)]
    assert sum(weights[c + 1 :]) << bits <= b**n
    assert c == 1 or sum(weights[c:]) << bits > b**n


@pytest.mark.parametrize("population", [100, 1000, 10_000])
@pytest.mark.parametrize("share", ["0.001", "0.05", "0.3"])
@pytest.mark.parametrize("n", [2, 50, 100])
def test_colluders_of_a_cohort_are_drawn_without_replacement(n, share, population):
    tolerance = Tolerance(colluding=share, population=population, tail_bits=30)
    everywhere = max(1, int(Fraction(share) * population))
    c = tolerance.colluders(n)
    tail = stats.hypergeom.sf(c, population, everywhere, n)
    assert tail <= 2.0**-30 * (1 + 1e-6)
    assert c == 1 or stats.hypergeom.sf(c - 1, population, everywhere, n) > 2.0**-30


def test_the_whole_population_holds_exactly_its_colluders():
    assert Tolerance(colluding=0.1, population=200).colluders(200) == 20
    assert Tolerance(colluding=0.001, population=200).colluders(200) == 1
    assert Tolerance(population=200).colluders(200) == 0


def test_many_more_than_the_mean_may_be_in_a_small_cohort():
    """At a tail of 1e-9, dropout .3 and share .1: .457 at n = 100 (the floor had .143)."""
    tolerance = Tolerance(dropout=0.3, colluding=0.1, tail_bits=30)
    assert Fraction(tolerance.colluders(100), tolerance.survivors(100)) == Fraction(32, 70)


shares = st.integers(0, 45).map(lambda k: Fraction(k, 100))


@settings(max_examples=50, deadline=None)
@given(dropout=shares, colluding=shares, population=st.integers(2, 200) | st.none())
def test_every_cohort_from_the_smallest_on_is_feasible(dropout, colluding, population):
    tolerance = Tolerance(dropout, colluding, population, 20)
    try:
        least = tolerance.min_cohort()
    except InfeasibleError:
        if population is not None:
            assert not tolerance.feasible(population)
        else:
            assert not tolerance.feasible(65_535)
        return
    last = 300 if population is None else population
    assert all(tolerance.feasible(n) for n in range(least, last + 1))
    assert least == 2 or not tolerance.feasible(least - 1)


@settings(max_examples=50, deadline=None)
@given(dropout=shares, colluding=shares, population=st.integers(20, 400) | st.none())
def test_no_cohort_has_a_larger_share_of_colluders_than_stated(dropout, colluding, population):
    tolerance = Tolerance(dropout, colluding, population, 20)
    last = 600 if population is None else population
    for least in (10, 20):
        found = tolerance.colluding_share(least)
        exact = max(
            Fraction(tolerance.colluders(n), tolerance.survivors(n)) for n in range(least, last + 1)
        )
        assert found == exact


def test_of_surplus_survivors_the_highest_numbers_give_their_noise_away():
    tolerance = Tolerance(dropout=0.3)
    assert tolerance.surplus((9, 2, 4, 5, 0, 1, 3, 7, 8), 10) == (8, 9)
    assert tolerance.surplus(range(7), 10) == ()


def test_a_population_of_colluders_is_refused_with_words():
    with pytest.raises(InfeasibleError, match="honest majority"):
        Tolerance(dropout=0.3, colluding=0.5).min_cohort()
    with pytest.raises(InfeasibleError, match="no cohort of up to 2"):
        Tolerance(colluding=0.4, population=2).min_cohort()
    with pytest.raises(DomainError, match="population"):
        Tolerance(population=0)
    with pytest.raises(DomainError, match="tail_bits"):
        Tolerance(tail_bits=0)
