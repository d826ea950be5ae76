"""Random plans and accounting calls: an answer that holds, or an error of ours, within limits."""

import pytest
from benchmarks import bench_limits as limits


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "run", "answered"),
    [
        (limits.random_plan, limits.try_plan, 2),
        (limits.random_call, limits.try_call, 8),
    ],
    ids=["plans", "accounting calls"],
)
def test_random_calls_answer_or_refuse_within_ten_seconds_and_2_gb(draw, run, answered):
    """A sample; ``python -m benchmarks limits`` runs 2,000 of each."""
    found = limits.measure(draw, run, cases=30, seed=1)
    assert [each.failure for each in found if each.failure] == []
    assert sum(each.result == "answered" for each in found) >= answered


def slow(_):
    while True:
        pass


def large(_):
    return str(len(bytearray(4 * 10**9)))


def wrong(_):
    raise ValueError("not ours")


@pytest.mark.parametrize(
    ("run", "words"), [(large, "MemoryError"), (wrong, "ValueError"), (lambda _: "!1.5", "1.5")]
)
def test_what_breaks_the_limits_or_raises_another_error_is_a_failure(run, words):
    assert words in limits.limited({}, run).failure


def test_what_takes_too_long_is_ended(monkeypatch):
    monkeypatch.setattr(limits, "MAX_SECONDS", 0.0)
    assert "limit" in limits.limited({}, slow).failure
