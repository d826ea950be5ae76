import json
import math
from pathlib import Path

import mpmath
import pytest

from oracles.authors_calibration import SETTINGS, Setting, calibrated_std, paper_epsilon, scale_of
from skellam.accounting import Sampled, Skellam, epsilon, rdp_bound, rdp_bound_scaled
from skellam.accounting.accountants import calibrate
from skellam.accounting.curves import gaussian_sigma
from skellam.accounting.mechanisms import Gaussian
from skellam.accounting.rdp import (
    discrete_gaussian_rdp,
    distributed_discrete_gaussian_rdp,
    poisson_rdp,
    pure_rdp,
)
from skellam.errors import DomainError, InfeasibleError

AUTHORS = json.loads((Path(__file__).parents[1] / "vectors/authors_accounting.json").read_text())


@pytest.mark.parametrize("row", AUTHORS["rdp_bound_scaled"], ids=str)
def test_the_renyi_bound_agrees_with_the_authors(row):
    arguments = {name: row[name] for name in ("variance", "l1", "l2", "order", "scale")}
    assert rdp_bound_scaled(**arguments) == pytest.approx(row["value"], rel=1e-14)


@pytest.mark.parametrize("row", AUTHORS["sampled_unit_skellam"], ids=str)
@pytest.mark.parametrize("factor", [3, 1])
def test_amplification_agrees_with_the_authors(row, factor):
    (value,) = poisson_rdp(
        lambda a: rdp_bound(1, 1, 1, a),
        rate=row["rate"],
        orders=[row["order"]],
        involution=factor == 1,
    )
    assert value == pytest.approx(row[f"factor_{factor}"], rel=1e-9)


@pytest.mark.parametrize("row", AUTHORS["epsilon"], ids=str)
def test_epsilon_agrees_with_the_authors(row):
    setting = Setting(row["clip"], 1, row["dimension"], row["rate"], row["rounds"], row["delta"])
    found = paper_epsilon(row["scale"], row["std"], setting)
    assert found == pytest.approx(row["value"], rel=1e-10)


def test_epsilon_without_rounding_agrees_with_the_authors():
    row = AUTHORS["epsilon_without_rounding"]
    found = epsilon(Skellam(row["std"] ** 2, 1.0, 1.0), delta=row["delta"], method="paper")
    assert found == pytest.approx(row["value"], rel=1e-12)


@pytest.mark.parametrize("row", AUTHORS["calibrated"], ids=str)
def test_calibration_reaches_the_authors_noise_multipliers(row):
    setting = SETTINGS[row["setting"]]
    for bits, printed in row["multiplier"].items():
        found = calibrated_std(row["epsilon"], int(bits), row["k"], setting).value / setting.clip
        assert found == pytest.approx(printed, rel=6e-5)


@pytest.mark.parametrize("row", AUTHORS["infeasible"], ids=str)
def test_calibration_raises_where_the_authors_have_no_solution(row):
    with pytest.raises(InfeasibleError):
        calibrated_std(row["epsilon"], row["bits"], row["k"], SETTINGS[row["setting"]])


@pytest.mark.parametrize("bits", AUTHORS["issue-66"])
def test_the_example_of_issue_66_is_reproduced(bits):
    setting, (scale, local) = SETTINGS["issue-66"], AUTHORS["issue-66"][bits]
    std = calibrated_std(6, int(bits), 3, setting).value
    assert std / math.sqrt(setting.cohort) == pytest.approx(local, rel=1e-6)
    assert scale_of(std, int(bits), 3, setting) == pytest.approx(scale, rel=1e-6)


@pytest.mark.parametrize("row", AUTHORS["mean_estimation"], ids=str)
def test_mean_estimation_is_reproduced(row):
    setting = SETTINGS["mean-estimation"]
    std = calibrated_std(row["epsilon"], row["bits"], 2, setting).value
    assert std == pytest.approx(row["std"], rel=5e-6)
    assert scale_of(std, row["bits"], 2, setting) == pytest.approx(row["scale"], rel=5e-6)


@pytest.mark.parametrize("row", AUTHORS["gaussian_multiplier"], ids=str)
def test_the_gaussian_baseline_at_the_papers_orders_is_reproduced(row):
    setting = SETTINGS[row["setting"]]

    def cost(z):
        release = Sampled(Gaussian(z, 1.0), setting.rate)
        return epsilon(release, rounds=setting.rounds, delta=setting.delta, method="paper")

    found = calibrate(cost, row["epsilon"], tolerance=1e-6)
    assert found.value == pytest.approx(row["value"], rel=6e-5)


@pytest.mark.parametrize("at", AUTHORS["analytic_gaussian"]["sigma"])
def test_the_analytic_gaussian_agrees_with_the_authors(at):
    row = AUTHORS["analytic_gaussian"]
    # Their bisection stops at about 4e-9.
    found = gaussian_sigma(float(at), row["delta"], row["l2"])
    assert found == pytest.approx(row["sigma"][at], rel=1e-8)


def test_the_fixed_points_of_the_papers_text_hold():
    assert f"{rdp_bound(2500, 1, 1, 2):.4e}" == "4.0036e-04"
    assert discrete_gaussian_rdp(50, 1, 2) == pytest.approx(4e-4)
    shares = {"sigma_local": 0.5, "shares": 10_000, "l1": 1, "l2": 1, "dimension": 1, "order": 2}
    assert 723 < distributed_discrete_gaussian_rdp(**shares) < 724


@pytest.mark.parametrize("order", [1.5, 2.0, 10.0, 200.0])
@pytest.mark.parametrize("at", [1e-3, 0.1, 1.0, 30.0])
def test_the_divergence_of_a_pure_mechanism_is_that_of_randomised_response(at, order):
    p, q = (1 / (1 + mpmath.exp(x)) for x in (-at, at))
    exact = mpmath.log(p**order * q ** (1 - order) + q**order * p ** (1 - order)) / (order - 1)
    assert pure_rdp(at, order) == pytest.approx(float(exact), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("order", [1, 0, -2, 1.5, 2.5, math.nan, "2", True])
def test_an_order_that_is_no_whole_number_above_one_raises(order):
    with pytest.raises(DomainError):
        rdp_bound(100, 1, 1, order)


@pytest.mark.parametrize("order", [1.0, 0.5, math.nan, math.inf])
def test_a_real_order_not_above_one_raises(order):
    with pytest.raises(DomainError):
        discrete_gaussian_rdp(1.0, 1.0, order)


@pytest.mark.parametrize(
    "arguments",
    [
        (math.nan, 1, 1),
        (-1, 1, 1),
        (0, 1, 1),
        (100, math.nan, 1),
        (100, 1, math.nan),
        (100, 1, 2),
        (100, -1, 1),
    ],
)
def test_a_variance_or_norm_outside_its_domain_raises(arguments):
    with pytest.raises(DomainError):
        rdp_bound(*arguments, 2)
