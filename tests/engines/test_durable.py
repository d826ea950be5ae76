"""Logs: a line counts when it was acknowledged, whatever kills or damages come."""

import os
import signal
import stat
import subprocess
import sys
from functools import partial

import pytest
from benchmarks.faults import killed

from skellam.engines.durable import SECRET, Log, locked
from skellam.errors import DataError, DomainError


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path / "log", SECRET)


def sidecar(log):
    return log.path.with_name("log.sha256")


def test_lines_read_back_and_belong_to_the_owner(log):
    assert log.lines() == []
    for line in ("one", "", "drei – 3"):
        log.append(line)
    assert log.lines() == ["one", "", "drei – 3"]
    assert log.path.read_text(encoding="utf-8") == "one\n\ndrei – 3\n"
    for path in (log.path, sidecar(log)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_follows_the_counted_lines_never_was(log):
    log.append("one")
    with log.path.open("ab") as file:
        file.write(b"two\nthr")
    assert log.lines() == ["one"]
    log.append("2")
    assert log.path.read_text() == "one\n2\n"


def test_a_lost_or_changed_line_is_refused_with_its_file(log):
    for line in ("one", "two"):
        log.append(line)
    for damaged in (b"one\n", b"one\ntwo", b"one\ntwx\n", b""):
        log.path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"log was cut off or changed.*log\.sha256"):
            log.lines()
        with pytest.raises(DataError, match="restore both"):
            log.append("three")
        assert log.path.read_bytes() == damaged
    log.path.unlink()
    with pytest.raises(DataError, match="cut off"):
        log.lines()


@pytest.mark.parametrize("summary", [b"", b"x", b"4", b"-1 ", b"9" * 5000 + b" "])
def test_a_damaged_digest_is_refused(log, summary):
    log.append("one")
    sidecar(log).write_bytes(summary)
    with pytest.raises(DataError, match="cut off or changed"):
        log.lines()


def test_a_log_without_a_digest_is_of_an_earlier_version(log):
    log.path.write_text("one\ntwo\nthr")
    assert log.lines() == ["one", "two"]
    log.append("3")
    assert log.lines() == ["one", "two", "3"]
    log.path.write_text("one\ntwo\n")
    with pytest.raises(DataError, match="cut off"):
        log.lines()


def test_a_log_that_is_no_text_is_refused(log):
    log.path.write_bytes(b"\xff\n")
    with pytest.raises(DataError, match=r"cannot read .*log: .*utf-8"):
        log.lines()
    log.path.unlink()
    log.path.mkdir()
    with pytest.raises(DataError, match="no regular file"):
        log.lines()


def test_a_log_is_cut_back_and_goes_on(log):
    for line in ("one", "two", "three"):
        log.append(line)
    log.cut(5)
    assert log.lines() == ["one", "two", "three"]
    log.cut(1)
    assert (log.lines(), log.path.read_text()) == (["one"], "one\n")
    log.append("zwei")
    assert log.lines() == ["one", "zwei"]
    log.path.unlink()
    log.cut(0)  # what was damaged can be begun anew
    assert (log.lines(), log.path.read_bytes()) == ([], b"")


@pytest.mark.parametrize("torn", [False, True], ids=["whole writes", "short writes"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_anywhere_keeps_what_was_acknowledged(tmp_path, after, torn):
    def work(log, acknowledge):
        for line in ("one", "two"):
            log.append(line)
            acknowledge()
        log.cut(1)
        acknowledge()
        log.append("drei")
        acknowledge()

    states = [[], ["one"], ["one", "two"], ["one"], ["one", "drei"]]
    kills = 0
    for at in range(1, 200 if torn else 100):  # no kill after a call that fails by itself
        log = Log(tmp_path / f"log-{at}", SECRET)
        acknowledged, died = killed(partial(work, log), at, after=after, torn=torn)
        kills += died
        found = log.lines()
        assert found in states[acknowledged : acknowledged + 2]
        log.append("next")
        assert log.lines() == [*found, "next"]
    assert kills > 40
    assert not died, "there were more calls"


def test_two_processes_lose_no_line_and_readers_see_no_error(tmp_path):
    log, count = Log(tmp_path / "log", SECRET), 40
    script = (
        "import sys; from pathlib import Path; from skellam.engines.durable import Log\n"
        "log = Log(Path(sys.argv[1]), 0o600)\n"
        f"for number in range({count}): log.append(f'{{sys.argv[2]}} {{number}}')"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", script, str(log.path), name]) for name in "ab"
    ]
    while any(writer.poll() is None for writer in writers):
        seen = log.lines()
        assert [line for line in seen if line[0] == "a"] == [f"a {n}" for n in range(len(seen))][
            : sum(line[0] == "a" for line in seen)
        ]
    assert sorted(log.lines()) == sorted(f"{name} {n}" for name in "ab" for n in range(count))


def test_a_pipe_in_place_of_a_file_is_refused_at_once(log):
    os.mkfifo(log.path)
    for use in (log.lines, partial(log.append, "one"), partial(log.cut, 0)):
        with pytest.raises(DataError, match="no regular file"):
            use()


def test_what_a_check_refuses_is_not_added(log):
    log.append("one")

    def check(lines):
        raise DomainError(f"there are {lines}")

    with pytest.raises(DomainError, match="one"):
        log.append("two", check=check)
    assert log.lines() == ["one"]


def test_a_folder_is_locked_until_it_is_left_and_forks_keep_nothing(tmp_path):
    with locked(tmp_path):
        with pytest.raises(DataError, match="another process works in"), locked(tmp_path):
            pass
        child = os.fork()
        if child == 0:
            signal.pause()
    try:
        with locked(tmp_path):
            assert tmp_path.exists()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
