import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from oracles.flower_fleet import LIMITS, node_files, plan
from skellam.accounting import RoundedSkellam, epsilon
from skellam.engines.flower import Limits, Node
from skellam.engines.flower.node import RoundInProgress, Spending, StageLog, wipe
from skellam.engines.flower.round_config import RoundConfig, UpdateKind
from skellam.errors import BudgetError, DataError, DomainError, TamperError
from skellam.plan import guarantees


def test_a_node_is_read_from_its_file(tmp_path):
    config = node_files(tmp_path)[2]
    node = Node.load(config["skellam"])
    assert node.identity.number == 3
    assert set(node.roster.keys) == {1, 2, 3, 4, 5}
    assert node.limits == Limits(**LIMITS)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("round_epsilon = 3.0\n", ""),
        lambda text: text.replace("identity", "identitiy"),
        lambda text: text + "\nmore = 1",
        lambda text: "=" + text,
    ],
)
def test_a_node_file_with_anything_missing_or_unknown_is_refused(tmp_path, change):
    node_files(tmp_path)
    file = tmp_path / "1.toml"
    file.write_text(change(file.read_text()))
    with pytest.raises(DataError, match=r"1\.toml"):
        Node.load(file)


@pytest.mark.parametrize("name", [*LIMITS])
def test_limits_have_domains(name):
    for wrong in (0, -1, float("nan")):
        with pytest.raises(DomainError, match=name):
            Limits(**{**LIMITS, name: wrong})


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("max_dropout", 0.6),
        ("max_dropout", float("nan")),
        ("max_trainings", 0),
        ("plans", ["ab"]),
        ("models", ["ab"]),
        ("models", [1]),
    ],
)
def test_optional_limits_have_domains_too(name, wrong):
    with pytest.raises(DomainError, match=name):
        Limits(**{**LIMITS, name: wrong})


def test_a_key_file_never_shows_in_an_error(tmp_path):
    node_files(tmp_path)
    key = tmp_path / "1.key"
    key.write_text(key.read_text()[:-5])
    with pytest.raises(DataError) as caught:
        Node.load(tmp_path / "1.toml")
    assert "key" in str(caught.value)
    assert '"number"' not in str(caught.value)


def test_a_stage_begins_once_even_after_a_torn_line(tmp_path):
    path = tmp_path / "stages"
    enter = StageLog(path).enter
    enter(bytes(32), "train")
    with path.open("ab") as file:
        file.write(b"00000")
    enter(bytes(32), "share")
    for stage in ("train", "share"):
        with pytest.raises(TamperError, match=stage):
            enter(bytes(32), stage)
    enter(bytes([1] * 32), "train")


def test_two_processes_cannot_begin_one_stage(tmp_path):
    script = (
        "import sys; from pathlib import Path\n"
        "from skellam.engines.flower.node import StageLog\n"
        "try: StageLog(Path(sys.argv[1])).enter(bytes(32), 'unmask'); print('began')\n"
        "except Exception as error: print(type(error).__name__)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "stages")]
    racers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said = sorted(racer.communicate(timeout=60)[0].strip() for racer in racers)
    assert said == ["TamperError"] * 3 + ["began"]


def test_the_price_is_computed_from_the_noise():
    limits = Limits(**LIMITS)
    made = plan()
    assert epsilon(limits.price(made), delta=1e-5) == pytest.approx(
        made.privacy(audience="server", participations=1).epsilon, rel=1e-6
    )


def test_a_round_whose_rare_events_take_all_of_delta_is_refused():
    """More colluders than planned are in a cohort with a chance of 2**-40; that has a price too."""
    made = plan(cohort=20, dropout=0.1, colluding=0.1)
    assert Limits(**{**LIMITS, "round_epsilon": 100.0}).price(made).rare == 2.0**-40
    with pytest.raises(BudgetError, match="round_epsilon: the plan costs inf"):
        Limits(**{**LIMITS, "round_epsilon": 100.0, "delta": 2.0**-41}).price(made)


def test_tails_are_made_faint_enough_for_every_participation(tmp_path):
    limits = Limits(**{**LIMITS, "total_epsilon": 20.0, "round_epsilon": 10.0})
    made = plan(rounding="unbiased", block=1)
    assert isinstance(guarantees.round_mechanism(made), RoundedSkellam)
    spending, price = Spending(tmp_path / "spend", limits), limits.price(made)
    for number in range(10):
        spending.spend(price, key=bytes([number]), plan=made.digest, replayable=False)
    with pytest.raises(BudgetError, match="max_participations"):
        spending.spend(price, key=b"x", plan=made.digest, replayable=False)


def test_flower_is_imported_only_when_it_is_used():
    script = "import sys, skellam.engines.flower.node as n; print('flwr' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "False"


def test_spends_in_threads_leave_the_ledgers_to_their_owner_and_the_umask_alone(tmp_path):
    noise, limits = Limits(**LIMITS).price(plan()), Limits(**LIMITS)
    before = os.umask(0o022)
    try:
        paths = [tmp_path / f"{number}.spend" for number in range(12)]

        def spend(path):
            Spending(path, limits).spend(noise, key=b"key", plan=bytes(32), replayable=False)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(spend, paths))
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
    for path in (*paths, *(path.with_name(path.name + ".tail") for path in paths)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_directory_in_place_of_a_round_in_progress_is_named(tmp_path):
    path = tmp_path / "state"
    config = RoundConfig(plan(), 1, bytes(32), 5, UpdateKind.DIFFERENCE, bytes(32))
    state = RoundInProgress(config, bytes(32), bytes(100), None)
    (tmp_path / "state.new").mkdir()
    with pytest.raises(DataError, match=r"cannot write .*state: Is a directory"):
        state.store(path)
    with pytest.raises(DataError, match=r"cannot remove .*state\.new"):
        wipe(path)
    path.mkdir()
    with pytest.raises(DataError, match=r"cannot read .*state: Is a directory"):
        RoundInProgress.take(path)
