"""Epsilons that README, the documentation and the changelog print, computed again.

Blocks of code on these pages run in `test_readme.py` and `test_docs.py`, the table of recorded runs
is in `experiments/test_epsilons.py`, and dp_accounting's in `accounting`.
"""

import math
from dataclasses import replace
from pathlib import Path

import pytest

import skellam as sk
from skellam import tasks
from skellam.accounting import (
    Gaussian,
    Sampled,
    SampledKnownSize,
    SampledWithoutReplacement,
    epsilon,
    replace_one,
)
from skellam.accounting.guarantee import rounded_up
from skellam.accounting.pld import gaussian_pld, mechanism_pld, mixed

ROOT = Path(__file__).parents[1]


def page(name):
    """Return the words of a page, one blank between them."""
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


def test_the_demo_costs_what_readme_says():
    settings = tasks.preset("digits")
    plan = settings.plan(settings.task(), epsilon=4.0, dropout=0.1)
    public, server, mean = plan.guarantees()
    said = (
        f"against the server {rounded_up(server.epsilon)} for every client, none of which is in "
        f"more than {plan.participations} rounds, and {rounded_up(mean.epsilon)} for a client "
        f"with the mean of {plan.mean_participations()} rounds"
    )
    assert said in page("README.md")
    assert public.epsilon <= 4


def test_emnist_costs_what_the_pages_say():
    plan = sk.Plan(
        dimension=1_018_174, clip=0.03, bits=12, cohort=100, population=3400, rounds=1500
    ).calibrated(epsilon=10, delta=1 / 3400)
    public, server, mean = (f"{math.ceil(10 * g.epsilon) / 10:g}" for g in plan.guarantees())
    most, usual = plan.participations, plan.mean_participations()
    explained = page("docs/explain/epsilons.md")
    assert f"# {public}, {server}, {most}" in explained
    assert f"# {mean}, {usual}" in explained
    assert f"Ten against the public is {server} against the server for every client" in explained
    changes = page("CHANGELOG.md")
    assert f"larger: {server} for the paper's EMNIST setting at epsilon 10" in changes
    assert (
        f"every client ({most} rounds), where the mean client ({usual} rounds, {mean})" in changes
    )
    noisy = Sampled(Gaussian(0.8, 1.0), 100 / 3400)
    assert rounded_up(epsilon(noisy, rounds=1500, delta=1 / 3400)) == "9.74"
    assert "rounds=1500, delta=1 / 3400)) # 9.74" in page("README.md")


SAMPLINGS = {
    "`poisson`": {},
    "`self`, probability 0.1": {"sampling": "self", "participation_probability": 0.1},
    "`fixed`": {"sampling": "fixed"},
    "`cyclic`": {"sampling": "cyclic"},
}


@pytest.mark.parametrize("name", SAMPLINGS)
def test_each_sampling_costs_what_its_row_says(name):
    poisson = sk.Plan(dimension=1000, clip=1.0, cohort=100, population=10_000, rounds=200)
    plan = replace(poisson, **SAMPLINGS[name]).calibrated(epsilon=4, delta=1e-6)
    public, server, _ = plan.guarantees()
    noise, *costs = (
        math.ceil(10**digits * x) / 10**digits
        for digits, x in ((3, plan.noise_multiplier), (1, public.epsilon), (1, server.epsilon))
    )
    row = f"| {name} | {noise:.3f} | {plan.participations} | {costs[0]:g} | {costs[1]:g} |"
    assert row in page("docs/explain/epsilons.md")


def test_a_rotation_that_tells_the_members_costs_what_the_advisory_says():
    """Who knows the members sees a Gaussian release in the rounds that the user is in."""
    plan = sk.Plan(dimension=1000, clip=1.0, cohort=100, population=10_000, rounds=200)
    z = plan.calibrated(epsilon=4, delta=1e-6).effective_multiplier
    known = mixed([(0.01, gaussian_pld(z))]) * 200
    assert f"{known.epsilon(1e-6):.3g}" == "22.7"
    for name in ("docs/explain/advisories.md", "CHANGELOG.md"):
        assert "22.7" in page(name)


def test_small_rates_cost_what_the_changelog_says():
    found = epsilon(Sampled(Gaussian(1.0, 1.0), 1e-4), rounds=10**6, delta=1e-6)
    assert f"smaller: {rounded_up(found)} in place of 0.6016" in page("CHANGELOG.md")


SIZED = [
    (2.0, 20, 200, 20, 1e-6),
    (4.0, 50, 100, 50, 1e-6),
    (1.0, 1, 100, 10, 1e-6),
    (3.0, 10, 1000, 300, 1e-6),
    (0.8, 100, 3400, 1500, 1 / 3400),
]


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "cohort", "population", "rounds", "delta"), SIZED)
def test_cohorts_of_known_size_cost_what_their_row_says(sigma, cohort, population, rounds, delta):
    noise = Gaussian(sigma, 1.0)
    fixed = mechanism_pld(SampledWithoutReplacement(noise, cohort, population)) * rounds
    others = (
        SampledKnownSize(noise, cohort / population, population),
        SampledWithoutReplacement(replace_one(noise), cohort, population),
    )
    costs = [epsilon(other, rounds=rounds, delta=delta) for other in others]
    shown = [fixed.remove.epsilon(delta), fixed.add.epsilon(delta), *costs]
    note = "" if delta == 1e-6 else " (delta 1/3400)"
    row = f"| {sigma:g}, {cohort} of {population}, {rounds}{note} | "
    text = page("docs/maths/fixed_size.md")
    assert row + " | ".join(map(rounded_up, shown)) + " |" in text
    poisson = epsilon(Sampled(noise, cohort / population), rounds=rounds, delta=delta)
    assert f"| {rounded_up(poisson)} |" in text[text.index(row) :]


def test_clips_that_adapt_cost_what_the_guide_says():
    from experiments import clipping

    plan = next(run for run in clipping.recorded() if run.model == "linear").plan()
    public, server, _ = plan.guarantees()
    said = page("docs/guide/analytics.md")
    assert f"epsilon {public.epsilon:.2f} at delta 1e-3 against the public" in said
    assert f"and {server.epsilon:.1f} against the server for every client" in said
