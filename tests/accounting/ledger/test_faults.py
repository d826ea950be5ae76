"""Faults that were found by injecting them into version 0.1."""

import errno
import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from oracles.identity import ALICE, BOB
from skellam.accounting import Gaussian
from skellam.accounting.ledger import Ledger, Spend
from skellam.errors import LedgerError, SkellamError

NOISE = Gaussian(sigma=20.0, l2=1.0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger"


def create(path, epsilon=1.0, **settings):
    return Ledger.create(path, epsilon=epsilon, delta=1e-5, **settings)


def tail_of(path):
    return path.with_name(path.name + ".tail")


def copy(path, name):
    for file in (path, tail_of(path)):
        shutil.copy(file, file.with_name(file.name.replace("ledger", name)))
    return path.with_name(name)


def put_back(copied, path):
    copied.replace(path)
    tail_of(copied).replace(tail_of(path))


def test_an_older_copy_renamed_over_a_held_ledger_is_refused(path):
    with create(path) as ledger:
        ledger.spend(NOISE, rounds=10)
        older = copy(path, "older")
        ledger.spend(NOISE, rounds=5)
        put_back(older, path)
        with pytest.raises(LedgerError, match=r"moved or replaced.*open the ledger again"):
            ledger.spend(NOISE)
        with pytest.raises(LedgerError, match="closed"):
            ledger.spend(NOISE)


def test_a_second_holder_of_a_replaced_ledger_cannot_spend_the_same_budget_again(path):
    """Each would keep to its budget of 1, and both together spend epsilon 1.44."""
    rounds = 0
    with create(path) as first:
        while first.account.plus(Spend(NOISE, rounds + 1)).epsilon() <= 1.0:
            rounds += 1
        older = copy(path, "older")
        put_back(older, path)
        with Ledger.open(path) as second:
            second.spend(NOISE, rounds=rounds)
            with pytest.raises(LedgerError, match="moved or replaced"):
                first.spend(NOISE, rounds=rounds)
    assert Ledger.verify(path).epsilon() <= 1.0


@pytest.mark.parametrize("change", ["shorter", "longer", "other end", "removed"])
def test_a_held_ledger_that_somebody_changes_is_refused(path, change):
    with create(path) as ledger:
        ledger.spend(NOISE, key=b"1")
        whole = path.read_bytes()
        changed = {
            "shorter": whole[: whole.rindex(b"\n", 0, -1) + 1],
            "longer": whole + whole.splitlines(keepends=True)[-1],
            "other end": whole[:-5] + b"0000\n",
        }
        if change == "removed":
            path.unlink()
        else:
            path.write_bytes(changed[change])
        with pytest.raises(LedgerError, match="while it was open"):
            ledger.spend(NOISE, key=b"2")


def forged(path, **budget):
    """Return an unsigned ledger that claims Alice's key, under the name of hers."""
    stranger = type("Stranger", (), {"public_key": ALICE.public_key, "sign": lambda *_: b""})()
    stranger.verify = lambda *_: True
    Ledger.create(path, **budget, signer=stranger).close()


def test_a_forgery_without_signatures_is_refused_by_its_supposed_signer(path):
    forged(path, epsilon=100.0, delta=1e-5)
    with pytest.raises(LedgerError, match=r"line 1 .*not signed"):
        Ledger.open(path, signer=ALICE)
    with pytest.raises(LedgerError, match=r"line 1 .*not signed"):
        Ledger.verify(path, verifier=ALICE)


def test_a_line_that_another_key_signed_is_refused_on_opening(path):
    with create(path, signer=ALICE) as ledger:
        ledger.spend(NOISE)
    first = path.read_bytes().splitlines(keepends=True)[0]
    offset = len(first)
    with create(path.with_name("bobs"), signer=BOB) as ledger:
        ledger.spend(NOISE, note="cheap")
    line = json.loads(path.with_name("bobs").read_bytes().splitlines()[1])
    line["previous"] = json.loads(first)["digest"]
    line.pop("digest")
    from skellam.accounting.ledger.file import _canonical, _digest, _tail_digest

    forged_line = _canonical(line | {"digest": _digest(line)}) + b"\n"
    path.write_bytes(first + forged_line)
    content = b"%d\n%b" % (offset, forged_line)
    tail_of(path).write_bytes(_tail_digest(content) + content)
    assert len(Ledger.verify(path).spends) == 1
    with pytest.raises(LedgerError, match=r"line 2 .*not signed"):
        Ledger.open(path, signer=ALICE)


@pytest.mark.parametrize("start", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("end", [0.5, 1.0])
def test_a_last_line_of_zeros_is_recovered_from_the_tail(path, start, end):
    with create(path) as ledger:
        ledger.spend(NOISE, rounds=2)
        ledger.spend(NOISE, rounds=3)
    whole = path.read_bytes()
    last = len(whole.splitlines(keepends=True)[-1])
    offset = len(whole) - last
    first, beyond = offset + int(start * last), offset + max(int(end * last), int(start * last))
    path.write_bytes(whole[:first] + bytes(beyond - first))
    assert Ledger.verify(path).rounds == {NOISE: 5}
    with Ledger.open(path) as ledger:
        assert path.read_bytes() == whole
        ledger.spend(NOISE)
    assert Ledger.verify(path).rounds == {NOISE: 6}


def test_zeros_before_the_last_line_are_not_recovered(path):
    with create(path) as ledger:
        ledger.spend(NOISE)
        ledger.spend(NOISE)
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + bytes(50) + whole[150:])
    with pytest.raises(LedgerError, match="line 1 "):
        Ledger.open(path)


def fork_and_wait(told=None):
    """Return the id of a forked child that waits to be killed; it writes its id to ``told``."""
    child = os.fork()
    if child == 0:
        if told is not None:
            os.write(told, b"%d\n" % os.getpid())
        signal.pause()
        os._exit(0)
    return child


def end(child):
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_forked_child_does_not_keep_the_lock_of_a_ledger_that_was_closed(path):
    ledger = create(path)
    child = fork_and_wait()
    try:
        with pytest.raises(LedgerError, match="another process"):
            Ledger.open(path)
        ledger.close()
        Ledger.open(path).close()
    finally:
        end(child)


def test_a_name_with_no_room_for_its_tails_is_refused_and_leaves_nothing_open(tmp_path):
    before = len([*Path("/proc/self/fd").iterdir()])
    for _ in range(2):
        for make in (Ledger.open_or_create, Ledger.create):
            with pytest.raises(LedgerError, match="File name too long"):
                make(tmp_path / ("l" * 252), epsilon=1, delta=1e-5)
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_a_forked_child_does_not_keep_the_lock_of_a_process_that_was_killed(path):
    create(path).close()
    ready, told = os.pipe()
    holder = os.fork()
    if holder == 0:
        ledger = Ledger.open(path)
        fork_and_wait(told)
        signal.pause()
        os._exit(ledger is None)
    child = int(os.read(ready, 20))
    end(holder)
    try:
        with Ledger.open(path) as ledger:
            assert ledger.account.spends == ()
    finally:
        os.kill(child, signal.SIGKILL)
        os.close(ready)
        os.close(told)


def test_a_childs_copy_of_a_ledger_refuses_to_spend_and_closes_nothing(path):
    with create(path) as ledger:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                ledger.close()
                with Path(os.devnull).open() as other:  # may have the number of the inherited file
                    ledger.close()
                    other.read()
                ledger.spend(NOISE)
            except LedgerError as error:
                code = 7 if "fork" in str(error) else 2
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        ledger.spend(NOISE)
        with pytest.raises(LedgerError, match="another process"):
            Ledger.open(path)


@pytest.mark.parametrize("use", [Ledger.open, Ledger.verify, create])
def test_a_directory_is_no_ledger_and_the_error_says_so(tmp_path, use):
    with pytest.raises(LedgerError, match=r"directory"):
        use(tmp_path)


@pytest.mark.parametrize("use", [Ledger.open, Ledger.verify, create])
@pytest.mark.parametrize("name", ["nul\0byte", "missing/ledger", "x" * 300])
def test_a_path_that_cannot_be_is_refused_with_its_name(tmp_path, use, name):
    with pytest.raises(LedgerError, match="ledger"):
        use(tmp_path / name)


def test_what_is_no_path_is_refused():
    with pytest.raises(SkellamError, match="path must be"):
        Ledger.open(None)


CALLS = ("open", "write", "fsync", "replace", "close", "stat", "fstat", "pread", "fchmod")
CODES = (errno.ENOSPC, errno.EROFS, errno.EIO, errno.EACCES)


@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
@pytest.mark.parametrize("call", CALLS)
def test_every_error_of_the_system_becomes_ours_and_the_ledger_stays_whole(
    path, monkeypatch, call, code
):
    with create(path) as ledger:
        ledger.spend(NOISE, key=b"0")
    for number in range(1, 4):
        ledger, real, calls = Ledger.open(path), getattr(os, call), iter(range(100))

        def failing(*arguments, **options):
            if next(calls) == number - 1:  # noqa: B023
                raise OSError(code, os.strerror(code))
            return real(*arguments, **options)  # noqa: B023

        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing)
            try:
                ledger.spend(NOISE, key=b"%d" % number)
            except LedgerError as error:
                failed = str(error)
            else:
                failed = ""
        ledger.close()
        assert not failed or (str(path) in failed and "release nothing" in failed)
        account = Ledger.verify(path)
        assert failed or account.find(b"%d" % number)
        with Ledger.open(path) as again:
            assert again.account == account
            if not account.find(b"%d" % number):
                again.spend(NOISE, key=b"%d" % number)


def test_a_full_disk_is_named_with_what_to_do(path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with create(path) as ledger:
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(LedgerError, match=r"ledger.*No space.*release nothing; free space"):
            ledger.spend(NOISE)


@pytest.mark.parametrize(
    "fields",
    [
        {"filter": []},
        {"filter": {"kind": "rdp", "order": []}},
        {"filter": "gdp"},
        {"epsilon": 10**400},
        {"epsilon": []},
        {"delta": "half"},
        {"public_key": "zz"},
        {"public_key": 3},
        {"version": 2},
        {"more": 1},
    ],
)
def test_a_first_line_that_makes_no_sense_is_refused_with_its_number(path, fields):
    from skellam.accounting.ledger.file import Head, LedgerFile, seal

    budget = {"kind": "terms", "version": 1, "epsilon": 1.0, "delta": 1e-5}
    budget |= {"filter": None, "public_key": None}
    line, _ = seal(budget | fields, Head(), signer=None)
    LedgerFile.create(path, line).close()
    for use in (Ledger.open, Ledger.verify):
        with pytest.raises(LedgerError, match="line 1 "):
            use(path)


@pytest.mark.parametrize(
    "fields",
    [
        {"mechanism": []},
        {"mechanism": {"mechanism": []}},
        {"mechanism": {"mechanism": "gaussian", "sigma": 10**400, "l2": 1.0}},
        {"mechanism": {"mechanism": "gaussian", "sigma": 1.0, "l2": 1.0, "adjacency": {}}},
        {"mechanism": {"mechanism": "joint", "parts": 3}},
        {"rounds": -1},
        {"rounds": 1e3},
        {"key": "z"},
        {"key": 1},
        {"note": None},
        {"adaptive": True},
    ],
)
def test_a_spend_that_makes_no_sense_is_refused_with_its_number(path, fields):
    from skellam.accounting.ledger.file import LedgerFile, seal

    with create(path) as ledger:
        head = ledger.head
    line, _ = seal(Spend(NOISE).to_fields() | fields, head, signer=None)
    file, _ = LedgerFile.open(path)
    file.append(line)
    file.close()
    for use in (Ledger.open, Ledger.verify):
        with pytest.raises(LedgerError, match="line 2 "):
            use(path)
