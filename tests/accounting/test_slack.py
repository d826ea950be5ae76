"""The lemmas of docs/maths/slack.md, against exact sums."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import exact_profile
from skellam.accounting import GdpCurve, RoundedSkellam, Sampled, Skellam, epsilon
from skellam.accounting.curves import NO_SLACK, Slack, slack_by_atoms
from skellam.accounting.gdp import outside_by_atoms, outside_by_distance
from skellam.accounting.laws import skellam_law
from skellam.errors import DomainError

EPSILONS = (0.0, 0.5, 2.0, 6.0, 12.0)


@given(st.integers(0, 10**9), st.sampled_from(EPSILONS))
def test_a_rare_event_costs_its_probability_once(seed, epsilon):
    """Lemma 1 on random laws that differ from their ideals on an event alone."""
    rng = np.random.default_rng(seed)
    ideal = rng.dirichlet(np.ones(12), size=2)
    real = ideal.copy()
    real[:, :3] = rng.dirichlet(np.ones(3), size=2) * ideal[:, :3].sum(axis=1, keepdims=True)
    event = real[:, :3].sum(axis=1).max()
    claimed = Slack(rare=event).delta(
        lambda e: exact_profile.profile(ideal[0], ideal[1], e), epsilon
    )
    assert exact_profile.profile(real[0], real[1], epsilon) <= claimed + 1e-15


@settings(max_examples=40)
@given(
    st.floats(2.0, 40.0),
    st.integers(1, 3),
    st.integers(0, 10**9),
    st.sampled_from([1e-8, 1e-12]),
)
def test_a_sampler_that_is_off_by_little_at_every_atom_costs_what_lemma_2_says(
    variance, shift, seed, error
):
    """Exact hockey-stick sums of perturbed laws, one coordinate, both directions, up to e^12."""
    rng = np.random.default_rng(seed)
    reach = 15 + int(12 * math.sqrt(variance))
    p = exact_profile.skellam_masses(variance, reach)
    off = np.clip(p + error * rng.uniform(-0.5, 0.5, p.size), 0, None)
    off /= off.sum()
    wrong = float(np.abs(off - p).max())
    distance = float(np.abs(off - p).sum()) / 2
    by_atoms = slack_by_atoms(
        skellam_law(variance), dimension=1, shift=shift, distance=distance, atom_error=wrong
    )
    pad = [(0, shift), (shift, 0)]
    ideal = [np.pad(p, width) for width in pad]
    real = [np.pad(off, width) for width in pad]
    for e in EPSILONS:
        for a, b in ((0, 1), (1, 0)):
            exact = exact_profile.profile(real[a], real[b], e)
            claimed = by_atoms.delta(
                lambda x, a=a, b=b: exact_profile.profile(ideal[a], ideal[b], x), e
            )
            assert exact <= claimed + 1e-15


def test_the_two_charges_for_a_sampler_are_worth_it_at_different_epsilons():
    """By distance while epsilon is small, by atoms when it is large."""
    noise = RoundedSkellam(
        1e4, 100.0, 2**20, 1e-16, 256, 0.6, sampler_distance=1e-21, atom_error=2.0**-119
    )
    by_distance, by_atoms = outside_by_distance(noise), outside_by_atoms(noise)
    assert by_distance.charge(1.0) < 1e-20
    assert by_distance.charge(60.0) == 1.0
    assert by_atoms.charge(60.0) < 1e-15
    assert by_atoms.stretch == 1e-8


@pytest.mark.parametrize("rounds", [45, 1500])
def test_a_large_epsilon_can_be_stated_and_is_that_of_the_gaussian(rounds):
    noise = RoundedSkellam(
        1e4, 100.0, 2**20, 1e-16, 256, 0.6, sampler_distance=1e-21, atom_error=2.0**-119
    )
    found = epsilon(noise, rounds=rounds, delta=1e-5)
    assert found == pytest.approx(epsilon(Skellam(1e4, 100.0), rounds=rounds, delta=1e-5), rel=0.03)


def test_sampled_releases_carry_the_samplers_slack_too():
    clean = Sampled(Skellam(1e4, 100.0, dimension=1000), 0.1)
    dirty = Sampled(
        Skellam(1e4, 100.0, dimension=1000, sampler_distance=1e-9, atom_error=1e-12), 0.1
    )
    assert epsilon(dirty, rounds=10, delta=1e-6) > epsilon(clean, rounds=10, delta=1e-6)


def test_without_a_bound_on_its_atoms_a_sampler_is_charged_by_distance():
    noise = Skellam(100.0, 1.0, sampler_distance=1e-20)
    assert outside_by_atoms(noise) == outside_by_distance(noise) == Slack(distance=1e-20)


def test_a_shift_beyond_the_table_leaves_no_atom_to_rely_on():
    law = skellam_law(1.0)
    by_atoms = slack_by_atoms(law, dimension=1, shift=1e6, distance=1e-30, atom_error=1e-30)
    assert by_atoms.rare == 1.0
    assert GdpCurve(1.0, by_atoms).epsilon(1e-6) == math.inf


@pytest.mark.parametrize("part", ["rare", "distance", "stretch"])
@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf])
def test_slack_is_finite_and_not_negative(part, value):
    with pytest.raises(DomainError, match=part):
        Slack(**{part: value})


def test_slack_adds_and_multiplies():
    assert Slack(1e-9, 2e-9, 3e-9) * 2 + NO_SLACK == Slack(2e-9, 4e-9, 6e-9)
