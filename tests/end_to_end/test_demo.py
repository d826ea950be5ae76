import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
def test_the_demo_trains_privately_to_95_per_cent_of_the_accuracy_without_privacy(tmp_path):
    """The ratio has a deviation of about one point around 97.7 %: a false alarm in 300."""
    folder = tmp_path / "run"
    outcome = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo.py", "--folder", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    share = float(re.search(r"private: ([0-9.]+)% of it", outcome.stdout)[1])
    assert share >= 95
    assert "without privacy" in outcome.stdout
    assert str(folder) in outcome.stdout.replace("\n", "")
    last = json.loads((folder / "history.jsonl").read_text().splitlines()[-1])
    assert last["epsilon_public"] <= 4
    header = json.loads((folder / "run.json").read_text())
    assert header["plan"]["delta"] <= 1 / 2000
    assert (header["aggregate"], header["replayable"]) == ("secure", False)
    assert header["population"] == "population 2000"
