"""An app written as Flower's PyTorch quickstart is, protected by the diff in the guide."""

import importlib
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
from flwr.app import Context, RecordDict

from oracles.flower_guide import GUIDE, ROOT, environment, free_ports
from oracles.flower_superlink import end_managed_superlink
from skellam.engines.flower import InProcessGrid

PLAIN = ROOT / "tests" / "oracles" / "flower_quickstart"
CONFIG = {
    "num-server-rounds": 1,
    "fraction-train": 0.5,
    "local-epochs": 1,
    "batch-size": 32,
    "lr": 0.1,
}
METRICS = {f"{name}{end}" for name in ("train_loss", "eval_acc") for end in ("", "-low", "-high")}


def diff():
    (found,) = re.findall(r"```diff\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)
    return found


@pytest.fixture
def app(tmp_path):
    """The plain app with the guide's diff applied."""
    folder = tmp_path / "app"
    shutil.copytree(PLAIN, folder, ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        ["patch", "-p1"], input=diff(), cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_ten_lines_change_at_most():
    lines = diff().splitlines()
    added = [line for line in lines if line.startswith("+") and not line.startswith("+++")]
    removed = [line for line in lines if line.startswith("-") and not line.startswith("---")]
    assert len(removed) <= len(added) <= 10
    assert max(map(len, added)) <= 100


def test_the_protected_app_trains_and_reports_metrics_with_intervals(app, tmp_path, monkeypatch):
    """In this process, as if these were workers of a simulation."""
    monkeypatch.syspath_prepend(str(app))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flwr"))
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: True))
    for name in [name for name in sys.modules if name.partition(".")[0] == "quickstart"]:
        monkeypatch.delitem(sys.modules, name)
    client_app = importlib.import_module("quickstart.client_app").app
    server_app = importlib.import_module("quickstart.server_app")
    nodes = [{"partition-id": n, "num-partitions": 10} for n in range(10)]
    results = []
    start = server_app.FedAvg.start

    def remembered(self, *args, **kwargs):
        results.append(start(self, *args, **kwargs))
        return results[-1]

    monkeypatch.setattr(server_app.FedAvg, "start", remembered)
    context = Context(1, 1, {}, RecordDict(), CONFIG)
    server_app.app(InProcessGrid(client_app, nodes, run_config=CONFIG), context)
    (result,) = results
    assert (tmp_path / "final_model.pt").exists()
    found = {**result.train_metrics_clientapp[1], **result.evaluate_metrics_clientapp[1]}
    assert set(found) == METRICS
    for name in ("train_loss", "eval_acc"):
        assert found[f"{name}-low"] < found[name] < found[f"{name}-high"]


@pytest.mark.slow
def test_the_protected_app_runs_in_flowers_simulation(app, tmp_path):
    home = tmp_path / "flwr"
    # Another simulation, of another test or user, may have the default port.
    (port,) = free_ports(1)
    try:
        done = subprocess.run(
            ["flwr", "run", ".", "--stream", "--federation-config", "num-supernodes=10"],
            cwd=app,
            env=environment(home, FLWR_LOCAL_SUPERLINK_HTTP_API_PORT=str(port)),
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
    finally:
        end_managed_superlink(home)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text[-3000:]
    assert all(text.count(f"'{name}'") >= 3 for name in METRICS), text[-3000:]
