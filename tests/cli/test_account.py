import json
import math
import re

import pytest
from typer.testing import CliRunner

import skellam as sk
from skellam import accounting
from skellam.accounting.ledger import Ledger
from skellam.cli import app
from skellam.secagg import Identity, Seal

ALICE, BOB = (Identity.generate(n, entropy=sk.SystemEntropy()) for n in (1, 2))


def run(*words):
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.fixture
def plan(tmp_path):
    made = sk.Plan(dimension=10, clip=1.0, cohort=50, population=1000, rounds=20, bits=18)
    made = made.calibrated(epsilon=2.0, delta=1e-5)
    made.save(tmp_path / "plan.json")
    return made


@pytest.fixture
def ledger(tmp_path):
    mechanism = accounting.Sampled(accounting.Skellam(variance=400.0, l2=10.0), 0.1)
    with Ledger.create(tmp_path / "ledger", epsilon=4.0, delta=1e-5) as book:
        for number in range(3):
            book.spend(mechanism, key=bytes([number]))
    return tmp_path / "ledger"


def test_a_plan_is_accounted_against_both_audiences_by_every_method(plan, tmp_path):
    record = json.loads(run("account", tmp_path / "plan.json", "--json").output)
    assert record["guarantees"]["public"]["epsilon"] == plan.privacy().epsilon
    server = record["guarantees"]["server"]["epsilon"]
    assert server == plan.privacy(audience="server").epsilon
    assert server > record["guarantees"]["public"]["epsilon"]
    assert set(record["methods"]) == {"best", "gdp", "rdp", "pld", "paper"}
    numbers = [value for value in record["methods"].values() if isinstance(value, float)]
    assert record["methods"]["best"] == min(numbers)


def test_printed_epsilons_are_bounds_and_carry_their_assumptions(plan, tmp_path):
    shown = run("account", tmp_path / "plan.json").output
    printed = float(re.search(r"best +\S +(\S+)", shown)[1])
    assert plan.privacy().epsilon <= printed
    for assumption in plan.privacy(audience="server").assumptions:
        assert assumption in shown


def test_fewer_participations_cost_less_against_the_server(plan, tmp_path):
    def epsilon(participations):
        words = ("--participations", participations, "--json")
        record = json.loads(run("account", tmp_path / "plan.json", *words).output)
        return record["guarantees"][f"server, {participations} participations"]["epsilon"]

    assert epsilon(1) < epsilon(5)


def test_the_curve_is_drawn_for_plans_and_ledgers(plan, ledger, tmp_path):
    for name in ("plan.json", "ledger"):
        picture = tmp_path / f"{name}.svg"
        shown = run("account", tmp_path / name, "--curve", picture)
        assert shown.exit_code == 0, shown.output
        assert "<svg" in picture.read_text()


def test_a_ledger_is_accounted_for_what_was_spent(ledger):
    record = json.loads(run("account", ledger, "--json").output)
    account = Ledger.verify(ledger)
    assert record["guarantees"]["public"]["epsilon"] == account.epsilon()
    assert math.isclose(record["methods"]["best"], account.epsilon())
    assert "budget's delta" in run("account", ledger, "--delta=1e-7").stderr


def test_verify_computes_a_ledgers_epsilon_anew(ledger):
    record = json.loads(run("verify", ledger, "--json").output)
    assert record["releases"] == 3
    assert record["epsilon"] == Ledger.verify(ledger).epsilon()
    assert record["guarantee"]["audience"] == "public"
    assert "holds" in run("verify", ledger).output


def test_verify_names_the_line_that_was_changed(ledger):
    lines = ledger.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"rounds":1', b'"rounds":2')
    ledger.write_bytes(b"".join(lines))
    shown = run("verify", ledger)
    assert shown.exit_code == 4
    assert "line 3" in shown.stderr


def test_verify_grants_nothing_to_noise_that_replays(tmp_path):
    with Ledger.create(tmp_path / "ledger", epsilon=4.0, delta=1e-5) as book:
        book.spend(accounting.Skellam(variance=400.0, l2=10.0), replayable=True)
    shown = run("verify", tmp_path / "ledger")
    assert shown.exit_code == 4
    assert "seed" in shown.stderr


def test_an_empty_ledger_has_spent_nothing(tmp_path):
    Ledger.create(tmp_path / "ledger", epsilon=4.0, delta=1e-5).close()
    record = json.loads(run("verify", tmp_path / "ledger", "--json").output)
    assert record["epsilon"] == 0
    assert record["guarantee"] is None


def test_cite_lists_what_a_plan_rests_on(plan, tmp_path):
    every = json.loads(run("cite", "--json").output)["references"]
    some = json.loads(run("cite", tmp_path / "plan.json", "--json").output)["references"]
    assert 0 < len(some) < len(every)
    assert "Skellam Mechanism" in run("cite", tmp_path / "plan.json").output


def test_verify_checks_signatures_with_the_signers_key(tmp_path):
    path = tmp_path / "ledger"
    with Ledger.create(path, epsilon=4.0, delta=1e-5, signer=Seal(ALICE)) as book:
        book.spend(accounting.Skellam(variance=400.0, l2=10.0))
    shown = run("verify", path, "--key", ALICE.public.hex())
    assert shown.exit_code == 0, shown.output
    assert "not checked" not in shown.output
    assert "not checked" in run("verify", path).output
    assert run("verify", path, "--key", BOB.public.hex()).exit_code == 4


def test_a_key_for_a_ledger_that_nobody_signed_is_refused(ledger):
    assert run("verify", ledger, "--key", ALICE.public.hex()).exit_code == 4


@pytest.mark.parametrize("key", ["zz", "00", "00" * 33])
def test_a_key_that_is_none_is_refused_in_words(ledger, key):
    shown = run("verify", ledger, "--key", key)
    assert shown.exit_code == 1
    assert "--key must be 64" in shown.stderr
    assert "Traceback" not in shown.stderr


def test_a_fleet_is_accounted_for_before_there_is_a_model():
    fleet = ["--users=100000", "--cohort=1000", "--rounds=2000"]
    shown = run("account", *fleet, "--epsilon=5", "--json")
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)
    z = found["noise_multiplier"]
    expected = accounting.noise_multiplier(epsilon=5, delta=100_000**-1.1, rate=0.01, rounds=2000)
    assert z == pytest.approx(expected, rel=1e-2)
    assert found["guarantees"]["public"]["epsilon"] <= 5
    assert found["guarantees"]["server"]["epsilon"] > 5
    again = run("account", *fleet, f"--noise-multiplier={z}", "--json")
    back = json.loads(again.stdout)["guarantees"]["public"]["epsilon"]
    assert back == pytest.approx(found["guarantees"]["public"]["epsilon"], rel=1e-3)
