"""The page for contributors: its changes, applied to a copy of the sources, do what it says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "contributing" / "extending.md"
MAX_FILES = 3
FENCE = re.compile(
    r'^```(?:diff|python) title="([^"]+)"\n(.*?)^```$', flags=re.DOTALL | re.MULTILINE
)
SECTIONS = dict(
    re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE)
)


def applied(text, diff):
    """Return ``text`` after a diff whose hunks have no line numbers: each must fit in one place."""
    for hunk in diff.split("@@\n")[1:]:
        lines = [line or " " for line in hunk.splitlines()]
        before, after = (
            "".join(f"{line[1:]}\n" for line in lines if line[0] in kinds) for kinds in (" -", " +")
        )
        assert text.count(before) == 1, f"fits {text.count(before)} places:\n{hunk}"
        text = text.replace(before, after)
    return text


def extend(section, sources, target):
    """Copy ``sources`` to ``target``, apply a section's diffs and return its check."""
    shutil.copytree(sources, target / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (check,) = (text for title, text in FENCE.findall(section) if title == "check")
    for title, text in FENCE.findall(section):
        if title != "check":
            path = target / title
            path.write_text(applied(path.read_text(), text))
    return check


@pytest.mark.slow
@pytest.mark.parametrize("title", SECTIONS)
def test_what_the_page_adds_works(title, tmp_path):
    check = extend(SECTIONS[title], ROOT / "src", tmp_path)
    outcome = subprocess.run(
        [sys.executable, "-c", check],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr


@pytest.mark.parametrize("title", SECTIONS)
def test_an_addition_touches_few_files_and_has_a_check(title):
    titles = [name for name, _ in FENCE.findall(SECTIONS[title])]
    assert titles.count("check") == 1
    assert 1 <= len(set(titles) - {"check"}) <= MAX_FILES


def test_the_page_says_how_to_add_a_mechanism_an_accountant_and_a_task():
    assert list(SECTIONS) == ["Add a mechanism", "Add an accountant", "Add a task"]


def test_a_hunk_that_fits_nowhere_or_twice_is_an_error():
    assert applied("a\nb\nc\n", "@@\n a\n-b\n+d\n") == "a\nd\nc\n"
    assert applied("a\nb\n", "@@\n a\n+x\n@@\n-b\n+y\n") == "a\nx\ny\n"
    for text in ("c\n", "a\na\n"):
        with pytest.raises(AssertionError, match="fits"):
            applied(text, "@@\n a\n+b\n")
