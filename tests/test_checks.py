import math
from pathlib import Path

import numpy as np
import pytest

from skellam import _checks
from skellam.errors import DomainError, KindError, ShapeError

NOT_POSITIVE = [0, -1, -0.0, math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("value", NOT_POSITIVE)
def test_only_positive_finite_numbers_are_positive(value):
    with pytest.raises(DomainError, match="sigma must be positive"):
        _checks.positive("sigma", value)


@pytest.mark.parametrize("value", [-1e-300, math.nan, math.inf])
def test_only_finite_numbers_from_zero_on_are_not_negative(value):
    with pytest.raises(DomainError, match="slack must be finite"):
        _checks.non_negative("slack", value)


@pytest.mark.parametrize("value", [0, 1, math.nan, 2, -0.5])
def test_the_open_unit_interval_excludes_its_ends(value):
    with pytest.raises(DomainError, match="delta must lie strictly between"):
        _checks.open_unit("delta", value)


@pytest.mark.parametrize("value", [0, 1.0000001, math.nan, -1])
def test_a_rate_is_above_zero_and_at_most_one(value):
    with pytest.raises(DomainError, match="rate must lie"):
        _checks.rate("rate", value)


@pytest.mark.parametrize("value", [math.nan, 0.9, 3.1])
def test_an_interval_excludes_what_lies_outside_and_gives_the_hint(value):
    with pytest.raises(DomainError, match=r"x must lie in \[1, 3\].*use less"):
        _checks.between("x", value, 1, 3, hint="use less")


@pytest.mark.parametrize("value", ["1", b"1", None, [1.0], 10**400])
def test_what_is_no_number_is_a_kind_error(value):
    with pytest.raises(KindError, match="x must be a number"):
        _checks.positive("x", value)


@pytest.mark.parametrize("value", [True, 1.0, "1", None, np.float64(3)])
def test_what_is_no_integer_is_a_kind_error(value):
    with pytest.raises(KindError, match="n must be an integer"):
        _checks.integer("n", value, 0)


@pytest.mark.parametrize(("value", "low", "high"), [(1, 2, None), (5, 0, 4), (-1, 0, 4)])
def test_integers_out_of_range_are_domain_errors(value, low, high):
    with pytest.raises(DomainError, match="n must be an integer"):
        _checks.integer("n", value, low, high)


def test_bytes_must_have_the_right_length_and_type():
    assert _checks.octets("seed", bytearray(32), 32) == bytes(32)
    with pytest.raises(ShapeError, match="seed must have 32 bytes, got 31"):
        _checks.octets("seed", bytes(31), 32)
    with pytest.raises(KindError, match="seed must be bytes"):
        _checks.octets("seed", "x" * 32, 32)


def test_good_values_come_back_as_plain_numbers():
    assert _checks.integer("n", np.int64(3), 0, 3) == 3
    assert isinstance(_checks.integer("n", np.int64(3), 0), int)
    assert _checks.positive("x", np.float32(0.5)) == 0.5
    assert _checks.rate("q", 1) == 1.0
    assert _checks.non_negative("x", 0) == 0.0


def test_fields_of_frozen_values_are_set_in_one_place():
    sources = Path(_checks.__file__).parent
    writers = [path for path in sources.rglob("*.py") if "object.__setattr__" in path.read_text()]
    assert [path.name for path in writers] == ["_checks.py"]
