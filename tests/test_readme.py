"""README's Python blocks run as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
COMMANDS = re.findall(r"`(python -m [^`]*)`", README.read_text())
for page in ("benchmarks.md", "figures.md"):
    text = (ROOT / "docs" / page).read_text()
    COMMANDS += re.findall(r"^python -m [^#\n]*", text, flags=re.MULTILINE)


def test_readme_has_examples():
    assert BLOCKS


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_readme_runs(block, tmp_path):
    outcome = subprocess.run(
        [sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_shows_a_claim_runs(command, tmp_path):
    outcome = subprocess.run(
        [sys.executable, *command.split()[1:]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout
