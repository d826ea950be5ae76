from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skellam.errors import DomainError
from skellam.secagg import seeds


@given(n=st.integers(2, 2000), data=st.data())
def test_the_variance_left_is_never_below_the_plan_and_at_most_one_per_cent_above(n, data):
    tolerated = data.draw(st.integers(0, (n - 1) // 2))
    dropped = data.draw(st.integers(0, tolerated))
    sizes = seeds.per_cents(n, tolerated)
    removed = seeds.removable(n, tolerated, dropped)
    kept = sum(size for j, size in enumerate(sizes) if j not in removed)
    left = Fraction(n - dropped, n) * (1 + Fraction(kept, 100))
    assert 1 <= left <= Fraction(101, 100)


def test_six_components_serve_thirty_per_cent():
    assert seeds.per_cents(100, 30) == (1, 2, 4, 8, 16, 32)


def test_without_dropouts_every_component_is_removed():
    assert seeds.removable(100, 30, 0) == (0, 1, 2, 3, 4, 5)


def test_without_tolerance_there_is_nothing_to_remove():
    assert seeds.per_cents(100, 0) == ()
    assert seeds.removable(100, 0, 0) == ()


def test_more_dropouts_than_tolerated_open_nothing():
    with pytest.raises(DomainError, match="dropped"):
        seeds.removable(100, 30, 31)
