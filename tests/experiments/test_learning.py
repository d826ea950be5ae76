"""Recorded training runs: what they show, and that one of them is reached again."""

import os
from pathlib import Path

import pytest
from experiments.document import tables, written
from experiments.figure import make, read
from experiments.learning import FIGURES
from experiments.paired import rows
from experiments.runs import (
    COMPRESSED,
    EIGHT,
    GAUSSIAN,
    GAUSSIAN_RDP,
    IMAGES,
    LANGUAGE,
    PAPER_SIZE,
    SETTINGS,
    TWELVE,
    WAYS,
    WORDS,
    Run,
    cells,
    distributed,
    paper,
    recorded,
    run,
)

from skellam import tasks

DATA = Path(os.environ.get("SKELLAM_DATA", "data"))
MIDDLE = 4.0
needs_data = pytest.mark.skipif(
    not DATA.exists(), reason="set SKELLAM_DATA to the folder with the data sets"
)


def row(task, way, epsilon=MIDDLE):
    return next(r for r in rows(task) if (r.way, r.epsilon) == (way, epsilon))


COMPARED = [
    (task, way, epsilon, points)
    for task in IMAGES
    for way, points in ((EIGHT, 1.05), (TWELVE, 0.15), (COMPRESSED, 2.0))
    for epsilon in {r.epsilon for r in rows(task) if r.way == way and r.seeds >= 3}
]


def test_every_task_of_images_has_paired_runs():
    assert {task for task, *_ in COMPARED} == {*IMAGES}


@pytest.mark.parametrize(("task", "way", "epsilon", "points"), COMPARED)
def test_skellam_noise_costs_little_beside_central_gaussian_noise(task, way, epsilon, points):
    """In the mean over seeds: 12 bits nothing, 8 bits a point, two bits a parameter two."""
    found = row(task, way, epsilon)
    assert found.seeds >= 3
    assert found.tight.mean > -points


@pytest.mark.parametrize("task", IMAGES)
@pytest.mark.parametrize("way", [GAUSSIAN, EIGHT])
def test_accuracy_rises_with_epsilon(task, way):
    """Over the seeds that all epsilons have."""
    runs = [r for r in recorded(task) if r.cell.way == way and r.cell.seed < 5]
    epsilons = sorted({r.cell.epsilon for r in runs})
    reached = [sum(r.accuracy for r in runs if r.cell.epsilon == e) for e in epsilons]
    assert len(runs) == 5 * len(epsilons) == 15
    assert reached == sorted(set(reached))


def test_the_grid_pairs_every_method_with_five_seeds_and_those_of_the_claims_with_twenty():
    """What `experiments.record` trains: the methods, epsilons and seeds that are asked for."""
    grid = {task: [*cells(task)] for task in SETTINGS}
    for task in IMAGES:
        seeds = {(c.way, c.epsilon): 0 for c in grid[task]}
        for cell in grid[task]:
            seeds[cell.way, cell.epsilon] += 1
        many = (GAUSSIAN, GAUSSIAN_RDP, EIGHT, TWELVE, paper(16, 4), distributed(4))
        assert {key for key, count in seeds.items() if count == 20} == {(w, MIDDLE) for w in many}
        assert {*seeds.values()} == {5, 20}
        assert {way for way, epsilon in seeds if epsilon == MIDDLE} == {*WAYS}
        assert {epsilon for way, epsilon in seeds if way == paper(16, 4)} == {2.0, 4.0, 8.0}
    for task in LANGUAGE:
        assert {c.seed for c in grid[task]} == {0, 1, 2}
        assert {c.epsilon for c in grid[task]} == {4.0, 8.0}
    assert {c.seed for c in grid[PAPER_SIZE]} == {0, 1}


def test_a_run_reads_back_as_it_was_written():
    first = recorded("mnist_writers")[0]
    assert Run.from_line(first.to_line()) == first


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_training_figures_are_drawn_from_recorded_runs(figure, tmp_path):
    table, picture = make(figure, figure.spec, tmp_path)
    spec, points = read(table)
    assert spec["repeat"] == "python -m experiments.record"
    assert {point.panel for point in points} <= set(spec["panels"])
    assert len({point.panel for point in points}) > 1
    assert all(0 <= point.y <= 100 for point in points)
    assert picture.stat().st_size > 10_000


def test_the_documentation_shows_what_is_recorded():
    for path, found in tables().items():
        page = path.read_text(encoding="utf-8")
        for name, table in found.items():
            assert written(page, name, table) == page


@needs_data
def test_private_language_models_do_better_than_the_commonest_target():
    made = (tasks.shakespeare_roles(DATA), tasks.stackexchange(DATA, words=WORDS))
    for task, whole in zip(LANGUAGE, made, strict=True):
        baseline = 100 * tasks.unigram_accuracy(whole)
        assert row(task, TWELVE, 8.0).accuracy > 1.2 * baseline


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("task", ["mnist_writers", *LANGUAGE, PAPER_SIZE])
def test_a_recorded_cell_is_reached_again(task):
    """Seeds replay; what two processors round apart moves accuracies by less than a point."""
    before = recorded(task)[0]
    again = run(before.cell, before.setting, DATA)
    assert again.noise_multiplier == pytest.approx(before.noise_multiplier, rel=1e-3)
    assert again.accuracy == pytest.approx(before.accuracy, abs=0.01)
    assert again.plan().noise_multiplier == pytest.approx(again.noise_multiplier, rel=1e-12)
    assert again.plan().privacy().epsilon <= before.cell.epsilon
