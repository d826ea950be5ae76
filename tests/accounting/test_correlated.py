"""Result C: correlated rounds, against exact sums over all outcomes of all rounds."""

import contextlib
import math
from dataclasses import replace

import dp_accounting as dp
import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from oracles import correlated_rounds, exact_profile
from skellam import accounting
from skellam.accounting import (
    Adjacency,
    Audience,
    BandedSkellam,
    Gaussian,
    RoundedBandedSkellam,
    Sampled,
    SampledKnownSize,
    SampledWithoutReplacement,
    Skellam,
    against_either_server,
    composed_epsilon,
    delta,
    epsilon,
    from_event,
    from_record,
    gaussian_delta,
    gdp_parameter,
    one_participation,
    replace_one,
    to_event,
    to_record,
)
from skellam.accounting.correlated import kappa_normal
from skellam.accounting.gdp import dominating, eta_skellam, kappa, outside_by_distance
from skellam.accounting.ledger import GdpFilter, Ledger
from skellam.errors import BudgetError, CertificateError, DomainError, KindError

EPSILONS = (0.0, 0.3, 1.0, 3.0)
RUN = BandedSkellam(1e6, 20.0, (8, 4, 3, 3, 2, 2, 2), participations=4, separation=13, dimension=64)


def window(variance, *, dims=1, rounds=1):
    """A window that leaves out less than 1e-9, smaller where there are many axes."""
    return math.ceil(6.5 * math.sqrt(variance)) + (6 if dims * rounds < 4 else 3)


def assert_claimed(mechanism, laws):
    """Assert that no true delta is above the claimed one; return the largest ratio."""
    worst = 0.0
    for e in EPSILONS:
        true, claim = exact_profile.profile(*laws, e), delta(mechanism, epsilon=e, method="gdp")
        assert true <= claim * (1 + 1e-9) + 1e-12
        worst = max(worst, true / claim if claim > 1e-7 else 0.0)
    return worst


# What whoever runs the protocol, and the user, may do: vectors and participations that depend on
# what was opened before.


def steady(t, seen):
    return [1.0]


def follow_the_sign(t, seen):
    return [np.where(seen[-1][0] > 0, 1.0, -1.0)] if seen else [1.0]


def push_where_it_shows(t, seen):
    """Take part again only if what was seen already speaks for the user."""
    return [np.where(sum(row[0] for row in seen) > 1, 1.0, 0.0)] if seen else [1.0]


def swing(t, seen):
    """Other integers of a norm of at most 2, by the size of the first output."""
    return [np.clip(np.abs(seen[0][0]) // 2, 0, 2) - 1.0] if seen else [2.0]


STRATEGIES = [steady, follow_the_sign, push_where_it_shows, swing]
RUNS = [
    # band, rounds, separation
    ((1,), 3, 1),
    ((2, 1), 2, 2),
    ((2, 1), 3, 2),
    ((3, 2, 1), 3, 3),
    ((2, 1), 3, 1),
    ((3, 2, 1), 3, 1),
    ((3, 1, 1), 3, 2),
]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("band", "rounds", "separation"), RUNS)
@pytest.mark.parametrize("variance", [1.0, 4.0, 30.0])
def test_no_adversary_learns_more_than_claimed_from_all_rounds(
    band, rounds, separation, variance, strategy
):
    def vectors(t, seen):
        return None if t % separation else strategy(t, seen)

    laws = correlated_rounds.pair(
        variance, band, rounds, vectors, reach=window(variance) + 2 * sum(band)
    )
    run = BandedSkellam(
        variance,
        2.0 if strategy is swing else 1.0,
        band,
        participations=-(-rounds // separation),
        separation=separation,
        run_rounds=rounds,
    )
    part = assert_claimed(run, laws)
    if strategy is steady and variance == 30:
        assert part > 0.99  # the claim is that of the Gaussian mechanism, and nearly attained


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("band", "separation"), [((2, 1), 2), ((2, 1), 1), ((3, 2, 1), 3)])
@pytest.mark.parametrize("variance", [1.0, pytest.param(4.0, marks=pytest.mark.slow)])
def test_no_adversary_learns_more_than_claimed_from_four_rounds(
    band, separation, strategy, variance
):
    def vectors(t, seen):
        return None if t % separation else strategy(t, seen)

    run = BandedSkellam(
        variance,
        2.0 if strategy is swing else 1.0,
        band,
        participations=-(-4 // separation),
        separation=separation,
        run_rounds=4,
    )
    reach = window(variance, rounds=4) + 6
    assert_claimed(run, correlated_rounds.pair(variance, band, 4, vectors, reach=reach))


@pytest.mark.parametrize("seed", range(12))
def test_no_random_strategy_learns_more_than_claimed(seed):
    """Tables of vectors for every output: integers, signs, fractions, and not taking part."""
    rng = np.random.default_rng(seed)
    band, separation = [((1,), 1), ((2, 1), 2), ((2, 1), 1), ((3, 2, 1), 1)][seed % 4]
    rounded = seed % 8 in (0, 1)
    choices = [-0.8, -0.3, 0.0, 0.5, 0.8] if rounded else [-1.0, 0.0, 1.0, 1.0]
    tables = rng.choice(choices, size=(3, 64))

    def vectors(t, seen):
        if t % separation:
            return None
        index = sum(((3 + 2 * i) * row[0] for i, row in enumerate(seen)), start=np.array(t))
        return [tables[t][index % 64]]

    variance = float(rng.choice([1.0, 2.5, 6.0]))
    laws = correlated_rounds.pair(variance, band, 3, vectors, reach=window(variance) + 4)
    times = -(-3 // separation)
    if rounded:
        run = RoundedBandedSkellam(variance, 0.8, band, 1, 1e-6, times, separation, run_rounds=3)
    else:
        run = BandedSkellam(variance, 1.0, band, times, separation, run_rounds=3)
    assert_claimed(run, laws)


def test_the_adversary_may_choose_the_rounds_by_what_was_opened():
    """Twice in four rounds: in the first, and then when the outputs look promising."""

    def vectors(t, seen):
        if t == 0:
            return [1.0]
        early = seen[1][0] > 0 if len(seen) > 1 else False
        if t == 2:
            return [np.where(early, 1.0, 0.0)]
        return [np.where(early, 0.0, 1.0)] if t == 3 else None

    for variance in (1.0, 4.0):
        run = BandedSkellam(variance, 1.0, (2, 1), participations=2, run_rounds=4)
        laws = correlated_rounds.pair(
            variance, (2, 1), 4, vectors, reach=window(variance, rounds=4) + 4
        )
        assert_claimed(run, laws)


@pytest.mark.parametrize("variance", [1.0, 3.0, 6.0])
def test_no_adversary_learns_more_than_claimed_in_two_dimensions(variance):
    def turn(t, seen):
        """The second vector's direction depends on both coordinates of the first output."""
        if not seen:
            return [1.0, 1.0]
        up = seen[0][0] > seen[0][1]
        return [np.where(up, 1.0, -1.0), np.where(up, 0.0, 1.0)]

    for band, separation in [((1,), 1), ((2, 1), 2), ((2, 1), 1)]:
        run = BandedSkellam(
            variance,
            math.sqrt(2),
            band,
            participations=-(-2 // separation),
            separation=separation,
            dimension=2,
            run_rounds=2,
        )
        laws = correlated_rounds.pair(
            variance,
            band,
            2,
            lambda t, seen, s=separation: None if t % s else turn(t, seen),
            dims=2,
            reach=window(variance, dims=2, rounds=2) + 3,
        )
        assert_claimed(run, laws)


def test_other_clients_who_react_to_what_was_opened_change_nothing():
    """Their sums are known shifts: the outputs without them determine those with them."""
    variance, reach = 2.0, 14
    masses = exact_profile.skellam_masses(variance, 3 * reach)
    y = np.arange(-reach, reach + 1)
    first, second = y[:, None], y[None, :]
    reaction = np.where(first > 0, 3, -2)

    def law(shift):
        return (
            masses[first - 2 * shift + 3 * reach]
            * masses[np.clip(second - reaction - shift, -3 * reach, 3 * reach) + 3 * reach]
        )

    run = BandedSkellam(variance, 1.0, (2, 1), run_rounds=2)
    assert_claimed(run, (law(1).ravel(), law(0).ravel()))


# A run that ends early.


def test_ending_a_run_by_what_it_showed_costs_the_participations_that_were_possible():
    """The second participation happens in half of the runs; one alone would not cover it."""

    def until_it_shows(t, seen):
        return [1.0] if t == 0 else [np.where(seen[0][0] > 0, 1.0, 0.0)] if t == 2 else None

    run = BandedSkellam(4.0, 1.0, (2, 1), participations=2, run_rounds=4)
    laws = correlated_rounds.pair(4.0, (2, 1), 4, until_it_shows, reach=19)
    assert_claimed(run, laws)
    single = one_participation(run)
    assert any(
        exact_profile.profile(*laws, e) > delta(single, epsilon=e, method="gdp") for e in EPSILONS
    )


def test_a_round_that_is_opened_twice_shows_clients_of_earlier_rounds_beyond_the_claim():
    """The user took part in round 0 alone; round 1, with its second term, is opened two times."""
    laws = correlated_rounds.pair(
        4.0, (2, 1, 1), 3, lambda t, seen: [1.0] if t == 0 else None, reach=19
    )
    claimed = BandedSkellam(4.0, 1.0, (2, 1))
    assert any(
        exact_profile.profile(*laws, e) > 1.05 * delta(claimed, epsilon=e, method="gdp")
        for e in EPSILONS
    )


def test_a_run_that_ended_early_or_goes_on_is_accounted_by_possible_participations():
    planned = replace(RUN, run_rounds=50)
    etas = {t: gdp_parameter(replace(planned, run_rounds=t)) for t in range(1, 60)}
    assert list(etas.values()) == sorted(etas.values())
    for times in (1, 2, 3, 4):
        cost = gdp_parameter(replace(RUN, participations=times))
        assert etas[13 * (times - 1) + 7] == pytest.approx(cost, rel=1e-12)
    extended = gdp_parameter(replace(RUN, participations=5, run_rounds=65))
    assert extended == pytest.approx(etas[50] * math.sqrt(5 / 4), rel=1e-12)


def test_participations_add_up_one_by_one():
    one = one_participation(replace(RUN, run_rounds=3))
    assert (one.participations, one.run_rounds) == (1, None)
    for times in (1, 2, 4, 9):
        together = replace(RUN, participations=times)
        assert epsilon(one, rounds=times, delta=1e-6) == pytest.approx(
            epsilon(together, delta=1e-6), rel=1e-9
        )
    with pytest.raises(DomainError, match="overlap in a band of 7"):
        one_participation(replace(RUN, separation=6))


# Rounding at random.


def power_curve(released, other):
    """Return size and power of the best tests."""
    order = np.argsort(-released / np.maximum(other, 1e-300), kind="stable")
    return np.cumsum(other[order]), np.cumsum(released[order])


@pytest.mark.parametrize("band", [(1,), (2, 1), (3, 2, 1)])
@pytest.mark.parametrize("variance", [1.5, 5.0, 30.0])
def test_a_mixture_of_normals_dominates_a_rounded_coordinate_over_the_band(band, variance):
    shift = eta_skellam(variance) * math.hypot(*band)
    for x in (0.05, 0.5, 0.9, 1.2, 2.5):
        reach = window(variance) + 3 * math.ceil(x)
        if len(band) == 3:
            reach = math.ceil(5 * math.sqrt(variance)) + 12
        released, other = correlated_rounds.pair(
            variance, band, len(band), lambda t, seen, x=x: None if t else [x], reach=reach
        )
        m, f = divmod(x, 1.0)
        size, power = power_curve(released, other)
        inside = (size > 1e-9) & (size < 1 - 1e-9)
        z = ndtri(size[inside])
        bound = (1 - f) * ndtr(z + m * shift) + f * ndtr(z + (m + 1) * shift)
        assert (power[inside] <= bound + 1e-11).all()
        assert ((power[inside] - size[inside]) / (bound - size[inside])).max() > 0.98
        for tail in (1e-4, 1e-8):
            assert_claimed(RoundedBandedSkellam(variance, x, band, 1, tail), (released, other))


def test_rounded_vectors_that_adapt_stay_below_the_claim_over_two_participations():
    """Fractions chosen by the outputs of the first participation, in one and two dimensions."""

    def fractions(t, seen):
        if t == 0:
            return [0.7]
        return [np.where(seen[0][0] + seen[1][0] > 0, 0.7, -0.3)] if t == 2 else None

    def two(t, seen):
        return [0.4, 0.6] if t == 0 else [np.where(seen[0][0] > 0, 0.4, 0.1), 0.5]

    for variance in (1.5, 4.0):
        reach = window(variance, rounds=4) + 2
        for tail in (1e-4, 1e-8):
            run = RoundedBandedSkellam(variance, 0.7, (2, 1), 1, tail, 2, run_rounds=4)
            laws = correlated_rounds.pair(variance, (2, 1), 4, fractions, reach=reach)
            assert_claimed(run, laws)
            plane = RoundedBandedSkellam(variance, math.hypot(0.4, 0.6), (1,), 2, tail, 2)
            laws = correlated_rounds.pair(variance, (1,), 2, two, dims=2, reach=reach)
            assert_claimed(plane, laws)


@pytest.mark.parametrize("shift", [0.01, 0.1, 0.3, 0.8])
@pytest.mark.parametrize("tail", [1e-4, 1e-10, 1e-17])
def test_the_slope_of_a_coordinate_is_the_supremum_over_fractions_and_sizes(shift, tail):
    z = np.linspace(ndtri(tail), 5, 2001)[:, None]
    f = np.geomspace(1e-6, 1.0, 60)[None, :]
    power = ndtr(z) + f * (ndtr(z + shift) - ndtr(z))
    missed = (1 - f) * ndtr(-z) + f * ndtr(-z - shift)
    gaps = np.where(power < 0.5, ndtri(np.minimum(power, 0.5)), -ndtri(np.minimum(missed, 0.5))) - z
    slope = kappa_normal(shift, tail=tail)
    assert (gaps / f).max() <= slope * (1 + 1e-6)
    assert (gaps / f).max() >= slope * (1 - 1e-3)


@pytest.mark.parametrize("deviation", [10.0, 31.5, 100.0])
@pytest.mark.parametrize("block", [1, 16, 256])
def test_normal_slopes_are_a_little_above_those_of_skellam_noise(deviation, block):
    """For one round either holds; the normal envelope is the price of mixing over rounds."""
    bound = 0.5 if block > 1 else None
    normal = kappa_normal(
        eta_skellam(deviation**2), tail=1e-17, block=block, coordinate_bound=bound
    )
    own = kappa(deviation**2, tail=1e-17, block=block, coordinate_bound=bound)
    assert own <= normal <= own * (1 + (12 if block == 1 else 2) / deviation**2)


@pytest.mark.parametrize("y", [0.02, 0.5])
@pytest.mark.parametrize("shift", [0.05, 0.2])
def test_blocks_cover_the_best_tests_of_a_simulated_block(shift, y):
    """The power of the best test of 16 equal coordinates at sizes of 0.001 to 0.5.

    100,000 draws of each law: the claim is missed by chance less often than 1e-6 a case.
    """
    rng = np.random.default_rng([int(1000 * shift), int(100 * y)])
    block, draws = 16, 100_000
    slope = kappa_normal(shift, tail=1e-12, block=block, coordinate_bound=1.0)

    def losses(values):
        w = rng.normal(size=(draws, block)) + shift * values
        m, f = divmod(y, 1.0)
        steps = [np.exp(shift * k * w - (shift * k) ** 2 / 2) for k in (m, m + 1)]
        return np.log((1 - f) * steps[0] + f * steps[1]).sum(axis=1)

    integers = math.floor(y) + (rng.random((draws, block)) < y % 1)
    other, released = np.sort(losses(0.0)), np.sort(losses(integers))
    for size in (0.001, 0.01, 0.1, 0.5):
        threshold = np.quantile(other, 1 - size)
        power = (released > threshold).mean()
        claim = ndtr(ndtri(size) + slope * math.sqrt(block) * y)
        noise = math.sqrt(claim * (1 - claim) / draws) + math.sqrt(size / draws) * claim / size
        assert power <= claim + 5 * noise


def test_blocks_without_a_certificate_say_so():
    with pytest.raises(CertificateError, match="take block=1"):
        kappa_normal(3.0, tail=1e-12, block=16, coordinate_bound=1.0)


def test_rounding_at_random_needs_fewer_bits_than_a_norm_bound():
    """A million coordinates: the norm bound pays for sqrt(d)/2, the mixture does not."""
    d, scale, band = 1 << 20, 400.0, (4, 2, 2, 1, 1)
    variance = (3 * scale * math.hypot(*band)) ** 2
    mixture = RoundedBandedSkellam(
        variance, scale, band, d, 1e-17, 4, block=256, coordinate_bound=6 * scale / math.sqrt(d)
    )
    bounded = BandedSkellam(variance, math.hypot(scale, math.sqrt(d) / 2), band, 4, dimension=d)
    ideal = math.sqrt(4) / 3
    assert gdp_parameter(mixture) == pytest.approx(ideal, rel=0.01)
    assert gdp_parameter(bounded) == pytest.approx(ideal * math.hypot(1, 512 / 400), rel=0.01)


# As a mechanism among others.


def test_the_price_is_that_of_the_gaussian_matrix_mechanism():
    ideal = RUN.l2 * math.hypot(*RUN.band) * math.sqrt(RUN.participations / RUN.variance)
    assert gdp_parameter(RUN) == pytest.approx(ideal, rel=1e-6)
    assert gdp_parameter(RUN) > ideal
    for e in (0.5, 1.0, 2.0):
        assert delta(RUN, epsilon=e) >= gaussian_delta(ideal, e)


def test_a_band_of_one_is_independent_rounds():
    one = BandedSkellam(400.0, 3.0, (1,), participations=7, dimension=5)
    assert epsilon(one, delta=1e-6, method="gdp") == pytest.approx(
        epsilon(Skellam(400.0, 3.0, dimension=5), rounds=7, delta=1e-6, method="gdp"), rel=1e-9
    )


def test_close_participations_cost_more_and_fewer_rounds_less():
    close = [gdp_parameter(replace(RUN, separation=s)) for s in (7, 5, 3, 2, 1)]
    assert close == sorted(close)
    assert close[0] == gdp_parameter(RUN)
    assert gdp_parameter(replace(RUN, separation=1, run_rounds=1)) < close[-1]


def test_replacing_a_vector_doubles_the_parameter():
    assert gdp_parameter(replace_one(RUN)) == pytest.approx(2 * gdp_parameter(RUN), rel=1e-12)
    rounded = RoundedBandedSkellam(1e6, 20.0, (2, 1), 64, 1e-17, 3)
    replaced = replace_one(rounded)
    assert replaced.adjacency is Adjacency.REPLACE_ONE
    assert gdp_parameter(replaced) == pytest.approx(2 * gdp_parameter(rounded), rel=1e-12)
    assert dominating(replaced).slack.rare == pytest.approx(2 * dominating(rounded).slack.rare)


def test_the_sampler_is_charged_for_every_round_that_a_user_enters():
    drawn = replace(RUN, sampler_distance=1e-20, rare=1e-15)
    slack = outside_by_distance(drawn)
    assert slack.rare == pytest.approx(4 * 7 * 1e-15)
    assert slack.distance == pytest.approx(4 * 7 * 1e-20)
    assert outside_by_distance(replace(drawn, run_rounds=10)).rare == pytest.approx(7 * 1e-15)
    assert delta(replace(drawn, atom_error=1e-30), epsilon=1.0) >= delta(drawn, epsilon=1.0)


@pytest.mark.parametrize(
    "mechanism", [RUN, RoundedBandedSkellam(1e4, 5.0, (2, 1), 8, 1e-12, 3, 4, 2, 2.0, 40)]
)
def test_records_give_the_mechanism_back(mechanism):
    record = to_record(mechanism)
    assert record["band"] == list(mechanism.band)
    assert from_record(record) == mechanism
    with pytest.raises(DomainError):
        from_record({**record, "band": [1, 2]})


def test_others_can_verify_the_epsilon_of_a_run():
    event, slack = to_event(RUN)
    theirs = dp.pld.PLDAccountant(value_discretization_interval=1e-4).compose(event)
    assert theirs.get_epsilon(1e-6) == pytest.approx(epsilon(RUN, delta=1e-6), rel=1e-3)
    assert slack.charge(10.0) < 1e-200
    [(gaussian, rounds)] = from_event(event)
    assert (gaussian, rounds) == (Gaussian(1 / gdp_parameter(RUN), 1.0), 1)


def test_a_ledger_with_a_filter_stops_at_the_planned_participations(tmp_path):
    one = one_participation(RUN)
    planned = epsilon(RUN, delta=1e-5)
    budget = {"epsilon": 1.02 * planned, "delta": 1.02e-5, "filter": GdpFilter()}
    spent = 0
    with Ledger.create(tmp_path / "ledger", **budget) as ledger:
        with contextlib.suppress(BudgetError):
            while True:
                ledger.spend(one)
                spent += 1
        assert spent == 4
        assert ledger.guarantee(audience=Audience.SERVER).epsilon <= 1.02 * planned


def test_a_ledger_without_a_filter_has_the_same_epsilon(tmp_path):
    with Ledger.create(tmp_path / "ledger", epsilon=3.0, delta=1e-5) as ledger:
        for _ in range(4):
            ledger.spend(one_participation(RUN))
        assert ledger.epsilon() == pytest.approx(epsilon(RUN, delta=1e-5), rel=1e-9)
        found = ledger.guarantee(audience=Audience.SERVER, participations=4)
        assert found.epsilon == pytest.approx(ledger.epsilon())


def test_runs_compose_with_other_releases():
    other = Gaussian(3.0, 1.0)
    both = composed_epsilon([(RUN, 1), (other, 2)], delta=1e-6)
    total = math.hypot(gdp_parameter(RUN), math.sqrt(2) / 3)
    assert both == pytest.approx(accounting.gaussian_epsilon(total, 1e-6), rel=1e-6)


def test_the_guarantee_says_what_it_rests_on():
    found = against_either_server(RUN, delta=1e-6)
    text = str(found)
    assert found.epsilon == epsilon(RUN, delta=1e-6)
    assert found.audience is Audience.SERVER
    assert "at most 4 rounds, any two at least 13 apart" in text
    assert "do not collude" in text
    assert "ends the run" in text
    assert "coins" not in text
    rounded = RoundedBandedSkellam(1e6, 20.0, (2, 1), 64, 1e-17)
    assert "coins of rounding are secret" in str(against_either_server(rounded, delta=1e-6))


def test_other_guarantees_refuse_correlated_rounds_and_the_other_way_round():
    for refuse in (
        lambda: accounting.against_public(RUN, rounds=3, delta=1e-6),
        lambda: accounting.against_server(RUN, participations=3, delta=1e-6),
    ):
        with pytest.raises(DomainError, match="against_either_server"):
            refuse()
    with pytest.raises(KindError, match="against_server takes all others"):
        against_either_server(Skellam(4.0, 1.0), delta=1e-6)


@pytest.mark.parametrize(
    "sample",
    [
        lambda noise: Sampled(noise, 0.1),
        lambda noise: SampledKnownSize(noise, 0.1, 100),
        lambda noise: SampledWithoutReplacement(noise, 10, 100),
    ],
)
def test_correlated_rounds_are_not_amplified(sample):
    with pytest.raises(DomainError, match="not amplified"):
        sample(RUN)
    with pytest.raises(DomainError, match="not amplified"):
        sample(accounting.Joint((RUN, Gaussian(1.0, 1.0))))


@pytest.mark.parametrize(
    "changes",
    [
        {"variance": 0.0},
        {"l2": 0.5},
        {"band": (2, 2)},
        {"participations": 0},
        {"separation": 0},
        {"run_rounds": 0},
        {"dimension": 0},
    ],
)
def test_runs_outside_their_domain_are_refused(changes):
    with pytest.raises(DomainError):
        replace(RUN, **changes)


def test_rounding_at_random_needs_participations_apart():
    with pytest.raises(DomainError, match="separation must be at least 3"):
        RoundedBandedSkellam(1e4, 5.0, (3, 2, 1), 8, 1e-12, 3, 2)
