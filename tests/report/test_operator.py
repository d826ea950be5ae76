import stat

import pytest
from typer.testing import CliRunner

import skellam as sk
from oracles.page_reader import PageReader
from oracles.tiny_task import plan, task
from skellam import federated as fl
from skellam import report
from skellam.cli import app
from skellam.errors import DataError, TrainingError
from skellam.report.operator import operator_page


def failing(number):
    """Return a task in which a quarter of the clients cannot train."""
    made = task()
    clients = {name: made.clients[name] for name in made.clients}
    broken = [name for index, name in enumerate(clients) if index % 4 == 1]
    clients |= dict.fromkeys(broken, ([[float(number)]] * 3, [0] * 3))
    return fl.Task(made.model, clients, optimizer=made.optimizer, test=made.test, name="broken")


def train(folder, trained, **settings):
    usual = {"aggregate": fl.unmasked(), "entropy": sk.SystemEntropy(), "max_failures": 1.0}
    return fl.train(trained, plan(), folder=folder, **(usual | settings))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("run")
    train(made, failing(1))
    return made


def test_failures_are_on_the_operators_page_and_nowhere_else(folder):
    path = report.write_operator(folder)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = PageReader(path.read_text()).text
    assert "clients whose training failed" in text
    assert "mat1 and mat2 shapes cannot be multiplied" in text
    assert "Keep this page" in text
    public = report.write(folder).read_text()
    assert "failed" not in public
    assert "mat1" not in public


def test_skipped_rounds_are_counted_with_their_reasons(tmp_path):
    script = {1: range(100), 3: range(100)}
    train(tmp_path, task(), aggregate=fl.unmasked(dropout=script))
    text = PageReader(report.write_operator(tmp_path).read_text()).text
    assert "too few clients (2)" in text
    assert "0 failed; skipped: too few clients" in text


def test_the_run_without_privacy_is_compared_on_the_operators_page_alone(folder, tmp_path):
    baseline = train(tmp_path, task(), aggregate=fl.non_private())
    expected = f"{report.markup.percent(baseline.records[-1].test_accuracy)} without privacy"
    for given in (baseline, tmp_path):
        text = PageReader(report.write_operator(folder, baseline=given).read_text()).text
        assert expected in text
    words = ["report", str(folder), "--baseline", str(tmp_path)]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 1
    assert "--operator" in refused.stderr
    shown = CliRunner().invoke(app, [*words, "--operator"])
    assert shown.exit_code == 0
    assert expected in PageReader((folder / "operator.html").read_text()).text


def test_a_run_that_failures_stopped_has_its_first_failure_on_the_page(tmp_path):
    with pytest.raises(TrainingError, match="mat1"):
        train(tmp_path, failing(2), max_failures=0.0)
    text = PageReader(report.write_operator(tmp_path).read_text()).text
    assert "round 1" in text
    assert "mat1" in text


def test_text_of_a_failure_is_never_markup_and_damage_is_said(tmp_path, folder):
    run = report.read(folder)
    line = {"round": 0, "invited": 3, "survivors": 2, "failures": 1}
    page = operator_page(run, {0: {**line, "first_failure": "<script>x</script>"}})
    assert not {name for name, _ in PageReader(page).elements} & {"script"}
    for name in ("run.json", "history.jsonl"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "operator.jsonl").write_text("{\n")
    with pytest.raises(DataError, match="damaged"):
        report.write_operator(tmp_path, ledger=folder / "ledger")
