import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

import skellam
from skellam import cli
from skellam.cli import app

VERBS = ["plan", "account", "query", "train", "reproduce", "report", "verify", "audit", "cite"]
GROUPS = ["keys", "ledger", "helper"]
HEAVY = [
    "skellam.plan",
    "skellam.accounting",
    *(f"skellam.cli.{verb}" for verb in VERBS),
    "torch",
    "flwr",
    "matplotlib",
    "numba",
    "scipy",
    "dp_accounting",
    "skellam.secagg",
]


def test_help_names_every_verb_and_exit_code():
    shown = CliRunner().invoke(app, ["--help"]).output
    for word in [*VERBS, "keys", "Exit codes"]:
        assert word in shown


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_teaches_by_examples_and_answers_in_json(verb):
    shown = CliRunner().invoke(app, [verb, "--help"]).output
    assert f"skellam {verb}" in shown.replace(f"Usage: skellam {verb}", "")
    assert "--json" in shown


def test_asking_for_help_imports_nothing_heavy():
    code = f"""import sys
from skellam.cli import app
try:
    app(["--help"])
except SystemExit:
    print([m for m in {HEAVY} if m in sys.modules])"""
    outcome = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert outcome.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("verb", [*VERBS, *GROUPS])
def test_the_list_of_verbs_says_what_each_says_of_itself(verb):
    said = cli.load(verb).help
    assert said is not None
    assert cli.VERBS[verb] == said.splitlines()[0]


def test_the_list_holds_every_verb():
    assert set(cli.VERBS) == {*VERBS, *GROUPS}


def test_an_error_is_one_line_and_a_trace_only_when_asked_for(tmp_path):
    words = ["account", str(tmp_path / "nothing")]
    plain = CliRunner().invoke(app, words)
    assert plain.exit_code == 1
    assert plain.stderr.startswith("error: cannot read")
    assert plain.stderr.count("\n") == 1
    traced = CliRunner().invoke(app, ["--verbose", *words])
    assert traced.exit_code == 1
    assert "Traceback" in traced.stderr


def test_wrong_usage_exits_with_two():
    assert CliRunner().invoke(app, ["plan", "--dimension", "3"]).exit_code == 2


def test_the_version_is_the_packages():
    shown = CliRunner().invoke(app, ["--version"])
    assert shown.exit_code == 0
    assert shown.output == f"skellam {skellam.__version__}\n"


@pytest.mark.parametrize(
    ("typed", "completed"),
    [("skellam ", {*VERBS, *GROUPS}), ("skellam ledger ", {"new"})],
)
def test_the_shell_completes_verbs(typed, completed):
    environment = {
        "_SKELLAM_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split())),
    }
    shown = CliRunner().invoke(app, [], env=environment, prog_name="skellam")
    assert set(shown.output.split()) == completed


def test_the_shell_completes_options():
    environment = {
        "_SKELLAM_COMPLETE": "complete_bash",
        "COMP_WORDS": "skellam train --simulate",
        "COMP_CWORD": "2",
    }
    shown = CliRunner().invoke(app, [], env=environment, prog_name="skellam")
    assert shown.output.split() == ["--simulate-dropout"]


@pytest.mark.parametrize("far", [["--delta=1e-30", "--rounds=10"]])
def test_targets_far_out_are_answered_or_refused_in_ten_seconds(tmp_path, far):
    usual = ["--dimension=100", "--clip=1", "--cohort=100", "--population=10000", "--epsilon=1"]
    start = time.process_time()
    words = ["plan", *usual, *far, "--out", str(tmp_path / "plan.json")]
    shown = CliRunner().invoke(app, words)
    assert time.process_time() - start < 10
    assert shown.exit_code in {0, 3}, shown.output
