"""Guess how many took part, or dropped out: the noise in a release must have one law for all.

The attacker runs the library with either number, learns for every number that a release shows
where the two differ, and then decides which of the two a release is from. On 0.1.0 the variance
was ``mu n / (n - floor(dropout n) - floor(colluding n))``, less whatever dropped out; README.md has
what the attacks achieved there.
"""

import numpy as np
import pytest

from privacy import releases
from privacy.attacks import ALARM, distinguished, max_right, permutation_p

TRIALS = 40


def shown(release):
    """Return every number that a release shows of its spread."""
    x = release.vector.astype(float)
    square = float(np.mean(x**2))
    return {
        "variance": square,
        "kurtosis": float(np.mean(x**4)) / square**2,
        "largest": float(np.abs(x).max()),
        "wrap": release.wrap_k,
    }


def right_guesses(made, cases, *, engine="unmasked", trials=TRIALS, shadows=8):
    """Return how often each number told two cases apart: members, and who of them drops out."""
    run = releases.ENGINES[engine]

    def one(secret, seed):
        members, dropouts = cases[secret]
        return shown(run(made, range(members), dropouts=range(dropouts), seed=seed))

    rng = np.random.default_rng(11)
    return distinguished(one, shadows=shadows, trials=trials, rng=rng)


def assert_blind(right, trials=TRIALS):
    most = max_right(trials, 0.5, ALARM / len(right))
    assert all(trials - most <= count <= most for count in right.values()), right


SIZES = {
    "19 or 20": ((19, 0), (20, 0)),
    "none or one of 20 gone": ((20, 0), (20, 1)),
    "none or two of 20 gone": ((20, 0), (20, 2)),
    "19 of 19, or 18 of 20": ((19, 0), (20, 2)),
}


@pytest.mark.parametrize(
    ("sampling", "case"), [*(("poisson", case) for case in SIZES), ("self", "19 or 20")]
)
def test_neither_members_nor_dropouts_can_be_counted(sampling, case):
    made = releases.plan(sampling, population=1000, dimension=1 << 14, dropout=0.1)
    assert_blind(right_guesses(made, SIZES[case]))


@pytest.mark.parametrize("case", [((9, 0), (10, 0)), ((10, 0), (10, 2))], ids=str)
def test_nor_behind_secure_aggregation(case):
    made = releases.plan(cohort=10, population=1000, dimension=1 << 12, dropout=0.2)
    right = right_guesses(made, case, engine="secure", trials=20, shadows=3)
    assert_blind(right, trials=20)


@pytest.mark.parametrize("case", [((20, 0), (24, 0)), ((16, 0), (20, 0))])
def test_members_cannot_be_counted_by_discrete_gaussian_noise(case):
    """Either the noise has one law for every cohort, or a plan whose size is secret is refused."""
    changes = {"noise": "distributed-discrete-gaussian", "rounding": "conditional"}
    try:
        made = releases.plan(population=1000, dimension=1 << 14, **changes)
    except releases.REFUSED:
        return
    assert_blind(right_guesses(made, case))


@pytest.mark.parametrize(
    "changes",
    [
        {"dropout": 0.1},
        {"dropout": 0.07, "cohort": 107, "population": 5000},
        {"dropout": 0.3},
        {"dropout": 0.1, "quantile_noise": 0.1},
        {"colluding": 0.02, "cohort": 200, "population": 5000},
        {"noise": "distributed-discrete-gaussian", "rounding": "conditional"},
    ],
    ids=str,
)
@pytest.mark.parametrize("sampling", releases.AMPLIFIED)
def test_every_cohort_has_the_same_numbers(sampling, changes):
    """No statistics: scale, modulus, rounding and noise are functions of the plan."""
    try:
        made = releases.plan(sampling, **changes)
    except releases.REFUSED:
        if "noise" in changes:
            return
        raise
    least = releases.min_cohort(made)
    sizes = range(least, least + 60)
    assert len({releases.numbers(made, n) for n in sizes}) == 1


def flower_spread(folder, *, rounds, dimension, lost=()):
    """Return cohort sizes, survivors and spreads of a fleet's rounds."""
    changes = {"dropout": 0.25, "expected_dropout": 0.0, "colluding": 0.1}
    made = releases.plan(cohort=13, population=16, dimension=dimension, **changes)
    found = releases.flower(folder, made, nodes=16, rounds=rounds, seed="spread", lost=lost)
    sizes = [len(members) for _, members, _ in found]
    survivors = [len(alive) for _, _, alive in found]
    return sizes, survivors, [shown(release)["variance"] for release, _, _ in found]


def surplus_of_0_1_0(members, survivors):
    """Return the variance that 0.1.0 left in the sum, over the one that was planned."""
    return survivors / (members - members // 4)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [(), (0, 5)], ids=["nobody drops out", "two may drop out"])
def test_a_fleets_cohorts_cannot_be_counted(tmp_path, lost):
    """Cohorts are as the coins fall; their sizes and the spreads must not go together."""
    sizes, survivors, spreads = flower_spread(tmp_path, rounds=40, dimension=1 << 12, lost=lost)
    rng = np.random.default_rng(12)
    known = [surplus_of_0_1_0(n, m) for n, m in zip(sizes, survivors, strict=True)]
    assert len(set(sizes)) > 3
    for secret in (sizes, survivors, known):
        assert permutation_p(secret, spreads, rng) > ALARM / 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        ((19, 0), (20, 0)),
        ((20, 0), (21, 0)),
        ((20, 0), (20, 1)),
        ((20, 1), (20, 2)),
        ((20, 0), (20, 2)),
    ],
    ids=str,
)
def test_members_and_dropouts_cannot_be_counted_in_2_to_the_18_coordinates(case):
    made = releases.plan(population=1000, dimension=1 << 18, dropout=0.1)
    assert_blind(right_guesses(made, case, trials=60, shadows=12), trials=60)
