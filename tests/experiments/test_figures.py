"""Figures are drawn from their tables, and the paper's statements hold in the numbers."""

import math

import pytest
from experiments.figure import make, read
from PIL import Image

from experiments import composition, mean_estimation, one_epsilon, real_queries, scalar_queries

EMNIST = "EMNIST: d = 2^20, n = 100 of 3400, 1500 releases"
SIMPLE = "d = 256, n = 10000, one release"


def smaller(figure, **changes):
    return {**figure.quick, **changes}


def values(points, panel, x):
    return {p.curve: p.y for p in points if p.panel == panel and p.x == x}


@pytest.fixture(scope="module")
def real():
    panels = real_queries.FIGURE.quick["panels"]
    spec = {
        "panels": {
            SIMPLE: {**panels[SIMPLE], "multipliers": [1.0], "scales": [10]},
            EMNIST: {**panels[EMNIST], "multipliers": [1.0], "scales": [1000]},
        }
    }
    return list(real_queries.points(spec))


@pytest.fixture(scope="module")
def scalars():
    spec = smaller(scalar_queries.FIGURE, panels={"small": [1.0], "large": [10.0]})
    return list(scalar_queries.points(spec))


def test_a_picture_carries_its_spec_and_its_table_reads_back(tmp_path):
    spec = smaller(composition.FIGURE, rounds=[1, 10])
    table, picture = make(composition.FIGURE, spec, tmp_path)
    found, points = read(table)
    assert found == spec
    assert len({point.curve for point in points}) == 9
    with Image.open(picture) as opened:
        assert '"rounds": [1, 10]' in opened.info["Comment"]


def test_advanced_composition_is_far_worse_than_tight_accounting():
    spec = smaller(composition.FIGURE, rounds=[400])
    found = values(composition.points(spec), "composition", 400)
    assert found["Skellam (direct, advanced composition)"] > 5 * found["Skellam (PLD)"]
    assert found["Skellam (GDP, here)"] < found["Skellam (RDP, the paper's bound)"]
    assert found["Skellam (PLD)"] <= found["Skellam (GDP, here)"]


def test_scaled_skellam_matches_the_gaussian_and_the_discrete_gaussian_degrades(scalars):
    small, large = values(scalars, "small", 1.0), values(scalars, "large", 10.0)
    for found in (small, large):
        paper, here = (
            found[f"Skellam ({by}), s = 100"] for by in ("RDP, the paper's bound", "GDP, here")
        )
        assert math.isclose(paper, found["Gaussian (RDP)"], rel_tol=1e-3)
        assert math.isclose(here, found["Gaussian (analytic)"], rel_tol=1e-3)
    assert small["distributed discrete Gaussian (RDP), s = 1"] > 1000
    assert large["distributed discrete Gaussian (RDP), s = 1"] > 1000 * large["Gaussian (RDP)"]


def test_rounding_costs_less_where_it_is_accounted(real):
    found = values(real, EMNIST, 1.0)
    here = found["Skellam (rounding accounted, here), s = 1000"]
    assert here < found["Gaussian (RDP)"] < found["Skellam (the paper), s = 1000"]


def test_shares_of_discrete_gaussian_noise_degrade_in_large_cohorts(real):
    found = values(real, SIMPLE, 1.0)
    skellam = found["Skellam (the paper), s = 10"]
    assert found["distributed discrete Gaussian, s = 10"] > 10 * skellam


def test_measured_means_come_near_to_the_central_gaussian():
    """With 14 bits and 20 repeats of 250 coordinates the ratio has a deviation of 2 per cent."""
    panel = "n = 100, d = 250"
    setting = {**mean_estimation.FIGURE.quick["panels"][panel], "bits": [14]}
    spec = smaller(mean_estimation.FIGURE, panels={panel: setting}, epsilons=[4.0], repeats=20)
    found = values(mean_estimation.points(spec), panel, 4.0)
    assert 0.8 < found["Skellam (here), b = 14"] / found["central Gaussian"] < 1.25


def test_correlated_noise_grows_far_more_slowly_than_independent_noise():
    found = list(one_epsilon.points(one_epsilon.FIGURE.quick))
    for panel, least in [("plain averaging", 1.75), ("momentum 0.9", 2.2)]:
        first, last = (values(found, panel, t) for t in (1, 50))
        assert first[one_epsilon.CORRELATED_TWICE] > first[one_epsilon.INDEPENDENT]
        gain = last[one_epsilon.INDEPENDENT] / last[one_epsilon.CORRELATED_TWICE]
        assert gain > least
        assert last[one_epsilon.INDEPENDENT_TWICE] / last[one_epsilon.CORRELATED] > 1.99 * gain
