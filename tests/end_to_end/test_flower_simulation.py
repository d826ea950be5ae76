"""The example under Flower's own simulation: ten virtual clients, three rounds, offline."""

import re
import shutil
import subprocess

import numpy as np
import pytest

from oracles.digits_by_local_engine import Partitions, example, rounds
from oracles.flower_guide import ROOT, blocks, environment
from oracles.flower_replay_app import make_replayable
from oracles.flower_superlink import end_managed_superlink
from skellam.accounting.ledger import Ledger


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "flwr"
    yield folder
    end_managed_superlink(folder)


@pytest.mark.slow
def test_the_example_runs_in_simulation_and_gives_what_the_local_engine_gives(tmp_path, home):
    copy, run = blocks()["simulate"].split("cd my-app\n")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    env = environment(home)
    subprocess.run(["bash", "-ec", copy], cwd=tmp_path, env=env, check=True, timeout=30)
    make_replayable(tmp_path / "my-app", tmp_path / "sums.npz")
    log = tmp_path / "log"
    with log.open("w") as file:
        subprocess.run(
            ["bash", "-ec", run],
            cwd=tmp_path / "my-app",
            env=env,
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=270,
            check=True,
        )
    text = log.read_text()
    assert (tmp_path / "sums.npz").exists(), text[-3000:]
    found = np.load(tmp_path / "sums.npz")
    _, server = example()
    config = {"num-rounds": 3, "dropout": 0.2, "colluding": 0.2}
    plan = server.plan_of(config, 10).calibrated(epsilon=10.0, delta=1e-5)
    everybody = tuple(range(10))
    cast = [(everybody, everybody)] * 3
    for number, (expected, _) in enumerate(rounds(plan, Partitions(10, 0), cast, found), start=1):
        assert tuple(found[f"survivors-{number}"]) == everybody
        assert np.array_equal(found[f"total-{number}"], expected.total.values)
    (run_id,) = re.findall(r"started run (\d+)", text)
    account = Ledger.verify(home / "skellam-simulation" / run_id / "server.ledger")
    assert account.epsilon() == plan.privacy().epsilon
    assert len(account.spends) == 3
    assert "num-examples" not in text.replace("Weighted by: 'num-examples'", "")
