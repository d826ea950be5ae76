import json

import pytest
from typer.testing import CliRunner

from skellam.cli import app
from skellam.engines.key_files import read_identity, read_roster


def run(*words):
    return CliRunner().invoke(app, ["keys", *map(str, words)])


def test_a_new_key_is_for_its_owner_alone_and_its_twin_for_the_roster(tmp_path):
    for number in (7, 8):
        assert run("new", tmp_path / f"{number}.key", "--number", number).exit_code == 0
    secret = tmp_path / "7.key"
    assert secret.stat().st_mode & 0o777 == 0o600
    publics = [tmp_path / "7.key.pub", tmp_path / "8.key.pub"]
    assert run("roster", *publics, "-o", tmp_path / "roster.json").exit_code == 0
    roster = read_roster(tmp_path / "roster.json")
    identity = read_identity(secret)
    assert identity.number == 7
    assert roster.keys[7] == identity.public
    assert set(roster.keys) == {7, 8}


def test_the_secret_is_neither_printed_nor_in_the_public_file(tmp_path):
    shown = run("new", tmp_path / "a.key")
    key = json.loads((tmp_path / "a.key").read_text())["key"]
    assert key not in shown.output
    assert key not in (tmp_path / "a.key.pub").read_text()


def test_a_key_is_never_overwritten(tmp_path):
    run("new", tmp_path / "a.key")
    before = (tmp_path / "a.key").read_text()
    refused = run("new", tmp_path / "a.key")
    assert refused.exit_code == 1
    assert "never overwritten" in refused.output
    assert (tmp_path / "a.key").read_text() == before


def test_two_clients_cannot_have_one_number(tmp_path):
    for name in ("a", "b"):
        run("new", tmp_path / name, "--number", 1)
    refused = run("roster", tmp_path / "a.pub", tmp_path / "b.pub", "-o", tmp_path / "roster.json")
    assert refused.exit_code == 1
    assert not (tmp_path / "roster.json").exists()


@pytest.mark.parametrize("wrong", ["a", "nothing.pub"])
def test_a_roster_takes_public_keys_only(tmp_path, wrong):
    run("new", tmp_path / "a", "--number", 1)
    refused = run("roster", tmp_path / wrong, "-o", tmp_path / "roster.json")
    assert refused.exit_code == 1
    assert "skellam-public-key" in refused.output


def test_numbers_are_random_unless_they_are_given(tmp_path):
    for name in ("a", "b"):
        run("new", tmp_path / name)
    assert read_identity(tmp_path / "a").number != read_identity(tmp_path / "b").number
