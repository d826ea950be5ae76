"""Both ends of the range of Flower releases that pyproject.toml states, where both install."""

import os
import subprocess
import sys
from importlib.metadata import version

import pytest

from oracles.flower_guide import ROOT

OLDEST, NEWEST = "1.41.0", "1.42.0"
TESTS = (
    "rounds",
    "hostile_server",
    "hostile_nodes",
    "exploits",
    "metrics",
    "strategies",
    "simulation",
)
"""Those in which Flower's own code takes part in more than carrying bytes."""


def install(release, folder):
    """Put one release, without what it depends on, into ``folder``; return whether that worked."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    done = subprocess.run(
        [*command, str(folder), f"flwr=={release}"],
        capture_output=True,
        timeout=180,
        check=False,
    )
    return done.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("release", [OLDEST, NEWEST])
def test_rounds_and_refusals_hold_with_this_release(tmp_path, release):
    if version("flwr") == release:
        pytest.skip(f"flwr {release} is installed: the fast tests ran with it")
    if not install(release, tmp_path / "flwr"):
        pytest.skip(f"flwr {release} cannot be downloaded here")
    paths = [str(tmp_path / "flwr"), str(ROOT / "src")]
    script = (
        "import sys, flwr, pytest; print(flwr.__version__); sys.exit(pytest.main(sys.argv[1:]))"
    )
    options = ["-q", "-n0", "-p", "no:cacheprovider", "-m", "not slow"]
    tests = [f"tests/engines/flower/test_{name}.py" for name in TESTS]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *options, *tests],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert done.stdout.splitlines()[0] == release


def test_the_stated_range_begins_with_the_oldest():
    assert f"flwr[simulation]>={OLDEST.removesuffix('.0')},<2" in (
        ROOT / "pyproject.toml"
    ).read_text(encoding="utf-8")
