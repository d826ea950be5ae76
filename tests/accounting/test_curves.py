import math
from dataclasses import replace
from functools import reduce
from operator import add

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skellam.accounting import GdpCurve, RdpCurve
from skellam.accounting.curves import Slack
from skellam.accounting.pld import gaussian_pld
from skellam.errors import DomainError

SLACK = Slack(rare=1e-13, distance=1e-16, stretch=1e-9)
CURVES = {
    "gdp": GdpCurve(0.3, SLACK),
    "rdp": GdpCurve(0.3, SLACK).rdp(),
    "pld": gaussian_pld(1 / 0.3, slack=SLACK),
}
each_curve = pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)


@each_curve
@pytest.mark.parametrize("n", [1, 2, 7, 30])
def test_composing_n_times_is_the_same_as_times_n(curve, n):
    added, multiplied = reduce(add, [curve] * n), curve * n
    for part in ("rare", "distance", "stretch"):
        summed, scaled = getattr(added.slack, part), getattr(multiplied.slack, part)
        assert summed == pytest.approx(scaled, rel=1e-14)
    for delta in (1e-3, 1e-6):
        assert added.epsilon(delta) == pytest.approx(multiplied.epsilon(delta), rel=1e-6)


@each_curve
def test_composition_does_not_depend_on_the_order(curve):
    one, other = curve * 3 + curve, curve + curve * 3
    assert one.epsilon(1e-5) == pytest.approx(other.epsilon(1e-5), rel=1e-9)


@each_curve
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
def test_delta_at_epsilon_is_at_most_the_delta_asked_for(curve, delta):
    epsilon = (curve * 10).epsilon(delta)
    assert (curve * 10).delta(epsilon) <= delta * (1 + 1e-9)


@each_curve
def test_slack_that_takes_all_of_delta_makes_epsilon_infinite(curve):
    assert (replace(curve, slack=Slack(distance=1e-7)) * 10).epsilon(1e-6) == math.inf


@each_curve
@pytest.mark.parametrize("rounds", [0, -1, 1.5, True])
def test_rounds_that_are_no_positive_whole_number_raise(curve, rounds):
    with pytest.raises(DomainError):
        curve * rounds


@each_curve
@pytest.mark.parametrize("bad", [math.nan, 0.0, 1.0, -1e-5])
def test_epsilon_of_a_delta_outside_the_unit_interval_raises(curve, bad):
    with pytest.raises(DomainError):
        curve.epsilon(bad)


@given(st.floats(0.01, 20), st.floats(1e-9, 0.1))
def test_the_three_kinds_agree_in_order_for_one_gaussian(mu, delta):
    gdp = GdpCurve(mu)
    pld = gaussian_pld(1 / mu)
    assert gdp.epsilon(delta) <= gdp.rdp().epsilon(delta)
    assert gdp.epsilon(delta) * (1 - 1e-9) <= pld.epsilon(delta)
    assert pld.epsilon(delta) <= gdp.epsilon(delta) * 1.001 + 1e-4


def test_zero_concentrated_privacy_goes_both_ways():
    curve = GdpCurve(0.5)
    assert curve.zcdp() == pytest.approx(0.125)
    assert RdpCurve.from_zcdp(curve.zcdp()) == curve.rdp()


@pytest.mark.parametrize(
    "make",
    [
        lambda: GdpCurve(math.nan),
        lambda: GdpCurve(0.0),
        lambda: RdpCurve((), ()),
        lambda: RdpCurve((2.0,), (1.0, 2.0)),
        lambda: RdpCurve((1.0,), (1.0,)),
        lambda: RdpCurve((2.0,), (math.nan,)),
        lambda: RdpCurve((2.0,), (-1.0,)),
        lambda: RdpCurve.from_zcdp(math.nan),
        lambda: RdpCurve((2.0,), (1.0,)) + RdpCurve((3.0,), (1.0,)),
        lambda: RdpCurve((2.0,), (1.0,)).minimum(RdpCurve((3.0,), (1.0,))),
    ],
)
def test_a_curve_that_is_none_raises(make):
    with pytest.raises(DomainError):
        make()
