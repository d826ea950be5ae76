import json

import pytest
from typer.testing import CliRunner

import skellam as sk
from skellam.cli import app

TARGETS = {
    "dimension": 100,
    "clip": 1.0,
    "cohort": 50,
    "population": 1000,
    "rounds": 20,
    "epsilon": 2.0,
    "delta": 1e-5,
    "bits": 14,
}

OUT_OF_REACH = {"dimension": 2**20, "accountant": "paper", "bits": 8}
"""The norm that conditional rounding may give leaves no room in eight bits."""


def run(folder, *words, **changes):
    options = [f"--{k.replace('_', '-')}={v}" for k, v in {**TARGETS, **changes}.items()]
    return CliRunner().invoke(app, ["plan", *options, "-o", str(folder / "plan.json"), *words])


def test_the_plan_on_disk_is_the_one_that_python_makes(tmp_path):
    shown = run(tmp_path)
    assert shown.exit_code == 0, shown.output
    settings = dict(TARGETS)
    epsilon, delta = settings.pop("epsilon"), settings.pop("delta")
    expected = sk.Plan(**settings).calibrated(epsilon=epsilon, delta=delta)
    assert sk.Plan.load(tmp_path / "plan.json") == expected
    for line in expected.explain().lines:
        assert line.name in shown.output


def test_two_servers_are_planned_with_an_epsilon_for_each_audience(tmp_path):
    given = {"aggregation": "two-servers", "noise_by": "helper", "sampling": "cyclic"}
    record = json.loads(run(tmp_path, "--json", **given).output)
    plan = sk.Plan.load(tmp_path / "plan.json")
    assert (plan.aggregation, plan.noise_by) == ("two-servers", "helper")
    explained = record["explanation"]
    assert explained["epsilon, leader"]["value"] == "2"
    assert explained["epsilon, helper"]["value"] == "inf"
    refused = run(tmp_path, aggregation="two-servers", dropout=0.1)
    assert refused.exit_code == 1
    assert "dropout must be 0" in refused.stderr


def test_json_holds_the_plan_and_every_reason(tmp_path):
    record = json.loads(run(tmp_path, "--json").output)
    plan = sk.Plan.from_json(json.dumps(record["plan"]))
    assert plan == sk.Plan.load(tmp_path / "plan.json")
    assert record["explanation"]["relative error"]["why"]


def test_every_choice_of_a_plan_has_its_option(tmp_path):
    changes = {
        "sampling": "self",
        "participation_probability": 0.5,
        "dropout": 0.1,
        "colluding": 0.1,
    }
    shown = run(tmp_path, "--signal=independent", compression=64, **changes)
    assert shown.exit_code == 0, shown.output
    plan = sk.Plan.load(tmp_path / "plan.json")
    assert {name: getattr(plan, name) for name in changes} == changes
    assert plan.signal == "independent"
    assert plan.compression == 64


def test_comparison_shows_the_rivals_at_the_same_targets(tmp_path):
    record = json.loads(run(tmp_path, "--compare", "--json").output)
    plans = {n: sk.Plan.from_json(json.dumps(p)) for n, p in record["plans"].items()}
    assert {*plans, *record["infeasible"]} == {
        "this plan",
        "the paper's method",
        "central Gaussian",
        "distributed discrete Gaussian",
    }
    for plan in plans.values():
        assert plan.privacy().epsilon <= TARGETS["epsilon"]
    assert plans["this plan"].error.total < plans["the paper's method"].error.total
    assert plans["this plan"] == sk.Plan.load(tmp_path / "plan.json")


def test_a_rival_that_cannot_meet_the_targets_is_named_with_the_reason(tmp_path):
    shown = run(tmp_path, "--compare", dimension=2**20, bits=8)
    assert shown.exit_code == 0, shown.output
    assert "the paper's method: none; " in shown.output


def test_a_sweep_plans_for_every_value_and_writes_no_plan(tmp_path):
    picture = tmp_path / "bits.svg"
    shown = run(tmp_path, "--json", f"--plot={picture}", **OUT_OF_REACH, sweep="bits=8..20..6")
    record = json.loads(shown.output)
    assert [row["value"] for row in record["rows"]] == [8, 14, 20]
    assert record["rows"][0]["reason"]
    assert record["rows"][1]["error"] > record["rows"][2]["error"]
    assert "<svg" in picture.read_text()
    assert not (tmp_path / "plan.json").exists()


def test_a_sweep_may_list_its_values(tmp_path):
    shown = run(tmp_path, sweep="epsilon=1,2.5")
    assert shown.exit_code == 0, shown.output
    assert "2.5" in shown.output


@pytest.mark.parametrize(
    "sweep", ["bits", "nothing=1..2", "bits=9..8", "bits=1..x", "bits=1..2..0", "solution=1"]
)
def test_a_sweep_that_makes_no_sense_is_refused(tmp_path, sweep):
    shown = run(tmp_path, sweep=sweep)
    assert shown.exit_code == 1
    assert shown.stderr.startswith("error: ")


def test_a_picture_needs_a_sweep_and_a_known_format(tmp_path):
    assert "--sweep" in run(tmp_path, "--plot=a.png").stderr
    assert ".svg" in run(tmp_path, "--plot=a.gif", sweep="bits=14,16").stderr


def test_targets_out_of_reach_exit_with_three_and_say_what_would_do(tmp_path):
    shown = run(tmp_path, **OUT_OF_REACH)
    assert shown.exit_code == 3
    assert "bits" in shown.stderr
    assert not (tmp_path / "plan.json").exists()


def test_an_argument_out_of_its_domain_exits_with_one(tmp_path):
    shown = run(tmp_path, epsilon="nan")
    assert shown.exit_code == 1
    assert "epsilon" in shown.stderr
