import dp_accounting as dp
import pytest
from dp_accounting.pld import privacy_loss_distribution

from skellam.accounting import (
    Gaussian,
    Laplace,
    Sampled,
    SampledKnownSize,
    SampledWithoutReplacement,
    Skellam,
    composed_epsilon,
    curves,
    epsilon,
    from_distribution,
    from_event,
    replace_one,
    to_distribution,
    to_event,
)
from skellam.accounting.curves import NO_SLACK
from skellam.accounting.pld import mechanism_pld
from skellam.errors import DomainError, KindError

SCALE = 1000.0
NOISE = Skellam((0.8 * SCALE) ** 2, SCALE, dimension=2**20)
EMNIST = Sampled(NOISE, 100 / 3400)
SETTING = {"rounds": 1500, "delta": 1 / 3400}


def test_others_can_verify_an_epsilon_without_us():
    event, slack = to_event(EMNIST, rounds=1500)
    accountant = dp.pld.PLDAccountant(value_discretization_interval=1e-3)
    theirs = accountant.compose(event).get_epsilon(1 / 3400)
    assert theirs == pytest.approx(epsilon(EMNIST, **SETTING), rel=1e-4)
    assert slack.charge(10.0) < 1e-200


def test_a_fixed_size_event_carries_half_the_noise_multiplier():
    """967 by their Rényi accountant, where sigma over the clip norm would report 19."""
    event, _ = to_event(SampledWithoutReplacement(NOISE, 100, 3400), rounds=1500)
    assert event.event.event.noise_multiplier == pytest.approx(0.4, rel=1e-5)
    accountant = dp.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    assert accountant.compose(event).get_epsilon(1 / 3400) == pytest.approx(967, abs=2)


def test_a_poisson_sample_under_replace_one_is_no_event_of_theirs():
    with pytest.raises(DomainError):
        to_event(Sampled(replace_one(NOISE), 0.1))


def test_an_event_goes_there_and_back():
    release = Sampled(Gaussian(0.8, 1.0), 0.03)
    event, slack = to_event(release, rounds=70)
    assert slack == NO_SLACK
    assert from_event(event) == [(release, 70)]


def test_their_events_compose_with_ours():
    theirs = dp.ComposedDpEvent(
        [
            dp.NoOpDpEvent(),
            dp.GaussianDpEvent(3.0),
            dp.SelfComposedDpEvent(dp.LaplaceDpEvent(9.0), 4),
            dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(2.0)), 5),
        ]
    )
    releases = from_event(theirs)
    assert releases == [
        (Gaussian(3.0, 1.0), 1),
        (Laplace(9.0, 1.0), 4),
        (Sampled(Gaussian(2.0, 1.0), 0.1), 5),
    ]
    both = composed_epsilon([*releases, (EMNIST, 10)], delta=1e-5)
    assert both > composed_epsilon(releases, delta=1e-5)


@pytest.mark.parametrize(
    "event",
    [
        dp.SampledWithoutReplacementDpEvent(100, 10, dp.GaussianDpEvent(1.0)),
        dp.NonPrivateDpEvent(),
        dp.GaussianDpEvent(float("nan")),
        dp.GaussianDpEvent(0.0),
        dp.PoissonSampledDpEvent(1.5, dp.GaussianDpEvent(1.0)),
        dp.PoissonSampledDpEvent(0.5, dp.PoissonSampledDpEvent(0.5, dp.GaussianDpEvent(1.0))),
        dp.PoissonSampledDpEvent(0.5, dp.SelfComposedDpEvent(dp.GaussianDpEvent(1.0), 2)),
        dp.SelfComposedDpEvent(dp.GaussianDpEvent(1.0), 0),
        "gaussian",
    ],
    ids=str,
)
def test_an_event_without_a_bound_raises(event):
    with pytest.raises(DomainError):
        from_event(event)


def test_their_loss_distributions_compose_with_ours():
    noise = Skellam(100.0, 1.0)
    theirs = from_distribution(
        privacy_loss_distribution.from_laplace_mechanism(20.0, value_discretization_interval=1e-3)
    )
    both = theirs + mechanism_pld(noise)
    assert both.epsilon(1e-6) > max(theirs.epsilon(1e-6), epsilon(noise, delta=1e-6))
    again = to_distribution(both).get_epsilon_for_delta(1e-6)
    assert again == pytest.approx(both.epsilon(1e-6), rel=1e-3)
    there_and_back = from_distribution(to_distribution(both))
    assert there_and_back.delta(0.1) == pytest.approx(both.delta(0.1), rel=1e-3)


@pytest.mark.parametrize("rounds", [1, 40])
def test_a_loss_distribution_of_ours_is_theirs_from_above(rounds):
    release = SampledWithoutReplacement(Gaussian(2.0, 1.0), 20, 200)
    (ours,) = curves([(release, rounds)], method="pld")
    theirs = to_distribution(ours)
    for at in (1e-4, 1e-8):
        known = ours.epsilon(at)
        assert theirs.get_epsilon_for_delta(at) == pytest.approx(known, rel=2e-3)


def test_a_fixed_size_under_add_remove_becomes_their_replace_one_and_a_known_size_nothing():
    added, _ = to_event(SampledWithoutReplacement(NOISE, 100, 3400))
    replaced, _ = to_event(SampledWithoutReplacement(replace_one(NOISE), 100, 3400))
    assert added == replaced
    with pytest.raises(DomainError, match="to_distribution"):
        to_event(SampledKnownSize(NOISE, 0.1, 3400))


def test_an_event_leaves_rare_events_in_the_slack():
    _, slack = to_event(Gaussian(1.0, 1.0, rare=1e-9), rounds=30)
    assert slack.rare == pytest.approx(3e-8)


def test_an_optimistic_distribution_and_what_is_none_raise():
    optimistic = privacy_loss_distribution.from_gaussian_mechanism(
        1.0, pessimistic_estimate=False, use_connect_dots=False
    )
    with pytest.raises(DomainError, match="pessimistic"):
        from_distribution(optimistic)
    with pytest.raises(KindError):
        from_distribution([0.5, 0.5])
