import json

from typer.testing import CliRunner

from skellam.accounting.ledger import Ledger
from skellam.cli import app


def run(*words):
    return CliRunner().invoke(app, list(map(str, words)))


def test_a_new_ledger_has_its_budget_and_is_spent_from_and_never_made_twice(tmp_path):
    path, file = tmp_path / "year", tmp_path / "a.csv"
    made = run("ledger", "new", path, "--epsilon=1.5", "--delta=1e-6", "--json")
    assert json.loads(made.stdout)["budget"] == {"epsilon": 1.5, "delta": 1e-6}
    assert Ledger.verify(path).budget.epsilon == 1.5
    file.write_text("who\n" + "".join(f"u{n}\n" for n in range(50)))
    words = ("query", "count", file, "--user=who", "--epsilon=1", "--delta=1e-6", "--ledger", path)
    assert run(*words).exit_code == 0
    assert run(*words).exit_code == 3
    assert len(Ledger.verify(path).spends) == 1
    again = run("ledger", "new", path, "--epsilon=9", "--delta=1e-6")
    assert again.exit_code == 4
    assert Ledger.verify(path).budget.epsilon == 1.5
