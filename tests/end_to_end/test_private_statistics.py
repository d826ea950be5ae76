"""The examples of private statistics, on real data where it is at hand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("SKELLAM_DATA", "data"))


def run(name, *arguments, data=DATA):
    command = [sys.executable, ROOT / "examples" / name, "--data", data, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def require(file):
    if not (DATA / file).exists():
        pytest.skip(f"set SKELLAM_DATA to the folder with {file}")


@pytest.mark.parametrize(
    "name", ["words_per_user.py", "characters_per_writer.py", "adaptive_clipping.py"]
)
def test_an_example_without_its_data_says_where_to_get_it(name, tmp_path):
    outcome = run(name, data=tmp_path)
    assert outcome.returncode == 1
    assert "pass --data or set SKELLAM_DATA" in outcome.stderr


@pytest.mark.slow
def test_words_per_user(tmp_path):
    require("stackexchange_users.json.gz")
    outcome = run("words_per_user.py", "--picture", tmp_path / "words.png")
    assert outcome.returncode == 0, outcome.stderr
    assert "4,019 users" in outcome.stdout
    assert (tmp_path / "words.png").stat().st_size > 10_000


@pytest.mark.slow
def test_characters_per_writer(tmp_path):
    """Each of 62 intervals misses the truth once in 1240 runs; four of them at once in millions."""
    require("unipen28.npz")
    outcome = run("characters_per_writer.py", "--picture", tmp_path / "characters.png")
    assert outcome.returncode == 0, outcome.stderr
    assert "Characters a writer" in outcome.stdout
    rows = re.findall(r"([\d-]+) to ([\d-]+) │\s*(\d+) │", outcome.stdout)
    assert len(rows) == 12
    assert sum(int(low) <= int(truth) <= int(high) for low, high, truth in rows) >= 9
    assert (tmp_path / "characters.png").stat().st_size > 10_000


@pytest.mark.slow
def test_an_adaptive_clip_reaches_the_best_fixed_one_but_for_a_point():
    """Seeded, at the same epsilon; another seed moves either by 0.3 of a point."""
    require("mnist_writers.npz")
    outcome = run("adaptive_clipping.py")
    assert outcome.returncode == 0, outcome.stderr
    rows = re.findall(r"(fixed|adaptive)\D.*?│\s*([\d.]+) +│\s*([\d.]+)%", outcome.stdout)
    assert len({epsilon for _, epsilon, _ in rows}) == 1
    best = max(float(accuracy) for kind, _, accuracy in rows if kind == "fixed")
    (adaptive,) = (float(accuracy) for kind, _, accuracy in rows if kind == "adaptive")
    assert adaptive >= best - 1
