import json

import pytest
from typer.testing import CliRunner

from skellam import tasks
from skellam.accounting.ledger import Ledger
from skellam.cli import app

SMALL = ["--engine=unmasked", "--rounds=2", "--cohort=20", "--every=2"]


def run(*words):
    return CliRunner().invoke(app, list(map(str, words)))


def test_a_run_is_trained_verified_and_not_begun_twice(tmp_path):
    folder = tmp_path / "run"
    shown = run("train", "digits", "--folder", folder, "--epsilon=8", *SMALL, "--json")
    assert shown.exit_code == 0, shown.output
    record = json.loads(shown.stdout)
    assert record["rounds"] == 2
    assert set(record["guarantees"]) == {"public", "server", "server_mean"}
    assert Ledger.verify(folder / "ledger").epsilon() <= 8
    assert run("verify", folder / "ledger").exit_code == 0
    assert run("report", folder).exit_code == 0
    assert "digits" in (folder / "report.html").read_text()
    again = run("train", "digits", "--folder", folder, "--epsilon=8", *SMALL)
    assert again.exit_code == 1
    assert "resume" in again.stderr
    resumed = run("train", "digits", "--folder", folder, "--resume", "--engine=unmasked")
    assert resumed.exit_code == 0, resumed.output
    assert len(Ledger.verify(folder / "ledger").spends) == 2


def test_two_servers_train_and_state_three_epsilons(tmp_path):
    folder = tmp_path / "run"
    given = ["--epsilon=8", "--aggregation=two-servers", "--sampling=cyclic", "--rounds=2"]
    shown = run("train", "digits", "--folder", folder, *given, "--cohort=20", "--json")
    assert shown.exit_code == 0, shown.output
    record = json.loads(shown.stdout)
    found = {name: guarantee["epsilon"] for name, guarantee in record["guarantees"].items()}
    assert found["public"] < found["leader"] == found["helper"] <= 8
    assert json.loads((folder / "run.json").read_text())["aggregate"] == "two_servers"
    assert run("report", folder).exit_code == 0
    assert "The helper" in (folder / "report.html").read_text()
    refused = run("train", "digits", "--folder", folder, "--resume", "--engine=unmasked")
    assert refused.exit_code == 1


def test_noise_that_cancels_over_rounds_trains_on_request_and_goes_on(tmp_path):
    folder = tmp_path / "run"
    given = ["--epsilon=8", "--aggregation=two-servers", "--sampling=cyclic", "--correlation=auto"]
    begin = run("train", "digits", "--folder", folder, *given, *SMALL)
    assert begin.exit_code == 0, begin.output
    chosen = json.loads((folder / "run.json").read_text())["plan"]["chosen"]
    assert len(chosen["band"]) == 2
    again = ["--resume", "--engine=unmasked", "--correlation=auto"]
    assert run("train", "digits", "--folder", folder, *again).exit_code == 0
    other = run("train", "digits", "--folder", folder, *again[:2], "--correlation=2,1")
    assert other.exit_code == 1
    assert "contradicts" in other.stderr


def test_the_clip_adapts_on_request_and_goes_on_adapting(tmp_path):
    folder = tmp_path / "run"
    options = ["--epsilon=8", "--adaptive-clip=0.7", "--quantile-noise=0.1"]
    shown = run("train", "digits", "--folder", folder, *options, *SMALL)
    assert shown.exit_code == 0, shown.output
    header = json.loads((folder / "run.json").read_text())
    asked = header["plan"]["request"]
    assert header["clip"] == {"clip": asked["clip"], "target": 0.7, "learning_rate": 0.2}
    assert asked["quantile_noise"] == 0.1
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert lines[0]["clip"] == asked["clip"] != lines[1]["clip"]
    resumed = run("train", "digits", "--folder", folder, "--resume", "--engine=unmasked")
    assert resumed.exit_code == 0, resumed.output


def test_a_plan_without_room_for_the_count_is_refused(tmp_path):
    learnt = tasks.digits()
    plan = tasks.preset("digits").plan(learnt, epsilon=8, rounds=2, cohort=20)
    plan.save(tmp_path / "plan.json")
    given = ["--plan", tmp_path / "plan.json", "--engine=unmasked", "--adaptive-clip=0.5"]
    shown = run("train", "digits", "--folder", tmp_path / "run", *given)
    assert shown.exit_code == 1
    assert "quantile_noise" in shown.stderr


def test_a_share_of_clients_that_is_none_is_refused_by_the_options_name(tmp_path):
    given = ["--epsilon=8", "--adaptive-clip=1.5"]
    shown = run("train", "digits", "--folder", tmp_path / "run", *given, *SMALL)
    assert shown.exit_code == 1
    assert "--adaptive-clip must lie strictly between 0 and 1" in " ".join(shown.stderr.split())


def test_a_run_needs_a_target_or_a_plan(tmp_path):
    shown = run("train", "digits", "--folder", tmp_path)
    assert shown.exit_code == 1
    assert "--epsilon" in shown.stderr


def test_a_folder_without_a_run_has_no_report(tmp_path):
    shown = run("report", tmp_path)
    assert shown.exit_code == 1
    assert "holds no run" in shown.stderr


def test_an_unknown_task_is_refused_with_the_known_ones(tmp_path):
    shown = run("train", "nothing", "--folder", tmp_path, "--epsilon=1")
    assert shown.exit_code == 1
    assert "digits" in shown.stderr


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "dig.json"
    learnt = tasks.digits()
    tasks.preset("digits").plan(learnt, epsilon=8, rounds=2, cohort=20, bits=12).save(path)
    return path


@pytest.mark.parametrize(
    "contradiction",
    ["--epsilon=1", "--bits=4", "--rounds=3", "--cohort=9", "--dropout=0.2", "--noise=gaussian"],
)
def test_an_option_that_contradicts_the_plan_is_refused(tmp_path, planned, contradiction):
    shown = run("train", "digits", "--folder", tmp_path / "run", "--plan", planned, contradiction)
    assert shown.exit_code == 1
    assert f"{contradiction.split('=')[0]} " in shown.stderr
    assert "contradicts" in shown.stderr
    assert not (tmp_path / "run").exists()


def test_an_option_that_says_what_the_plan_says_is_fine_and_a_run_goes_on_as_it_began(
    tmp_path, planned
):
    folder = tmp_path / "run"
    given = ["--plan", planned, "--epsilon=8", "--bits=12", "--engine=unmasked"]
    shown = run("train", "digits", "--folder", folder, *given)
    assert shown.exit_code == 0, shown.output
    resumed = run("train", "digits", "--folder", folder, "--resume")
    assert resumed.exit_code == 0, resumed.output
    for words in (["--epsilon=1"], ["--bits=4"], ["--plan", planned], ["--adaptive-clip=0.5"]):
        refused = run("train", "digits", "--folder", folder, "--resume", *words)
        assert refused.exit_code == 1
        assert words[0].split("=")[0] in refused.stderr


def test_what_is_simulated_is_tolerated(tmp_path):
    given = ["--epsilon=8", "--simulate-dropout=0.1", *SMALL]
    shown = run("train", "digits", "--folder", tmp_path / "run", *given)
    assert shown.exit_code == 0, shown.output
    asked = json.loads((tmp_path / "run" / "run.json").read_text())["plan"]["request"]
    assert asked["dropout"] == 0.3
