"""Kills at every call that touches a file, as `benchmarks.bench_reliability` counts them."""

import pytest
from benchmarks import bench_reliability as faults


def test_a_kill_at_any_call_of_a_new_ledger_loses_nothing_and_locks_nobody_out(tmp_path):
    tally = faults.kills(tmp_path, existing=False, torn=False)
    assert tally.failed == []
    assert tally.cases >= 60
    assert tally.cases == tally.same + tally.extra


@pytest.mark.slow
@pytest.mark.parametrize("existing", [False, True])
def test_a_kill_between_short_writes_loses_nothing(tmp_path, existing):
    tally = faults.kills(tmp_path, existing=existing, torn=True)
    assert tally.failed == []
    assert tally.cases >= 100


def test_every_failing_call_of_a_spend_gives_an_error_of_ours_and_loses_nothing(tmp_path):
    tally = faults.system_errors(tmp_path)
    assert tally.failed == []
    assert tally.cases >= 60


def test_older_copies_under_a_held_ledger_are_refused_or_forget_nothing(tmp_path):
    tally = faults.old_copies(tmp_path)
    assert tally.failed == []
    assert tally.refused == 10


def test_killed_writers_never_exceed_the_budget(tmp_path):
    tally = faults.exhausted(tmp_path)
    assert tally.failed == []
    assert tally.refused == 1
