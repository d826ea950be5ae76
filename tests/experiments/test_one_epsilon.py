"""Training at one epsilon against the server: what is recorded."""

import pytest
from experiments.one_epsilon_training import (
    BOTH,
    CLIENTS,
    HELPER,
    NOTHING,
    PUBLIC,
    SETTINGS,
    WAYS,
    planned,
    populated,
    recorded,
    rows,
    run,
    wanted,
)

TASKS = [task for task in SETTINGS if recorded(task)]


def test_all_cells_of_digits_are_recorded():
    assert {found.key for found in recorded("digits")} == {
        (way, 0.0 if way == NOTHING else epsilon, seed) for way, epsilon, seed in wanted()
    }


def test_correlated_noise_is_better_than_independent_noise_on_digits_beyond_chance():
    table = {(row.epsilon, row.way): row for row in rows("digits")}
    for epsilon in (2.0, 4.0, 8.0):
        for way in (BOTH, HELPER):
            row = table[epsilon, way]
            assert row.difference - row.half > 0
    assert table[2.0, BOTH].difference > table[4.0, BOTH].difference > 2
    # Within a point of cohorts that are a secret from the public alone.
    assert abs(table[4.0, BOTH].accuracy - table[4.0, PUBLIC].accuracy) < 1


@pytest.mark.parametrize("task", TASKS)
def test_recorded_epsilons_are_against_the_server_but_for_secret_cohorts(task):
    for found in recorded(task):
        if found.way == NOTHING:
            continue
        assert found.epsilon_public <= found.epsilon * (1 + 1e-9)
        assert (found.epsilon_server > 2 * found.epsilon) == (found.way == PUBLIC)
        assert (len(found.band) > 1) == (found.way in {BOTH, HELPER})


@pytest.mark.parametrize("way", [BOTH, CLIENTS])
def test_a_recorded_run_has_the_noise_that_is_planned_today(way):
    found = next(r for r in recorded("digits") if (r.way, r.epsilon) == (way, 4.0))
    plan = planned(way, 4.0, SETTINGS["digits"], 7850)
    assert plan.noise_multiplier == pytest.approx(found.noise_multiplier, rel=1e-6)
    assert plan.band == tuple(found.band)
    assert way in WAYS


@pytest.mark.slow
def test_a_recorded_run_is_reached_again():
    """A seed replays where the plan has the same last digits; else its digest draws other noise.

    Seeds of one cell lie within two points of each other.
    """
    found = next(r for r in recorded("digits") if (r.way, r.epsilon) == (BOTH, 4.0))
    again = run("digits", populated("digits", SETTINGS["digits"]), BOTH, 4.0, found.seed)
    assert again.accuracy == pytest.approx(found.accuracy, abs=0.02)
    assert again.epsilon_server == pytest.approx(found.epsilon_server, rel=1e-6)
