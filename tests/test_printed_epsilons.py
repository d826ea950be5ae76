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


def test_a_plan_that_was_changed_costs_what_the_advisory_says():
    plan = sk.Plan(dimension=1000, clip=1.0, cohort=100, population=10_000, rounds=200)
    z = plan.calibrated(epsilon=4, delta=1e-6).noise_multiplier
    longer = replace(plan, rounds=4000).with_noise(z, delta=1e-6)
    said = f"still had the field `epsilon` 4 where {rounded_up(longer.privacy().epsilon)} was true"
    assert said in page("docs/explain/advisories.md")


@pytest.mark.parametrize(("sampling", "more"), [("poisson", "0.7 %"), ("fixed", "1 %")])
def test_dropouts_cost_what_the_changelog_says(sampling, more):
    plan = sk.Plan(
        dimension=1000, clip=1.0, cohort=100, population=3400, rounds=100, sampling=sampling
    )
    without, with_ = (
        replace(plan, dropout=dropout).with_noise(2.0, delta=1e-6).privacy().epsilon
        for dropout in (0.0, 0.1)
    )
    assert f"{100 * (with_ / without - 1):.1g} %" == more
    assert f"larger by {more} (" in page("CHANGELOG.md")


def test_the_papers_first_figure_has_the_numbers_of_its_page():
    from experiments import composition

    spec = {**composition.FIGURE.spec, "rounds": [1000]}
    cost = {point.curve: f"{point.y:.4g}" for point in composition.points(spec)}
    direct = float(cost["Skellam (direct, advanced composition)"])
    paper = cost["Skellam (RDP, the paper's bound)"]
    said = page("docs/paper.md")
    assert (
        f"Skellam {cost['Skellam (PLD)']} by PLD, "
        f"{paper} by the paper's RDP, "
        f"{cost['Skellam (exact RDP, here)']} by exact RDP; "
        f"Gaussian {cost['Gaussian (RDP)']} by RDP; "
        f"discrete Gaussian {cost['discrete Gaussian (PLD)']} by PLD; "
        f"discrete Laplace {cost['discrete Laplace (PLD)']}; "
        f"direct analysis with advanced composition {direct:.0f}"
    ) in said
    skellam = float(cost["Skellam (PLD)"])
    assert f"{direct:.0f} against {skellam:.1f} after 1000 releases" in said


def test_the_papers_second_figure_has_the_numbers_of_its_page():
    from experiments import scalar_queries

    spec = {**scalar_queries.FIGURE.spec, "panels": {"": [1.0, 10.0]}}
    found = {(p.x, p.curve): p.y for p in scalar_queries.points(spec)}
    skellam, shares, central = (
        f"{curve} (RDP{by}), s = "
        for curve, by in (
            ("Skellam", ", the paper's bound"),
            ("distributed discrete Gaussian", ""),
            ("central discrete Gaussian", ""),
        )
    )
    said = page("docs/paper.md")
    assert f"{found[10, skellam + '10']:.4f}" == f"{found[10, 'Gaussian (RDP)']:.4f}"
    assert (
        f"Skellam {found[10, skellam + '10']:.4f} by the paper's RDP, as the Gaussian; the "
        f"distributed discrete Gaussian of 10,000 shares {found[10, shares + '10']:.4f}, and "
        f"{found[10, shares + '1']:,.0f} without scaling; the central one "
        f"{found[10, central + '10']:.4f}"
    ) in said
    scaled, gaussian = found[1, skellam + "100"], found[1, "Gaussian (RDP)"]
    assert f"{scaled:.4f} against {gaussian:.4f} at sigma 1" in said


def test_the_papers_third_figure_has_the_numbers_of_its_page():
    from experiments import real_queries

    panel = "EMNIST: d = 2^20, n = 100 of 3400, 1500 releases"
    setting = real_queries.FIGURE.spec["panels"][panel]
    spec = {"panels": {panel: {**setting, "multipliers": [1.0], "scales": [10_000]}}}
    cost = {p.curve.removesuffix(", s = 10000"): p.y for p in real_queries.points(spec)}
    rdp, tight, paper, here = (
        f"{cost[curve]:.2f}"
        for curve in (
            "Gaussian (RDP)",
            "Gaussian (tight)",
            "Skellam (the paper)",
            "Skellam (rounding accounted, here)",
        )
    )
    assert f"{cost['distributed discrete Gaussian']:.2f}" == paper
    said = page("docs/paper.md")
    assert (
        f"Gaussian {rdp} by RDP and {tight} tightly; Skellam and the discrete Gaussian of the "
        f"paper {paper}; ours {here}"
    ) in said
    lost = cost["Skellam (the paper)"] / cost["Gaussian (RDP)"] - 1
    assert f"the paper loses {100 * lost:.0f} % of epsilon" in said
    assert f"EMNIST's setting {here} instead of {paper}" in said


def test_training_has_the_noise_of_the_papers_page():
    """The noise of each plan, calibrated anew."""
    from experiments.runs import recorded

    runs = {run.cell.way: run for run in recorded("mnist_writers") if run.cell.epsilon == 4}
    noise = {way: f"{run.plan().noise_multiplier:.3f}" for way, run in runs.items()}
    ways = ("central Gaussian", "central Gaussian (RDP)", "Skellam (the paper), 16 bits, k = 4")
    tight, rdp, paper = (noise[way] for way in ways)
    for kind in ("distributed", "central"):
        assert noise[f"{kind} discrete Gaussian, 16 bits, k = 4"] == paper
    assert (
        f"`mnist_writers` at epsilon 4: noise multiplier {tight} for the tightly accounted "
        f"Gaussian, {rdp} under RDP, {paper} for the paper and both discrete Gaussians at 16 bits; "
        f"ours {noise['Skellam (here), 12 bits']} with 12 bits and "
        f"{noise['Skellam (here), 8 bits']} with 8"
    ) in page("docs/paper.md")
