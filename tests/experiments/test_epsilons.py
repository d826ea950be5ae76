"""Recorded runs are accounted as plans are today, and the documentation says with what result."""

import pytest
from experiments.epsilons import CLIPPING, rows
from experiments.runs import NOTHING, SETTINGS, recorded


@pytest.fixture(scope="module")
def found():
    return [*rows()]


def test_every_recorded_plan_is_accounted_again(found):
    cells = {
        (task, run.cell.epsilon, run.cell.way)
        for task in SETTINGS
        for run in recorded(task)
        if run.cell.way != NOTHING
    }
    assert {(r.task, r.epsilon, r.way) for r in found if r.task != CLIPPING} == cells
    assert len([r for r in found if r.task == CLIPPING]) == 5


def test_a_plan_that_is_made_again_has_the_recorded_noise():
    runs = {run.cell.way: run for run in recorded("unipen")}
    for run in runs.values():
        plan = run.plan()
        assert plan.noise_multiplier == pytest.approx(run.noise_multiplier, rel=1e-12)
        assert plan.noise.continuous or plan.bytes_per_client == run.bytes_per_client


def test_epsilons_in_public_moved_by_at_most_a_ten_thousandth(found):
    """Upwards, that is; the noise of newer runs is calibrated to 0.02 % below their target."""
    for row in found:
        assert row.epsilon * (1 - 2e-4) <= row.public <= row.epsilon * (1 + 1.01e-4)


def test_the_mean_client_cost_what_it_costs_today(found):
    with_mean = [row for row in found if row.recorded_mean is not None]
    assert with_mean
    assert all(row.mean == pytest.approx(row.recorded_mean, rel=1e-6) for row in with_mean)


def test_every_client_may_cost_more_than_the_mean_one(found):
    assert all(row.participations > row.mean_participations for row in found)
    assert all(row.server > row.mean for row in found)
