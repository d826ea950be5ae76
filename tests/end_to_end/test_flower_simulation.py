"""The example under Flower's own simulation: ten virtual clients, three rounds, offline."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from oracles.digits_by_local_engine import Partitions, example, rounds
from oracles.flower_guide import ROOT, blocks
from oracles.flower_replay_app import scripted
from oracles.flower_superlink import end_managed_superlink
from skellam.accounting.ledger import Ledger

CONFIG = {"num-rounds": 3, "dropout": 0.2, "colluding": 0.2}


@pytest.fixture
def home(tmp_path):
    yield tmp_path
    end_managed_superlink(tmp_path / ".flwr")


def shell(command, folder, home):
    """Run what a user types, in an environment that holds nothing but where programs are."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    # Where skellam is not installed but lies beside the tests.
    source = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    with (folder / "log").open("w") as log:
        subprocess.run(
            ["bash", "-ec", command],
            cwd=folder,
            env={"PATH": path, "HOME": str(home), **source},
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=900,
            check=True,
        )
    return (folder / "log").read_text()


def ledger(text, home):
    (run_id,) = re.findall(r"started run (\d+)", text)
    return Ledger.verify(home / ".flwr" / "skellam-simulation" / run_id / "server.ledger")


@pytest.mark.slow
def test_the_guides_command_runs_the_example_as_it_is_and_its_sums_are_exact(tmp_path, home):
    """First as the guide has it; then with noise that replays, against the local engine."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    text = shell(blocks()["simulate"], tmp_path, home)
    _, server = example()
    plan = server.plan_of(CONFIG, 10).calibrated(epsilon=10.0, delta=1e-5)
    assert len(re.findall(r"\d: \{'accuracy'", text)) == 4, text[-3000:]
    assert "released nothing" not in text
    assert "num-examples" not in text.replace("Weighted by: 'num-examples'", "")
    account = ledger(text, home)
    assert account.epsilon() == plan.privacy().epsilon
    assert len(account.spends) == 3

    app, out = tmp_path / "my-app", tmp_path / "sums.npz"
    scripted(app, out)
    text = shell(blocks()["simulate"].split("cd my-app\n")[1], app, home)
    assert out.exists(), text[-3000:]
    found = np.load(out)
    everybody = tuple(range(10))
    cast = [(everybody, everybody)] * 3
    for number, (expected, _) in enumerate(rounds(plan, Partitions(10, 0), cast, found), start=1):
        assert tuple(found[f"survivors-{number}"]) == everybody
        assert np.array_equal(found[f"total-{number}"], expected.total.values)
    assert len(ledger(text, home).spends) == 3
