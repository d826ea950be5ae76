"""What the guide says about a clip that adapts is what was recorded, and the bar holds in it."""

from pathlib import Path
from statistics import fmean

from experiments.clipping import recorded, table

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "analytics.md"
RUNS = recorded()


def accuracies(kind):
    ways = {run.way for run in RUNS if run.way.startswith(kind)}
    return {way: fmean(run.test_accuracy for run in RUNS if run.way == way) for way in ways}


def test_the_guide_has_the_recorded_rows():
    assert "\n".join(table(RUNS, "linear")) in GUIDE.read_text(encoding="utf-8")


def test_from_far_below_and_far_above_it_reaches_the_best_fixed_clip_but_for_a_point():
    best = max(accuracies("fixed").values())
    assert accuracies("adaptive").keys() == {"adaptive from 0.03", "adaptive from 3"}
    assert all(accuracy >= best - 0.01 for accuracy in accuracies("adaptive").values())


def test_every_way_has_the_same_epsilon_and_the_same_seeds():
    assert len({round(run.epsilon, 6) for run in RUNS}) == 1
    ways = {run.way for run in RUNS}
    assert all([run.seed for run in RUNS if run.way == way] == [0, 1, 2] for way in ways)
