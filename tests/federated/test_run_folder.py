"""The folder of a run: what is damaged, missing or in use is refused before anything is spent."""

import os
import shutil
import signal

import pytest

import skellam as sk
from oracles.tiny_task import plan, task
from skellam import federated as fl
from skellam import report
from skellam.accounting.ledger import Ledger
from skellam.errors import DataError, LedgerError
from skellam.federated.history import Checkpoint

ENTROPY = sk.SystemEntropy()


class StopError(Exception):
    """Raised between two rounds."""


def train(folder, made=None, *, rounds=None, **options):
    """Train in ``folder``, or stop after so many ``rounds``."""

    def watch(record):
        if record.round + 1 == rounds:
            raise StopError

    options = {"aggregate": fl.unmasked(), "entropy": ENTROPY, "resume": True, **options}
    try:
        return fl.train(task(), made or plan(rounds=4), folder=folder, watch=watch, **options)
    except StopError:
        return None


def spends(folder):
    return len(Ledger.verify(folder / "ledger").spends)


def flip(path):
    octets = bytearray(path.read_bytes())
    octets[5] ^= 1
    path.write_bytes(octets)


def in_its_place(path):
    path.unlink(missing_ok=True)
    path.mkdir()


def make_a_file(path):
    shutil.rmtree(path, ignore_errors=True)
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("operator.jsonl", flip),
        ("operator.jsonl", in_its_place),
        ("operator.jsonl.sha256.new", in_its_place),
        ("history.jsonl", flip),
        ("history.jsonl.sha256.new", in_its_place),
        ("checkpoint.npz", flip),
        ("checkpoint.npz.new", in_its_place),
        ("participations.npz", in_its_place),
        ("participations.npz.new", in_its_place),
        ("tensorboard", make_a_file),
    ],
)
def test_a_file_that_could_not_be_kept_costs_no_budget(tmp_path, name, damage):
    train(tmp_path, rounds=2)
    damage(tmp_path / name)
    for _ in range(3):
        with pytest.raises(DataError, match=name.split(".")[0]):
            train(tmp_path)
        assert spends(tmp_path) == 2


@pytest.mark.parametrize("private", [True, False], ids=["private", "not private"])
@pytest.mark.parametrize("resume", [True, False])
def test_a_run_without_its_checkpoint_is_not_begun_again(tmp_path, private, resume):
    how = {} if private else {"aggregate": fl.non_private()}
    train(tmp_path, rounds=2, **how)
    before = (tmp_path / "history.jsonl").read_bytes()
    (tmp_path / "checkpoint.npz").unlink()
    with pytest.raises(DataError, match=r"checkpoint\.npz is missing.*restore it"):
        train(tmp_path, resume=resume, **how)
    (tmp_path / "checkpoint.npz").symlink_to(tmp_path / "gone")
    with pytest.raises(DataError, match="is missing"):
        train(tmp_path, resume=resume, **how)
    assert (tmp_path / "history.jsonl").read_bytes() == before


def test_a_run_whose_ledger_is_elsewhere_makes_none_in_its_folder(tmp_path):
    with Ledger.create(tmp_path / "mine", epsilon=50, delta=1e-3) as ledger:
        train(tmp_path / "run", rounds=2, ledger=ledger)
    with pytest.raises(LedgerError, match="pass the ledger that the run began with"):
        train(tmp_path / "run")
    assert not (tmp_path / "run" / "ledger").exists()


def test_a_second_process_is_kept_out_of_a_folder_in_use(tmp_path):
    """Also where no ledger's lock does it."""
    seen = []

    def watch(record):
        with pytest.raises(DataError, match="another process works in"):
            train(tmp_path, aggregate=fl.non_private())
        seen.append((record.round, len(report.read(tmp_path).records)))

    fl.train(
        task(),
        plan(rounds=2),
        aggregate=fl.non_private(),
        entropy=ENTROPY,
        folder=tmp_path,
        watch=watch,
    )
    assert seen == [(0, 1), (1, 2)]


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_round_that_was_shown_is_not_replaced_by_another(tmp_path, monkeypatch, before):
    """Killed while the second checkpoint is written."""
    train(tmp_path, rounds=1)
    save = Checkpoint.save

    def die(self, path):
        if not before:
            save(self, path)
        if self.round == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        monkeypatch.setattr(Checkpoint, "save", die)
        train(tmp_path)
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    shown = report.read(tmp_path).records
    assert [record.round for record in shown] == [0]
    history = train(tmp_path)
    assert history.records[0] == shown[0]
    # a round that was not kept is run again and spent again, within the budget of four
    assert [record.round for record in history.records] == [0, 1, 2, 3][: 3 if before else 4]
    assert report.read(tmp_path).records == history.records
    assert spends(tmp_path) == 4


def test_a_header_without_its_digest_is_refused(tmp_path):
    train(tmp_path, plan(rounds=2, quantile_noise=1.0), clip=fl.AdaptiveClip(clip=1.0))
    path = tmp_path / "run.json"
    text = path.read_text()
    path.write_text(text[: text.index(',\n "clip": {')] + text[text.rindex("\n}") :])
    with pytest.raises(DataError, match="digest"):
        report.read(tmp_path)


def test_a_path_that_cannot_be_is_refused_by_our_error(tmp_path):
    for use in (train, report.read, report.write, report.write_operator):
        with pytest.raises(DataError, match="null"):
            use(tmp_path / "a\0b")


def test_a_copy_of_the_folder_goes_on(tmp_path):
    train(tmp_path / "one", rounds=2)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    history = train(tmp_path / "two")
    assert [record.round for record in history.records] == [0, 1, 2, 3]
    assert spends(tmp_path / "one") == 2


def test_a_ledger_without_its_tail_is_named_as_such(tmp_path):
    train(tmp_path, rounds=2)
    (tmp_path / "ledger.tail").unlink()
    with pytest.raises(LedgerError, match=r"no .*\.tail"):
        train(tmp_path)
