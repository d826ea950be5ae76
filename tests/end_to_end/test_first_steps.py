"""A new user's first steps: a fresh clone, README and the quickstart, and nothing else."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = re.compile(r"```python\n(.*?)```", flags=re.DOTALL)
SHELL = re.compile(r"```sh\n(.*?)```", flags=re.DOTALL)

pytestmark = pytest.mark.slow


@pytest.fixture
def clone(tmp_path):
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout")
    folder = tmp_path / "skellam"
    subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
    tools = folder / "tools"
    tools.mkdir()
    code = "import sys; sys.argv[0] = 'skellam'; from skellam.cli import app; app()"
    (tools / "skellam").write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{code}" "$@"\n')
    (tools / "skellam").chmod(0o755)
    return folder


def run(clone, *words):
    outcome = subprocess.run(
        words,
        cwd=clone,
        env={
            **os.environ,
            "PATH": f"{clone / 'tools'}:{os.environ['PATH']}",
            "PYTHONPATH": str(clone / "src"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


def test_readme_alone_leads_from_a_plan_to_a_report(clone):
    page = (clone / "README.md").read_text()
    blocks = PYTHON.findall(page)
    assert len(blocks) >= 3
    for block in blocks:
        run(clone, sys.executable, "-c", block)
    (shell,) = SHELL.findall(page)
    shown = run(clone, "bash", "-euc", shell)
    assert "wrote plan.json" in shown
    assert "against the server" in shown
    assert (clone / "run" / "report.html").stat().st_size > 1000


def test_plan_encode_decode_account_train_verify_and_report_in_a_fresh_clone(clone):
    page = (clone / "docs" / "quickstart.md").read_text()
    plan, account, train = SHELL.findall(page)
    assert "wrote plan.json" in run(clone, "bash", "-euc", plan)
    shown = run(clone, sys.executable, "-c", "\n".join(PYTHON.findall(page)))
    assert "against the server" in shown
    assert "against the public" in run(clone, "bash", "-euc", account)
    assert "report.html" in run(clone, "bash", "-euc", train)
    assert (clone / "run" / "report.html").stat().st_size > 1000
