import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skellam.report import markup


@given(st.floats(1e-30, 1e30), st.integers(1, 6))
def test_a_bound_is_never_printed_smaller_than_it_is(x, digits):
    printed = Decimal(markup.bound(x, digits))
    assert Decimal(repr(x)) <= printed <= Decimal(x) * (1 + Decimal(10) ** (1 - digits))


@pytest.mark.parametrize(
    ("x", "text"), [(3.9993, "4.00"), (0.0005, "0.0005"), (math.inf, "∞"), (None, "–")]
)
def test_bounds_read_well(x, text):
    assert markup.bound(x) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (16_384, "16.4 kB"), (2.5e15, "2.5e+03 TB")]
)
def test_sizes_have_three_digits_and_a_unit(count, text):
    assert markup.size(count) == text
