import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skellam.accounting import Adjacency, Audience, Guarantee, Unit
from skellam.accounting.guarantee import rounded_up
from skellam.errors import DomainError


def guarantee(epsilon=9.70012, delta=1 / 3400):
    return Guarantee(
        epsilon, delta, Unit.USER, Adjacency.ADD_REMOVE, Audience.PUBLIC, "skellam (best)"
    )


def test_a_guarantee_prints_all_that_it_depends_on():
    head, *assumptions = str(guarantee()).splitlines()
    assert head.startswith("(9.701, 0.0002942)-DP for one user (add-remove) against the public")
    assert len(assumptions) == 3


@given(st.floats(1e-6, 1e6), st.floats(1e-12, 0.5))
def test_printing_never_understates(epsilon, delta):
    numbers = str(guarantee(epsilon, delta)).split(")")[0].strip("(").split(", ")
    assert float(numbers[0]) >= epsilon
    assert float(numbers[1]) >= delta


def test_a_guarantee_goes_into_json():
    fields = json.loads(json.dumps(guarantee().as_dict()))
    assert fields["epsilon"] == 9.70012
    assert fields["audience"] == "public"
    assert len(fields["assumptions"]) == 3


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(math.nan, 0.1), (-1, 0.1), (1, 0), (1, 1), (1, math.nan)]
)
def test_a_guarantee_that_is_none_raises(epsilon, delta):
    with pytest.raises(DomainError):
        guarantee(epsilon, delta)


@pytest.mark.parametrize(
    ("value", "printed"),
    [(0.0005, "0.0005"), (12.0, "12"), (3.99951, "4"), (1.00001, "1.001"), (math.inf, "inf")],
)
def test_numbers_are_printed_rounded_up_from_the_digits_that_were_given(value, printed):
    assert rounded_up(value) == printed
