"""Runs that are killed at calls to the file system, as `benchmarks.killed_runs` has them."""

import pytest
from benchmarks.killed_runs import RUNS, kill_everywhere


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_is_killed_goes_on_and_has_lost_nothing(tmp_path, name):
    """A sample of the calls; ``python -m benchmarks reliability`` kills at every one."""
    tally = kill_everywhere(tmp_path, name, every=17)
    assert tally.failed == []
    assert tally.cases >= 3
    assert tally.cases == tally.same + tally.extra
