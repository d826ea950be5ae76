import math

import pytest

from skellam.accounting import (
    Adjacency,
    Audience,
    Gaussian,
    Sampled,
    SampledKnownSize,
    SampledWithoutReplacement,
    Skellam,
    Unit,
    against_public,
    against_server,
    epsilon,
    replace_one,
)
from skellam.errors import DomainError

SCALE = 1000.0
EMNIST = Sampled(Skellam((0.8 * SCALE) ** 2, SCALE, dimension=2**20), 100 / 3400)
SETTING = {"rounds": 1500, "delta": 1 / 3400}


def test_the_server_is_told_more_than_the_public():
    """EMNIST at z = 0.8: 9.7 against the public, over 60 for 45 rounds of one's own."""
    public = against_public(EMNIST, **SETTING)
    mean, worst = (against_server(EMNIST, participations=n, delta=1 / 3400) for n in (45, 1500))
    assert public.epsilon == pytest.approx(9.74, abs=0.01)
    assert mean.epsilon == pytest.approx(63, abs=1)
    assert worst.epsilon > 1300
    assert (public.audience, mean.audience) == (Audience.PUBLIC, Audience.SERVER)


def test_self_sampling_amplifies_against_the_server_too():
    """441 invitations with a chance of 0.1 instead of 44 participations: 20 instead of 62."""
    plain = against_server(EMNIST, participations=45, delta=1 / 3400)
    own = against_server(EMNIST, participations=442, delta=1 / 3400, participation_probability=0.1)
    assert own.epsilon == pytest.approx(20.1, abs=0.5)
    assert own.epsilon < plain.epsilon


def test_without_sampling_both_audiences_see_the_same():
    noise = Gaussian(5.0, 1.0)
    public = against_public(noise, rounds=10, delta=1e-5)
    assert public.epsilon == against_server(noise, participations=10, delta=1e-5).epsilon


def test_the_server_pays_for_participations_alone():
    found = against_server(EMNIST, participations=3, delta=1e-5)
    assert found.epsilon == epsilon(EMNIST.mechanism, rounds=3, delta=1e-5)


def test_a_guarantee_states_what_it_assumes():
    public = against_public(EMNIST, **SETTING)
    assert public.unit is Unit.USER
    assert public.adjacency is Adjacency.ADD_REMOVE
    assert any("zeroed out" in line for line in public.assumptions)
    assert any("who took part" in line for line in public.assumptions)
    server = against_server(EMNIST, participations=44, delta=1e-5, participation_probability=0.1)
    assert any("at most 44 rounds" in line and "coin of 0.1" in line for line in server.assumptions)


def test_a_fixed_size_cohort_is_guaranteed_under_the_adjacency_of_its_noise():
    added, replaced = (
        against_public(SampledWithoutReplacement(noise, 100, 3400), **SETTING)
        for noise in (EMNIST.mechanism, replace_one(EMNIST.mechanism))
    )
    assert added.adjacency is Adjacency.ADD_REMOVE
    assert replaced.adjacency is Adjacency.REPLACE_ONE
    assert added.epsilon < 75 <= replaced.epsilon


def test_a_public_size_is_among_the_assumptions():
    found = against_public(SampledKnownSize(EMNIST.mechanism, 0.03, 3400), **SETTING)
    assert any("how many took part, but not who" in line for line in found.assumptions)


@pytest.mark.parametrize(
    "answer",
    [
        lambda: against_server(EMNIST, participations=0, delta=1e-5),
        lambda: against_server(EMNIST, participations=1, delta=1e-5, participation_probability=1.5),
        lambda: against_server(EMNIST, participations=1, delta=math.nan),
        lambda: against_public(EMNIST, rounds=0, delta=1e-5),
    ],
)
def test_bad_arguments_raise(answer):
    with pytest.raises(DomainError):
        answer()
