"""The paper's grid from files in the real formats: killed, resumed and drawn."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from oracles.tff_files import write_hdf5
from skellam import federated as fl
from skellam.cli import app
from skellam.cli.reproduce import draw
from skellam.errors import DataError
from skellam.tasks import preset
from skellam.tasks.reproduction import GRIDS, Cell, Mechanism, Reproduction, Result, best

OPTIONS = [
    *("--rounds=3", "--cohort=10", "--population=3400", "--epsilon=8", "--bits=16", "--k=3"),
    *("--mechanism=gaussian", "--mechanism=paper"),
]


def emnist(folder):
    """Twelve writers with three images each, as TensorFlow Federated keeps them."""
    pixels = np.random.default_rng(1).random((3, 28, 28), dtype=np.float32) ** 0.1
    labels = np.array([0, 1, 61], dtype=np.int32)
    clients = {f"f{n:04d}": {"pixels": pixels, "label": labels} for n in range(12)}
    for split in ("train", "test"):
        write_hdf5(folder / f"fed_emnist_{split}.h5", clients)
    return folder


def shakespeare(folder):
    text = [b"to be, or not to be: that is the question " * 4]
    for split in ("train", "test"):
        clients = {f"PLAY_ROLE{n:02d}": {"snippets": text} for n in range(12)}
        write_hdf5(folder / f"shakespeare_{split}.h5", clients)


def stackoverflow(folder):
    sentences = [b"how to sort a list", b"sort it in place"]
    for split in ("train", "held_out", "test"):
        clients = {f"{n:08d}": {"tokens": sentences} for n in range(12)}
        write_hdf5(folder / f"stackoverflow_{split}.h5", clients)
    counts = {word: 1 for line in sentences for word in line.decode().split()}
    (folder / "stackoverflow.word_count").write_text(json.dumps(counts))


def command(data, folder):
    return ["reproduce", "emnist", "--data", str(data), "--folder", str(folder), *OPTIONS, "--json"]


def finished(folder):
    path = folder / "results.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def rounds_of(folder):
    return {p: p.read_text() for p in folder.glob("cells/*/history.jsonl")}


@pytest.mark.slow
def test_emnist_is_killed_resumed_and_drawn(tmp_path):
    data, folder = emnist(tmp_path), tmp_path / "out"
    code = "import sys; from skellam.cli import app; app(sys.argv[1:])"
    with subprocess.Popen([sys.executable, "-c", code, *command(data, folder)]) as process:
        deadline = time.monotonic() + 240
        while process.poll() is None and time.monotonic() < deadline:
            if any(rounds_of(folder).values()):
                break
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    before = rounds_of(folder)
    assert before, "the run never began"
    assert len(finished(folder)) < 2
    shown = CliRunner().invoke(app, command(data, folder))
    assert shown.exit_code == 0, shown.output
    after = rounds_of(folder)
    assert all(after[path].startswith(text) for path, text in before.items())
    record = json.loads(shown.stdout)
    assert (record["cells"], record["infeasible"]) == (2, {})
    lines = finished(folder)
    assert [len(Result.from_line(line).curve) for line in lines] == [3, 3]
    with Image.open(folder / "figure.png") as picture:
        assert picture.width > 1000
    again = CliRunner().invoke(app, command(data, folder))
    assert again.exit_code == 0, again.output
    assert "2 of 2 cells are recorded" in again.stderr
    assert finished(folder) == lines


@pytest.mark.slow
@pytest.mark.parametrize("task", ["shakespeare", "stackoverflow"])
def test_language_tasks_need_nothing_but_their_files(task, tmp_path):
    {"shakespeare": shakespeare, "stackoverflow": stackoverflow}[task](tmp_path)
    folder = tmp_path / "out"
    words = ["--rounds=1", "--cohort=10", "--population=3400", "--epsilon=8", "--mechanism=here"]
    shown = CliRunner().invoke(
        app, ["reproduce", task, "--data", str(tmp_path), "--folder", str(folder), *words, "--json"]
    )
    assert shown.exit_code == 0, shown.output
    sweeps = 2  # clips of Shakespeare, learning rates of Stack Overflow
    assert json.loads(shown.stdout)["cells"] == sweeps * len(GRIDS[task].here_bits)
    assert (folder / "figure.png").stat().st_size > 10_000


def test_a_folder_is_not_gone_on_with_under_other_settings(tmp_path):
    """Three rounds of a first try were taken for results of the paper's 1500."""
    task = fl.Task(torch.nn.Linear(2, 2), {"a": (np.ones((2, 2)), np.zeros(2, dtype=int))})
    made = Reproduction(replace(preset("emnist"), rounds=3), task, tmp_path / "out")
    made.require_same_settings()
    made.require_same_settings()
    with pytest.raises(DataError, match="runs with rounds 3, got 1500"):
        replace(made, preset=preset("emnist")).require_same_settings()


def test_seeds_are_drawn_as_means_with_bands(tmp_path, monkeypatch):
    found = []
    monkeypatch.setattr("skellam.cli.reproduce.panels", lambda path, grid, **_: found.append(grid))
    cells = [Cell(Mechanism.PAPER, 5.0, 16, 3, 0.25, 0.32, seed) for seed in range(3)]
    results = [
        Result(cell, accuracy=a, curve=((1, a / 2), (2, a)))
        for cell, a in zip(cells, (0.3, 0.4, 0.5), strict=True)
    ]
    draw(tmp_path / "figure.png", "emnist", results)
    over_epsilon, over_rounds = found[0].values()
    curve = cells[0].curve
    half = 4.302653 * 0.1 / 3**0.5
    assert over_epsilon[curve] == [pytest.approx((5.0, 0.4, half))]
    assert over_rounds[curve] == [
        pytest.approx((1, 0.2, half / 2)),
        pytest.approx((2, 0.4, half)),
    ]


def test_the_grid_is_the_papers():
    """60 runs for EMNIST; Shakespeare sweeps two clips and Stack Overflow two learning rates."""
    emnist_cells = [*GRIDS["emnist"].cells(preset("emnist"))]
    assert len(emnist_cells) == 3 * (2 + 2 * 4 * 2 + 2)
    assert {cell.clip for cell in emnist_cells} == {0.03}
    swept = {cell.clip for cell in GRIDS["shakespeare"].cells(preset("shakespeare"))}
    assert swept == {0.25, 0.5}
    rates = {c.learning_rate for c in GRIDS["stackoverflow"].cells(preset("stackoverflow"))}
    assert rates == {0.3, 1.0}
    assert len({cell.name for cell in emnist_cells}) == len(emnist_cells)


def test_the_best_of_a_sweep_is_reported():
    cells = [Cell(Mechanism.PAPER, 5.0, 16, 3, clip, 0.32, 0) for clip in (0.25, 0.5)]
    low, high = (Result(c, accuracy=a) for c, a in zip(cells, (0.3, 0.4), strict=True))
    nothing = Result(Cell(Mechanism.PAPER, 5.0, 12, 3, 0.25, 0.32, 0), "too few bits")
    assert best([low, high, nothing]) == [high]


def test_an_unknown_task_or_mechanism_is_named(tmp_path):
    for words in (["nothing"], ["mnist_writers", "--mechanism=magic"]):
        shown = CliRunner().invoke(
            app, ["reproduce", *words, "--data", str(tmp_path), "--folder", str(tmp_path)]
        )
        assert shown.exit_code == 1
