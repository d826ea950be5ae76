"""The examples and notebooks that people copy from run, and show what they say."""

import itertools
import json
import runpy
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def _one_thread():
    """torch's threads wait for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_regression_on_a_table_learns_with_and_without_privacy():
    """Always naming the mean has an error of 1.3, the customers' own habits leave 0.24.

    The noise in a step is 0.2 z / 100 a coordinate, far below what either bound leaves.
    """
    errors = runpy.run_path(str(EXAMPLES / "regression.py"))["main"](rounds=25)
    assert 0.2 < errors["without privacy"] < 0.6
    assert 0.2 < errors["private"] < 0.6


@pytest.mark.slow
@pytest.mark.parametrize("package", ["none", "peft"])
def test_private_adapters_make_a_pretrained_model_better(package):
    """A shortened run; in earnest it has more users, rounds and steps."""
    sizes = ["--users=60", "--cohort=20", "--rounds=6", "--pretraining=120"]
    if package == "peft":
        pytest.importorskip("peft")  # optional: it brings transformers along
        sizes.append("--peft")
    main = runpy.run_path(str(EXAMPLES / "adapters.py"))["main"]
    before, private, best = main(sizes).values()
    assert private < before
    assert best < before


def epsilons(text):
    return [line for line in text.splitlines() if line.startswith("epsilon")]


@pytest.mark.parametrize("name", ["regression", "digits"])
def test_a_notebook_runs_from_top_to_bottom_and_stores_what_it_prints(name, capsys):
    notebook = json.loads((EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8"))
    names = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{name}.ipynb", "exec"), names)
            stored = [x["text"] for x in cell["outputs"] if x["output_type"] == "stream"]
            printed = capsys.readouterr().out
            assert bool(stored) is bool(printed)
            assert epsilons("".join(itertools.chain(*stored))) == epsilons(printed)
    if name == "regression":
        assert names["errors"]["private"] < 0.6
    else:
        assert names["accuracies"][0] > 0.5
        assert names["model"](torch.from_numpy(names["images"])).shape == (5, 10)
