import os

import pytest

from skellam.accounting.ledger.file import LedgerFile, read
from skellam.errors import LedgerError

LINES = (b'{"terms":1}\n', b'{"first":"spend"}\n', b'{"second":"spend"}\n', b'{"last":"one"}\n')


@pytest.fixture
def ledger(tmp_path):
    path = tmp_path / "ledger"
    file = LedgerFile.create(path, LINES[0])
    for line in LINES[1:]:
        file.append(line)
    file.close()
    return path


def tail_of(path):
    return path.with_name(path.name + ".tail")


def test_what_was_appended_is_read_back(ledger):
    assert read(ledger) == b"".join(LINES)
    file, octets = LedgerFile.open(ledger)
    file.append(b"more\n")
    assert octets == b"".join(LINES)
    assert read(ledger) == ledger.read_bytes() == octets + b"more\n"


def test_a_cut_at_any_byte_of_the_last_line_is_healed_and_before_it_refused(ledger):
    whole = ledger.read_bytes()
    durable = len(whole) - len(LINES[-1])
    for end in range(len(whole)):
        ledger.write_bytes(whole[:end])
        if end < durable:
            number = whole.count(b"\n", 0, end) + 1
            with pytest.raises(LedgerError, match=f"line {number} .*lost"):
                LedgerFile.open(ledger)
            with pytest.raises(LedgerError, match="lost"):
                read(ledger)
        else:
            assert read(ledger) == whole
            file, octets = LedgerFile.open(ledger)
            file.close()
            assert octets == ledger.read_bytes() == whole


def test_a_kill_between_any_two_steps_of_an_append_loses_nothing_that_returned(ledger):
    before, old_tail = ledger.read_bytes(), tail_of(ledger).read_bytes()
    file, _ = LedgerFile.open(ledger)
    file.append(b"next\n")
    file.close()
    new_tail, unfinished = tail_of(ledger).read_bytes(), tail_of(ledger).with_suffix(".tail.new")
    for end in range(len(new_tail) + 1):  # the new tail is being written, nothing is renamed
        ledger.write_bytes(before)
        tail_of(ledger).write_bytes(old_tail)
        unfinished.write_bytes(new_tail[:end])
        assert read(ledger) == before
    for end in range(len(b"next\n") + 1):  # renamed; the ledger is being written
        ledger.write_bytes(before + b"next\n"[:end])
        tail_of(ledger).write_bytes(new_tail)
        assert read(ledger) == before + b"next\n"


def test_a_kill_while_a_ledger_is_created_leaves_nothing_or_the_ledger(tmp_path):
    path = tmp_path / "ledger"
    path.touch()
    LedgerFile.create(path, b"terms\n").close()
    path.write_bytes(b"")
    with pytest.raises(LedgerError, match="already"):
        LedgerFile.create(path, b"other terms\n")
    path.unlink()
    file, octets = LedgerFile.open(path)
    file.close()
    assert octets == path.read_bytes() == b"terms\n"


def test_no_byte_of_the_tail_or_of_the_last_line_can_change_unseen(ledger):
    for path, start in ((tail_of(ledger), 0), (ledger, ledger.stat().st_size - len(LINES[-1]))):
        whole = path.read_bytes()
        for index in range(start, len(whole)):
            path.write_bytes(whole[:index] + bytes([whole[index] ^ 4]) + whole[index + 1 :])
            with pytest.raises(LedgerError):
                read(ledger)
        path.write_bytes(whole)
    ledger.write_bytes(ledger.read_bytes() + b"x")
    with pytest.raises(LedgerError, match=r"line 4 .*differs"):
        read(ledger)


def test_a_ledger_without_its_tail_or_a_tail_without_its_ledger_is_refused(ledger):
    tail = tail_of(ledger).read_bytes()
    tail_of(ledger).unlink()
    with pytest.raises(LedgerError, match=r"no .*\.tail"):
        LedgerFile.open(ledger)
    tail_of(ledger).write_bytes(tail)
    ledger.unlink()
    with pytest.raises(LedgerError, match="lost"):
        LedgerFile.open(ledger)


def test_a_path_without_a_ledger_stays_empty_when_it_is_opened(tmp_path):
    with pytest.raises(LedgerError, match="there is no"):
        LedgerFile.open(tmp_path / "none")
    assert not list(tmp_path.iterdir())


def test_two_writers_cannot_hold_one_ledger(ledger):
    file, _ = LedgerFile.open(ledger)
    with pytest.raises(LedgerError, match="another"):
        LedgerFile.open(ledger)
    file.close()
    LedgerFile.open(ledger)[0].close()


def test_a_forked_child_cannot_write_its_parents_ledger(ledger):
    file, _ = LedgerFile.open(ledger)
    child = os.fork()
    if child == 0:
        try:
            file.append(b"child\n")
        except LedgerError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    file.append(b"parent\n")
    assert read(ledger).endswith(b"parent\n")


def test_a_file_that_failed_to_write_is_closed(ledger, tmp_path):
    file, _ = LedgerFile.open(ledger)
    tail_of(ledger).with_suffix(".tail.new").mkdir()
    with pytest.raises(LedgerError, match="Is a directory"):
        file.append(b"lost\n")
    with pytest.raises(LedgerError, match="closed"):
        file.append(b"again\n")
    assert read(ledger) == b"".join(LINES)
