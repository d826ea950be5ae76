import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("kill_writers.py")


def kill(folder, kills, seed):
    command = [sys.executable, str(SCRIPT), str(folder), str(kills), str(seed)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 0, result.stderr
    return int(result.stdout)


def test_ten_killed_writers_lose_no_spend(tmp_path):
    assert kill(tmp_path, 10, seed=1) >= 10


@pytest.mark.slow
def test_two_hundred_killed_writers_lose_no_spend(tmp_path):
    assert kill(tmp_path, 200, seed=2) >= 200
