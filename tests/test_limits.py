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


SMALL = {"dimension": 100, "clip": 1.0, "bits": 16, "cohort": 100, "population": 10_000}


@pytest.mark.parametrize(
    ("far", "result", "seconds"),
    [
        ({"bits": 8, "rounds": 1, "delta": 0.0101}, "InfeasibleError", 4),
        ({"bits": 8, "rounds": 1, "delta": 0.00999}, "answered", 4),
        ({"rounds": 10, "delta": 1e-30}, "InfeasibleError", 4),
        ({"rounds": 10**7, "delta": 1e-6}, "answered", 10),
        ({"rounds": 10**12, "delta": 1e-6}, "InfeasibleError", 4),
    ],
    ids=[
        "delta above the rate",
        "delta below the rate",
        "delta 1e-30",
        "1e7 rounds",
        "1e12 rounds",
    ],
)
def test_small_plans_with_far_targets_take_few_seconds_and_little_memory(far, result, seconds):
    """Version 0.1 asked for 35 GiB and 9.6 GiB, and computed for 9 and 21 seconds."""
    found = limits.limited(SMALL | {"epsilon": 1.0} | far, limits.try_plan)
    assert found.result == result
    assert found.seconds <= seconds


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
