"""Guess who took part: only the right rotation makes a release integer.

On 0.1.0 the rotation depended on the list of members, so every guess of the list could be checked;
README.md has what these attacks achieved there. Where the rotation depends on nothing secret, all
lists are as likely as before, and blind guessing is all that is left.
"""

import numpy as np
import pytest

from privacy import releases
from privacy.attacks import best_guess, integrality, max_right

MIXES = {
    "skellam, unbiased": {"noise": "skellam", "rounding": "unbiased"},
    "skellam, conditional": {"noise": "skellam", "rounding": "conditional"},
    "discrete Gaussian, conditional": {
        "noise": "distributed-discrete-gaussian",
        "rounding": "conditional",
    },
}


def cohorts(rng, count, *, mean, population=200, least=3):
    """Return ``count`` lists of members, drawn as a Poisson cohort of ``least`` or more is."""
    found = []
    while len(found) < count:
        members = tuple(np.flatnonzero(rng.random(population) < mean / population).tolist())
        if len(members) >= least:
            found.append(members)
    return found


def scores(release, lists, derive):
    """Return how integer the release is under the rotation that each list implies."""
    known = {}
    found = []
    for members in lists:
        rotation = derive(release, members)
        key = releases.signs(rotation)
        if key not in known:
            known[key] = integrality(releases.rotated(release, rotation), release.plan.dimension)
        found.append(known[key])
    return found


def found_cohorts(run, made, rng, *, trials, candidates, derivation="library"):
    """Return how many of ``trials`` cohorts are found among as many candidates each."""
    right = 0
    for seed in range(trials):
        mean, least = releases.invited(made), releases.min_cohort(made)
        lists = cohorts(rng, candidates, mean=mean, least=least)
        truth = int(rng.integers(candidates))
        release = run(made, lists[truth], seed=seed)
        ranked = scores(release, lists, releases.DERIVATIONS[derivation])
        right += best_guess(ranked, rng) == truth
    return right


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("sampling", releases.SAMPLINGS)
def test_the_cohort_cannot_be_guessed_from_a_release(sampling, mix):
    made = releases.plan(sampling, **MIXES[mix])
    rng = np.random.default_rng(1)
    right = found_cohorts(releases.unmasked, made, rng, trials=4, candidates=128)
    assert right <= max_right(4, 1 / 128)


@pytest.mark.parametrize("sampling", releases.SAMPLINGS)
def test_nor_by_the_seed_of_0_1_0(sampling):
    rng = np.random.default_rng(1)
    right = found_cohorts(
        releases.unmasked,
        releases.plan(sampling),
        rng,
        trials=4,
        candidates=128,
        derivation="0.1.0",
    )
    assert right <= max_right(4, 1 / 128)


@pytest.mark.parametrize(
    "changes",
    [{"compression": 300}, {"quantile_noise": 0.1}, {"dropout": 0.1}, {"bits": 8}, {"bits": 16}],
    ids=lambda changes: next(iter(changes)) + str(next(iter(changes.values()))),
)
def test_nor_with_any_other_option_of_the_plan(changes):
    rng = np.random.default_rng(2)
    right = found_cohorts(
        releases.unmasked, releases.plan(**changes), rng, trials=4, candidates=128
    )
    assert right <= max_right(4, 1 / 128)


def test_nor_behind_secure_aggregation():
    rng = np.random.default_rng(3)
    right = found_cohorts(releases.secure, releases.plan(), rng, trials=4, candidates=128)
    assert right <= max_right(4, 1 / 128)


@pytest.mark.parametrize("sampling", [s for s in releases.SAMPLINGS if s not in ("all", "cyclic")])
def test_nor_from_the_releases_of_a_fleet(tmp_path, sampling):
    """Sixteen nodes; 300 lists of a likely size are candidates, and those that took part."""
    cohort = 8 if sampling == "self" else 13
    made = releases.plan(sampling, cohort=cohort, population=16, colluding=0.1)
    rounds = releases.flower(tmp_path, made, nodes=16, rounds=4, seed=sampling)
    assert len(rounds) >= 2
    rng = np.random.default_rng(4)
    likely = (tuple(np.flatnonzero(rng.random(16) < 0.8) + 1) for _ in range(300))
    lists = [c for c in likely if len(c) >= releases.min_cohort(made)]
    lists = sorted({*lists, *(members for _, members, _ in rounds)})
    for derive in releases.DERIVATIONS.values():
        guesses = [lists[best_guess(scores(r, lists, derive), rng)] for r, _, _ in rounds]
        right = sum(guess == c for guess, (_, c, _) in zip(guesses, rounds, strict=True))
        assert right <= max_right(len(rounds), 1 / len(lists))


def test_every_cohort_has_the_same_rotation_and_subset():
    """No statistics: the rotation is a function of plan, model and round."""
    made = releases.plan(compression=300)
    lists = cohorts(np.random.default_rng(5), 20, mean=20, least=releases.min_cohort(made))
    release = releases.unmasked(made, range(20), seed=0)
    rotations = [releases.rotation_by_library(release, c) for c in lists]
    assert len({releases.signs(rotation) for rotation in rotations}) == 1
    assert len({releases.subset(release, c) for c in lists}) == 1


def test_rounds_and_models_have_rotations_of_their_own():
    """Else noise and signal of two rounds would fall on the same coordinates."""
    made = releases.plan()
    found = {
        releases.signs(releases.rotation_by_library(release, range(20)))
        for release in (
            releases.unmasked(made, range(20), seed=0),
            releases.unmasked(made, range(20), seed=1),
            releases.unmasked(made, range(20), seed=0, number=1),
        )
    }
    assert len(found) == 3


def test_the_score_tells_the_right_rotation_from_wrong_ones():
    """The attack itself works: else the tests above would say nothing."""
    release = releases.unmasked(releases.plan(), range(20), seed=0)
    right = releases.rotated(release, releases.rotation_by_library(release, range(20)))
    assert integrality(right, 500) > 100
    wrong = [releases.rotation_of_0_1_0(release, [n]) for n in range(100, 300)]
    assert max(integrality(releases.rotated(release, w), 500) for w in wrong) < 10


@pytest.mark.slow
@pytest.mark.parametrize("derivation", releases.DERIVATIONS)
def test_no_cohort_is_found_among_4096(derivation):
    rng = np.random.default_rng(6)
    right = found_cohorts(
        releases.unmasked,
        releases.plan(),
        rng,
        trials=5,
        candidates=4096,
        derivation=derivation,
    )
    assert right <= max_right(5, 1 / 4096)


def decided_memberships(derivation, *, trials):
    """Return how often it is found out whether one client is in a cohort of about 100."""
    made = releases.plan(cohort=100, population=10_000, dimension=59_310, bits=8)
    rng = np.random.default_rng(7)
    right = 0
    for seed in range(trials):
        (others,) = cohorts(rng, 1, population=9_999, mean=99, least=60)
        lists = [others, (*others, 9_999)]
        truth = int(rng.integers(2))
        release = releases.unmasked(made, lists[truth], seed=seed)
        ranked = scores(release, lists, releases.DERIVATIONS[derivation])
        right += best_guess(ranked, rng) == truth
    return right


@pytest.mark.slow
@pytest.mark.parametrize("derivation", releases.DERIVATIONS)
def test_membership_of_one_client_cannot_be_decided(derivation):
    right = decided_memberships(derivation, trials=20)
    assert 20 - max_right(20, 0.5) <= right <= max_right(20, 0.5)
