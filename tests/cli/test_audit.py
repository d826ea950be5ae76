import json

import pytest
from typer.testing import CliRunner

import skellam as sk
from skellam import audit
from skellam.cli import app


@pytest.fixture
def plan(tmp_path):
    made = sk.Plan(dimension=4, clip=1.0, bits=12, cohort=3, rounds=1, sampling="all")
    made.calibrated(epsilon=1, delta=0.1).save(tmp_path / "plan.json")
    return tmp_path / "plan.json"


def run(*words):
    return CliRunner().invoke(app, ["audit", *map(str, words)])


def test_an_audit_finds_the_real_rounds_consistent_with_their_plan(plan):
    """The false-alarm rate is the audit's: 1e-6."""
    shown = run(plan, "--trials=200", "--json")
    assert shown.exit_code == 0, shown.output
    record = json.loads(shown.output)
    assert record["verdict"] == "consistent"
    assert record["lower"] <= record["claimed"] < record["max_epsilon"]


def test_a_refuted_claim_exits_with_five(plan, monkeypatch):
    """Only the verdict is made up: tests of the audit itself show what leads to one."""
    claim = audit.Audit(
        lower=2.0, claimed=1.0, delta=0.1, confidence=0.999999, trials=200, max_epsilon=3.0
    )
    monkeypatch.setattr(audit, "codec", lambda *_, **__: claim)
    shown = run(plan)
    assert shown.exit_code == 5
    assert "violated" in shown.output


def test_too_few_trials_to_catch_anything_are_refused(plan):
    shown = run(plan, "--trials=4")
    assert shown.exit_code == 3
    assert "more trials" in shown.stderr
