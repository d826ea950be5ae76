"""Plans for a leader and a helper that do not collude."""

import math
from dataclasses import replace

import pytest

import skellam as sk
from skellam.accounting import Skellam
from skellam.accounting.guarantee import Audience
from skellam.errors import DomainError
from skellam.plan import NoiseBy, Plan, Servers, sizes


def asked(**changes):
    settings = {
        "dimension": 1000,
        "clip": 1.0,
        "cohort": 100,
        "population": 1000,
        "rounds": 20,
        "sampling": "cyclic",
        "aggregation": "two-servers",
    }
    return Plan(**{**settings, **changes})


def calibrated(**changes):
    return asked(**changes).calibrated(epsilon=4, delta=1e-5)


def test_each_server_adds_all_the_noise_and_clients_add_none():
    both, helper = calibrated(), calibrated(noise_by="helper")
    assert both.noise_by is NoiseBy.BOTH
    assert both.total_variance == 2 * both.variance
    assert helper.total_variance == helper.variance
    assert both.noise_multiplier == pytest.approx(helper.noise_multiplier, rel=1e-2)
    for plan in (both, helper):
        spec = plan.spec()
        assert spec.central
        assert spec.noise.variance == plan.total_variance
        assert not plan.clients_add_noise


@pytest.mark.parametrize("noise_by", ["both", "helper"])
def test_the_target_holds_against_the_leader_and_the_public_has_both_noises(noise_by):
    plan = calibrated(noise_by=noise_by)
    public, leader, helper = plan.guarantees()
    assert plan.privacy() == leader
    assert 3.99 < leader.epsilon <= 4
    if noise_by == "both":
        assert helper.epsilon == leader.epsilon
        assert public.epsilon < 0.8 * leader.epsilon
    else:
        assert helper.epsilon == math.inf
        assert public.epsilon == leader.epsilon
    assert [g.audience for g in (public, leader, helper)] == ["public", "leader", "helper"]


def test_every_guarantee_says_that_the_servers_do_not_collude():
    for guarantee in calibrated().guarantees():
        assert any("leader and helper do not collude" in line for line in guarantee.assumptions)
        assert "secure aggregation" not in str(guarantee)
    helper = calibrated(noise_by="helper").guarantees().helper
    assert "nothing holds if it sees what is released" in str(helper)


def test_against_a_server_the_noise_of_the_other_is_all_that_counts():
    """Integers: the mechanism is the Skellam one with exactly one server's variance."""
    plan = asked(
        sampling="all",
        population=None,
        rounds=1,
        rounding="integer",
        l1=1,
        coordinate_bound=1,
        dimension=1,
    ).calibrated(epsilon=1, delta=1e-5)
    noise = plan.mechanism
    assert isinstance(noise, Skellam)
    assert noise.variance == plan.variance
    server = sk.accounting.epsilon(Skellam(plan.variance, 1.0, 1.0, 1), delta=1e-5)
    assert plan.privacy().epsilon == pytest.approx(server, rel=1e-6)
    both = sk.accounting.epsilon(Skellam(2 * plan.variance, 1.0, 1.0, 1), delta=1e-5)
    assert plan.privacy(audience="public").epsilon == pytest.approx(both, rel=1e-6)


def test_with_secret_cohorts_the_target_is_the_publics_and_one_noise_is_accounted_for():
    """What a ledger spends is true against a server, once its sampling is taken away."""
    plan = calibrated(sampling="poisson")
    public, leader, _ = plan.guarantees()
    assert plan.privacy() == public
    assert 3.99 < public.epsilon <= 4 < leader.epsilon
    assert sk.accounting.noise_of(plan.mechanism).variance == plan.variance
    one = asked(sampling="poisson", aggregation="one-server").calibrated(epsilon=4, delta=1e-5)
    assert plan.noise_multiplier == pytest.approx(one.noise_multiplier, rel=1e-2)


def test_what_two_servers_do_not_need_is_refused():
    for changes in ({"dropout": 0.1}, {"colluding": 0.1}):
        with pytest.raises(DomainError, match="must be 0 with two servers"):
            asked(**changes)
    with pytest.raises(DomainError, match="Skellam noise or none"):
        asked(noise="central-skellam")
    with pytest.raises(DomainError, match="quantile_noise"):
        asked(quantile_noise=0.05)
    with pytest.raises(DomainError, match="noise_by goes with"):
        asked(aggregation="one-server", noise_by="both")
    with pytest.raises(DomainError, match="noise_by must be one of both, helper"):
        asked(noise_by="leader")
    with pytest.raises(DomainError, match="aggregation must be one of"):
        asked(aggregation="three-servers")


def test_audiences_belong_to_their_number_of_servers():
    with pytest.raises(DomainError, match="public, helper, leader"):
        calibrated().privacy(audience="server")
    one = asked(aggregation="one-server").with_noise(1.0, delta=1e-5)
    with pytest.raises(DomainError, match="public, server"):
        one.privacy(audience=Audience.HELPER)


def test_a_helper_that_draws_all_the_noise_sees_no_mechanism():
    plan = calibrated(noise_by="helper")
    assert plan.privacy(audience="helper").epsilon == math.inf
    assert plan.releases(audience="leader")[1] >= 1
    with pytest.raises(DomainError, match="helper draws all the noise"):
        plan.releases(audience="helper")


@pytest.mark.parametrize("noise_by", ["both", "helper"])
def test_a_plan_goes_through_json_with_its_servers(noise_by):
    plan = calibrated(noise_by=noise_by)
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.aggregation is Servers.TWO
    assert again.noise_by is NoiseBy(noise_by)
    assert again.digest == plan.digest
    assert replace(plan.request, noise_by="both").digest != calibrated().digest


def test_any_number_of_clients_may_drop_out():
    plan = calibrated()
    assert plan.min_cohort == 2
    assert plan.min_survivors(100) == 2
    one = asked(aggregation="one-server").with_noise(1.0)
    assert one.min_survivors(100) == 100


@pytest.mark.parametrize("dropout", [0.0, 0.3, 0.5])
def test_deciding_a_round_is_charged_for_every_chance_to_drop_out(dropout):
    """The exact chance that a client's message makes the smallest cohort, for one common rate."""
    from scipy.stats import binom

    plan = calibrated(sampling="poisson")
    rate = plan.selection_rate * (1 - dropout)
    exact = rate * binom.pmf(plan.min_cohort - 1, plan.population_size - 1, rate)
    assert exact <= sizes.deciding_chance(plan, plan.min_cohort)
    assert plan.rounds * sizes.deciding_chance(plan, plan.min_cohort) < 1e-3 * 1e-5


def test_the_explanation_names_servers_noise_and_every_epsilon():
    lines = calibrated().explain().as_dict()
    assert lines["noise by"]["value"] == "both"
    assert float(lines["total variance"]["value"]) == pytest.approx(
        2 * float(lines["variance"]["value"]), rel=1e-4
    )
    assert {"epsilon, public", "epsilon, leader", "epsilon, helper"} <= lines.keys()
    assert "epsilon, server" not in lines
    helper = calibrated(noise_by="helper").explain().as_dict()["epsilon, helper"]
    assert helper["value"] == "inf"
    assert "trusted" in helper["why"]


def test_the_price_of_the_second_noise_is_in_the_predicted_error():
    both, helper = calibrated(), calibrated(noise_by="helper")
    assert both.error.total / helper.error.total == pytest.approx(2, rel=0.02)
