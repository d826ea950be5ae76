"""Which rounds run, how often a client takes part, and whose noise counts."""

import dataclasses
import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import skellam as sk
from skellam.accounting import DistributedDiscreteGaussian, epsilon
from skellam.errors import DomainError, InfeasibleError
from skellam.plan import Plan, sizes


def plan(**changes):
    fields = {"dimension": 4, "clip": 1.0, "cohort": 20, "population": 1000, "rounds": 20}
    return Plan(**{**fields, **changes})


def exact_rates(made, dropout, own_dropout):
    """For each number of others: its weight, and the client's chance to be in, given it ran."""
    tolerance, r, total = made.tolerance, made.selection_rate, made.population_size

    def chance(m, more, dropped):
        n = m + more
        most = tolerance.dropouts(n) - dropped
        return stats.binom.cdf(most, m, dropout) if n >= made.min_cohort else 0.0

    for m in range(total):
        weight = stats.binom.pmf(m, total - 1, r)
        stays = r * (1 - own_dropout) * chance(m, 1, 0)
        ran = stays + r * own_dropout * chance(m, 1, 1) + (1 - r) * chance(m, 0, 0)
        if ran > 0:
            yield weight * ran, stays / ran


def profile(rate, epsilon, mu):
    """Of one Gaussian test at this rate: what a client costs at most."""
    x = np.linspace(-12, 12 + mu, 4001)
    plain, moved = stats.norm.pdf(x), stats.norm.pdf(x, mu)
    mixed = rate * moved + (1 - rate) * plain
    step = x[1] - x[0]
    return max(
        np.maximum(mixed - np.exp(epsilon) * plain, 0).sum() * step,
        np.maximum(plain - np.exp(epsilon) * mixed, 0).sum() * step,
    )


@settings(max_examples=15, deadline=None)
@given(
    population=st.integers(12, 40),
    rate=st.sampled_from([0.2, 0.5, 0.8]),
    dropout=st.sampled_from([0.0, 0.1, 0.3]),
    least=st.integers(4, 8),
    part=st.sampled_from([0.0, 0.5, 1.0]),
    own=st.sampled_from([0.0, 0.1]),
    epsilon=st.sampled_from([0.0, 0.5, 2.0]),
)
def test_the_rates_of_rounds_that_ran_cover_every_client(
    population, rate, dropout, least, part, own, epsilon
):
    """The attacker is told how many others there are, and still learns no more than stated."""
    cohort = math.ceil(rate * population)
    made = plan(cohort=cohort, population=population, dropout=dropout)
    try:
        made = dataclasses.replace(made.with_noise(1.0, delta=0.5), min_cohort=least)
    except (InfeasibleError, DomainError):
        return
    found = exact_rates(made, part * dropout / 2, own)
    exact = sum(weight * profile(q, epsilon, 1.0) for weight, q in found)
    stated = sum(weight * profile(q, epsilon, 1.0) for weight, q in sizes.run_rates(made))
    assert exact <= stated + sizes.deciding_chance(made, made.min_cohort) + 1e-9


def rates_by_survivors(made, late, early):
    """For each number of others that stay: its weight given a run, and the client's chance.

    ``late`` is their chance to drop out after they were counted, ``early`` the one before. Where
    the client decides by the least size, that is left to `deciding_chance`.
    """
    total, r, most = made.population_size - 1, made.selection_rate, made.tolerance.dropouts
    ran = np.zeros((2, total + 1))
    for m in range(made.min_cohort, total + 1):
        gone = np.arange(m + 1)
        chances = stats.binom.pmf(m, total, r * (1 - early)) * stats.binom.pmf(gone, m, late)
        for drawn in (0, 1):
            runs = gone <= most(m + drawn)
            ran[drawn][m - gone[runs]] += chances[runs] * (r if drawn else 1 - r)
    weights = ran.sum(axis=0)
    return weights / weights.sum(), ran[1] / np.maximum(weights, 1e-300)


@pytest.mark.parametrize(
    ("cohort", "population", "dropout", "part"),
    [
        (12, 48, 0.1, 0.5),
        (20, 200, 0.1, 0.5),
        (30, 300, 0.05, 1.0),
        (36, 144, 0.1, 0.5),
        (46, 55, 0.1, 1.0),
        (48, 192, 0.06, 1.0),
        (24, 96, 0.45, 1.0),
        (20, 40, 0.3, 1.0),
    ],
)
def test_the_rates_cover_an_attacker_who_sees_who_else_stayed(cohort, population, dropout, part):
    """A profile is a largest of functions (q - c)+ of the rate q, so it is enough to test these.

    The sum shows how many others stayed, not how many were on the list: with rates by the latter,
    as before this test, 30 of 300 exceed what is stated 3 times.
    """
    asked = plan(
        cohort=cohort,
        population=population,
        dropout=dropout,
        expected_dropout=part * dropout,
        min_cohort=max(3, cohort // 6),
    )
    made = asked.with_noise(1.0, delta=0.5)
    stated, decided = sizes.run_rates(made), sizes.deciding_chance(made, made.min_cohort)
    for share in (0.0, 0.3, 1.0):
        early = share * part * dropout
        weights, rates = rates_by_survivors(made, (part * dropout - early) / (1 - early), early)
        for c in (*made.rate * np.array([1, 1.001, 1.02, 1.1]), *np.linspace(made.rate, 1, 40)):
            exact = weights @ np.maximum(rates - c, 0)
            covered = sum(weight * max(q - c, 0) for weight, q in stated) + decided * (1 - c)
            assert exact <= covered + 1e-15


def test_rounds_run_at_the_plans_rate_but_at_the_steps_of_the_tolerated_dropouts():
    made = plan(cohort=100, population=10_000, dropout=0.1).with_noise(1.0)
    (weight, rate), *others = sizes.run_rates(made)
    assert rate == made.rate
    assert weight + sum(w for w, _ in others) == pytest.approx(1)
    assert 0.1 < sum(w for w, _ in others) < 0.16
    mean = sum(w * q for w, q in others) / sum(w for w, _ in others)
    assert made.rate < mean < 1.05 * made.rate
    whole = plan(cohort=100, population=10_000).with_noise(1.0)
    assert [q for _, q in sizes.run_rates(whole)] == [whole.rate]


def test_secret_sizes_with_dropouts_of_more_than_half_are_refused():
    made = plan(noise="gaussian", dropout=0.5).with_noise(1.0, delta=1e-3)
    assert math.isfinite(made.privacy().epsilon)
    with pytest.raises(InfeasibleError, match=r"need at most 0\.5"):
        plan(noise="gaussian", dropout=0.6).with_noise(1.0, delta=1e-3).privacy()


def test_one_rate_for_all_sizes_would_not_do():
    """20 users, q = 0.1, at least 3 members, Skellam noise of variance 1: delta is 1.8e-4 at
    epsilon 1, for which the chance to be in, given that the round ran, claims 2.6e-6."""
    made = plan(cohort=2, population=20, rounds=1).with_noise(1.0, delta=0.5)
    made = dataclasses.replace(made, min_cohort=3)
    found = list(exact_rates(made, 0.0, 0.0))
    deciding = sum(weight for weight, q in found if q == 1)
    assert deciding == pytest.approx(0.1 * stats.binom.pmf(2, 19, 0.1))
    assert sizes.deciding_chance(made, 3) >= deciding


def test_a_cohort_that_is_often_too_small_is_refused_and_a_larger_one_named():
    with pytest.raises(InfeasibleError, match="take a larger cohort, such as"):
        plan(min_cohort=18).with_noise(1.0, delta=1e-5)
    with pytest.raises(InfeasibleError, match="take a larger cohort"):
        plan(cohort=5, population=10_000, colluding=0.1).with_noise(1.0)


def test_who_decides_a_round_is_charged_to_delta():
    made = plan(cohort=100, population=10_000).calibrated(epsilon=2, delta=1e-5)
    charged = sk.accounting.noise_of(made.mechanism).rare
    assert charged >= made.rate * stats.binom.pmf(made.min_cohort - 1, 9999, made.rate)
    assert made.rounds * charged <= 1e-4 * 1e-5
    known = plan(cohort=100, population=10_000, public_sizes=True).calibrated(epsilon=2, delta=1e-5)
    assert sk.accounting.noise_of(known.mechanism).rare == 0


def test_a_larger_smallest_cohort_costs_less_noise_for_colluders():
    small, large = (
        plan(cohort=200, population=10_000, colluding=0.05, min_cohort=n).with_noise(1.0)
        for n in (80, 130)
    )
    assert small.total_variance > large.total_variance > large.variance
    assert small.variance == pytest.approx(large.variance, rel=0.2)


def test_the_noise_of_every_cohort_is_one_law_and_enough():
    made = plan(cohort=100, population=10_000, colluding=0.05, dropout=0.1).with_noise(1.0)
    for n in range(made.min_cohort, 200):
        noise = made.spec(cohort=n).noise
        assert noise.variance == made.total_variance
        honest = noise.shares - made.tolerance.colluders(n)
        assert float(noise.share) * honest >= made.variance * (1 - 1e-12)


def test_crowded_cohorts_are_charged_to_delta():
    made = plan(colluding=0.05, cohort=200, population=10_000).calibrated(epsilon=2, delta=1e-5)
    noise = sk.accounting.noise_of(made.mechanism)
    assert 2.0**-made.tolerance.tail_bits <= noise.rare
    assert 0 < made.rounds * noise.rare <= 2e-4 * 1e-5


def test_small_cohorts_with_colluders_name_a_larger_one():
    made = plan(cohort=40, population=10_000, colluding=0.05).with_noise(1.0)
    line = made.explain().as_dict()["noise for colluders"]
    assert "or more would need little more" in line["why"]


# How often a client takes part.


@pytest.mark.parametrize("rounds", [1, 5, 50, 1500])
@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_a_client_is_hardly_ever_stopped(rounds, sampling):
    made = plan(rounds=rounds, cohort=100, sampling=sampling).calibrated(epsilon=4, delta=1e-5)
    stopped = stats.binom.sf(made.participations, rounds, 0.1)
    assert stopped * (1 + math.exp(4)) <= 1e-4 * 1e-5
    distance = sk.accounting.noise_of(made.mechanism).distance
    assert stopped <= rounds * distance * (1 + 1e-6)
    for fewer in {1, rounds // 3 + 1, rounds}:
        part = stats.binom.sf(made.participations, fewer, 0.1)
        assert part <= fewer * distance * (1 + 1e-6)


def test_too_few_participations_are_refused_where_cohorts_are_random():
    with pytest.raises(InfeasibleError, match="participations must be at least"):
        plan(rounds=50, cohort=100, participations=5).calibrated(epsilon=4, delta=1e-5)
    cyclic = plan(rounds=50, cohort=100, sampling="cyclic", participations=3)
    assert cyclic.calibrated(epsilon=4, delta=1e-5).participations == 3


@pytest.mark.parametrize(
    ("population", "cohort", "rounds", "groups", "times"),
    [(1000, 100, 50, 10, 5), (1000, 100, 51, 10, 6), (1050, 100, 22, 11, 2), (10, 10, 7, 1, 7)],
)
def test_cyclic_cohorts_take_turns(population, cohort, rounds, groups, times):
    made = plan(population=population, cohort=cohort, rounds=rounds, sampling="cyclic")
    made = made.with_noise(1.0, delta=1e-5)
    assert (made.groups, made.participations) == (groups, times)


def test_the_law_of_stopped_clients_is_within_the_stated_distance():
    """Exactly, over all patterns of T = 6 rounds of one Gaussian test statistic each."""
    rounds, rate, most = 6, 0.3, 3
    test_power = {0: 0.01, 1: 0.4}
    free = capped = 0.0
    for pattern in product((0, 1), repeat=rounds):
        chance = math.prod(rate if taken else 1 - rate for taken in pattern)
        counted = [t if sum(pattern[: i + 1]) <= most else 0 for i, t in enumerate(pattern)]
        free += chance * math.prod(1 - test_power[t] for t in pattern)
        capped += chance * math.prod(1 - test_power[t] for t in counted)
    assert abs(free - capped) <= stats.binom.sf(most, rounds, rate)


# Plans that were calibrated can run.


@settings(max_examples=6, deadline=None)
@given(
    dimension=st.sampled_from([1, 10, 1000, 2**16]),
    bits=st.integers(8, 32),
    cohort=st.integers(5, 500),
    many=st.sampled_from([1, 4, 100]),
    epsilon=st.sampled_from([0.1, 1.0, 10.0]),
    clip=st.sampled_from([1e-3, 1.0, 1e3]),
    dropout=st.sampled_from([0.0, 0.2]),
    sampling=st.sampled_from(["poisson", "cyclic", "fixed"]),
)
def test_a_calibrated_plan_runs_for_every_cohort_that_it_allows(
    dimension, bits, cohort, many, epsilon, clip, dropout, sampling
):
    asked = Plan(
        dimension=dimension,
        bits=bits,
        cohort=cohort,
        population=cohort * many,
        rounds=3,
        clip=clip,
        dropout=dropout,
        sampling=sampling,
    )
    try:
        made = asked.calibrated(epsilon=epsilon, delta=1e-5)
    except InfeasibleError:
        return
    assert made.privacy().epsilon <= epsilon
    made.explain()
    entropy = sk.SeededEntropy(bytes(32), "any cohort")
    for n in {made.min_cohort, made.invited, made.population_size}:
        codec = made.codec(public_seed=bytes(32), cohort=max(n, made.min_cohort))
        seed = codec.new_noise_seed(entropy=entropy) if codec.spec.removable else None
        assert len(codec.encode_zeros(entropy=entropy, noise_seed=seed)) == made.sent_dim


def test_a_scale_given_by_the_user_that_cannot_run_is_refused():
    with pytest.raises(InfeasibleError, match="can be drawn"):
        plan(scale=1e9, bits=32).with_noise(1.0)
    with pytest.raises(InfeasibleError, match="can be shared"):
        plan(scale=0.5, rounding="unbiased", population=10**6).with_noise(1.0)


@pytest.mark.parametrize("share", [0.04, 0.1, 0.2])
def test_discrete_gaussian_shares_are_accounted_for_the_smallest_group(share):
    plan = sk.Plan(
        dimension=1,
        clip=100.0,
        l1=100,
        coordinate_bound=100,
        rounding="integer",
        bits=24,
        cohort=10,
        population=25,
        rounds=3,
        sampling="cyclic",
        noise="distributed-discrete-gaussian",
        colluding=share,
    ).calibrated(epsilon=2.0, delta=1e-5)
    claimed = plan.privacy(audience="server").epsilon
    for size in (8, 9):
        noise = plan.spec(cohort=size).noise
        honest = noise.shares - plan.tolerance.colluders(size)
        left = DistributedDiscreteGaussian(noise.sigma, honest, 100.0, 100.0, 1)
        assert epsilon(left, delta=1e-5) <= claimed


def test_weights_of_sizes_are_given_that_a_round_ran():
    """Half of these rounds are skipped, and only the others are spent."""

    def made(min_cohort):
        fields = {"cohort": 1000, "population": 10**6, "dropout": 0.1, "expected_dropout": 0.0}
        asked = plan(**fields, bits=20, min_cohort=min_cohort)
        return asked.with_noise(3.0, delta=2e-3)

    half, nearly_all = made(1000), made(800)
    assert sum(weight for weight, _ in sizes.run_rates(half)) == pytest.approx(1)
    assert half.privacy(rounds=10).epsilon >= nearly_all.privacy(rounds=10).epsilon


@pytest.mark.parametrize(("count", "rate"), [(94_422_542, 24_038 / 94_422_543), (10**9, 0.3)])
def test_the_sizes_of_huge_populations_are_few_and_have_all_of_the_mass(count, rate):
    """SciPy's quantile of the first law is the whole population: 700 MB of sizes."""
    found, chances = sizes._likely_sizes(count, rate)
    assert len(found) <= 40 * math.sqrt(count * rate)
    assert chances.sum() == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("chance", [1e-3, 1e-10, 1e-22])
@pytest.mark.parametrize(("count", "rate"), [(10, 0.5), (5000, 0.02), (10**12, 1e-6)])
def test_binomial_bounds_are_the_tightest(count, rate, chance):
    low, high = (f(count, rate, chance) for f in (sizes._binomial_floor, sizes._binomial_ceiling))
    assert low == 1 or stats.binom.cdf(low - 1, count, rate) <= chance
    assert stats.binom.cdf(low, count, rate) > chance
    assert stats.binom.sf(high, count, rate) <= chance < stats.binom.sf(high - 1, count, rate)
