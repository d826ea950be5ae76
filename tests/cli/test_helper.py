import json

import pytest
from typer.testing import CliRunner

from oracles.helper_fleet import INPUT, HelperFleet
from skellam import SystemEntropy
from skellam.cli import app
from skellam.engines.helper import HelperService


def call(*arguments):
    return CliRunner().invoke(app, ["helper", *map(str, arguments)])


@pytest.fixture
def fleet(tmp_path):
    return HelperFleet(tmp_path)


@pytest.fixture
def head(fleet):
    """The head of a run of one round."""
    with HelperService(fleet.config, entropy=SystemEntropy()) as service:
        fleet.lead(service.handle).round(0, INPUT, fleet.collect())
        (run,) = service.status()
    return f"{run.run_id.hex()}:{run.head.count}:{run.head.digest.hex()}"


def test_a_new_helper_says_what_is_secret_and_what_comes_next(tmp_path):
    done = call("new", tmp_path / "helper", "--epsilon", 2, "--min-cohort", 30, "--json")
    assert done.exit_code == 0
    record = json.loads(done.stdout)
    assert record["public"].endswith("helper.key.pub")
    assert "total_epsilon = 2.0" in (tmp_path / "helper" / "helper.toml").read_text()
    again = call("new", tmp_path / "helper")
    assert again.exit_code == 1
    assert "made once" in again.stderr


def test_status_shows_runs_and_what_is_left(fleet, head):
    (fleet.folder / "idle").mkdir()
    idle = HelperFleet(fleet.folder / "idle")
    before = json.loads(call("status", idle.toml, "--json").stdout)
    assert before == {"runs": [], "total_epsilon": 100.0, "remaining": 100.0}
    after = json.loads(call("status", fleet.toml, "--json").stdout)
    (run,) = after["runs"]
    assert run["head"] == head
    assert (run["next_round"], run["clients"], run["max_participations"]) == (1, 4, 1)
    assert 0 < after["remaining"] < 100
    shown = call("status", fleet.toml.parent)
    assert "1/8" in shown.stdout


def test_verify_knows_the_heads_that_were_kept(fleet, head):
    assert call("verify", fleet.toml, "--head", head).exit_code == 0
    other = head[:-2] + ("00" if head[-2:] != "00" else "11")
    refused = call("verify", fleet.toml, "--head", other)
    assert refused.exit_code == 1
    assert "older copy" in refused.stderr
    assert "RUN:LINKS:DIGEST" in call("verify", fleet.toml, "--head", "x").stderr


def test_a_run_that_its_leader_left_open_can_be_ended(fleet, head):
    refused = call("end", fleet.toml, "zz")
    assert refused.exit_code == 1
    assert "0 runs begin with" in refused.stderr
    record = json.loads(call("end", fleet.toml, head[:8], "--json").stdout)
    assert record["ended"] == head.partition(":")[0]
    (run,) = record["runs"]
    assert run["ended"]
    assert run["max_participations"] == 1
    assert call("verify", fleet.toml, "--head", head).exit_code == 0
