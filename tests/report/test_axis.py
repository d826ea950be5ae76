import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skellam.report.chart import linear, logarithmic

POSITIVE = st.floats(1e-9, 1e9)


def is_round(x):
    return f"{x:.6e}"[:8] in {"1.000000", "2.000000", "5.000000"}


@given(st.lists(POSITIVE, min_size=1))
def test_a_linear_axis_holds_every_value_between_zero_and_a_tick(values):
    axis = linear(values)
    assert axis.ticks[0] == axis.low == 0
    assert axis.ticks[-1] == axis.high
    assert all(0 <= axis.at(x) <= 1 + 1e-9 for x in values)


@given(st.lists(POSITIVE, min_size=1))
def test_linear_ticks_are_few_equally_far_apart_and_round(values):
    ticks = linear(values).ticks
    steps = {f"{b - a:.4e}" for a, b in pairwise(ticks)}
    assert 2 <= len(ticks) <= 7
    assert len(steps) == 1
    assert is_round(ticks[1])


@given(st.lists(POSITIVE, min_size=1))
def test_a_logarithmic_axis_holds_every_value_between_round_ends(values):
    axis = logarithmic(values)
    assert is_round(axis.low)
    assert is_round(axis.high)
    assert all(-1e-9 <= axis.at(x) <= 1 + 1e-9 for x in values)
    assert axis.at(math.sqrt(axis.low * axis.high)) == pytest.approx(0.5)


@pytest.mark.parametrize("axis", [linear, logarithmic])
@pytest.mark.parametrize("values", [[], [0.0]])
def test_an_axis_of_nothing_is_an_axis(axis, values):
    made = axis(values)
    assert made.low < made.high
