import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from oracles.tiny_task import plan
from skellam.accounting.ledger import Ledger

SCRIPT = Path(__file__).with_name("kill_training.py")


def kill(folder, kills, entropy, noise="independent"):
    command = [sys.executable, str(SCRIPT), str(folder), str(kills), entropy, noise]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 0, result.stderr
    return int(result.stdout)


def same(folder, name):
    return (folder / "killed" / name).read_bytes() == (folder / "whole" / name).read_bytes()


@pytest.mark.slow
def test_a_seeded_run_killed_ten_times_ends_as_if_nothing_had_happened(tmp_path):
    assert kill(tmp_path, 10, "seeded") >= 3
    assert same(tmp_path, "ledger")
    assert same(tmp_path, "history.jsonl")
    assert same(tmp_path, "run.json")
    models = [torch.load(tmp_path / run / "model.pt") for run in ("killed", "whole")]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[1])
    killed, whole = (np.load(tmp_path / run / "checkpoint.npz") for run in ("killed", "whole"))
    assert set(killed) == set(whole)
    assert "clip" in whole
    assert all(np.array_equal(killed[name], whole[name]) for name in whole)


@pytest.mark.slow
def test_a_secret_run_killed_ten_times_forgets_no_release_that_was_seen(tmp_path):
    kills = kill(tmp_path, 10, "secret")
    assert kills >= 3
    account = Ledger.verify(tmp_path / "killed" / "ledger")
    spent = len(account.spends)
    finished = (tmp_path / "killed" / "history.jsonl").read_text().count("\n")
    shown = len((tmp_path / "shown").read_text().split())
    # Each kill wastes one round at most; the budget, the plan's own, then ends the run earlier.
    assert shown <= spent <= finished + kills
    planned = plan(rounds=40, cohort=10, quantile_noise=0.1, expected_dropout=0.1)
    assert account.epsilon() <= planned.privacy().epsilon


@pytest.mark.slow
def test_a_seeded_run_with_a_band_killed_five_times_releases_the_same_numbers(tmp_path):
    assert kill(tmp_path, 5, "seeded", "correlated") >= 2
    assert same(tmp_path, "ledger")
    assert same(tmp_path, "history.jsonl")
    killed, whole = (np.load(tmp_path / run / "checkpoint.npz") for run in ("killed", "whole"))
    assert "earlier" in whole
    assert np.array_equal(killed["model"], whole["model"])


@pytest.mark.slow
def test_a_secret_run_with_a_band_never_opens_a_round_again(tmp_path):
    kills = kill(tmp_path, 5, "secret", "correlated")
    assert kills >= 2
    lines = (tmp_path / "killed" / "history.jsonl").read_text().splitlines()
    skipped = [line for line in lines if "cut off" in line]
    assert len(lines) == 40
    assert len(skipped) <= kills
    shown = [int(n) for n in (tmp_path / "shown").read_text().split()]
    assert len(shown) == len(set(shown))
    # 40 rounds of three groups: nobody's data is in more than 14 of them.
    assert len(Ledger.verify(tmp_path / "killed" / "ledger").spends) <= 14
