import json
import math
from dataclasses import replace

import pandas as pd
import pytest

from oracles.tiny_task import plan
from skellam.errors import DataError, DomainError
from skellam.federated import Header, Record
from skellam.federated.history import read_records
from skellam.plan import AdaptiveClip

RECORD = Record(
    round=3, test={"loss": 0.5, "accuracy": 0.75, "top_5": None}, epsilon_server=math.inf
)
HEADER = Header(
    task="tiny",
    training="sgd",
    server="fedavg",
    aggregate="unmasked",
    population="population 12",
    private=True,
    replayable=False,
    plan=plan(),
)


def test_a_record_is_one_line_of_standard_json():
    line = RECORD.to_line()
    assert "\n" not in line
    assert json.loads(line, parse_constant=pytest.fail)["epsilon_server"] == "inf"
    assert Record.from_line(line) == RECORD


@pytest.mark.parametrize("line", ["", "{", "[]", '{"round": 1, "cohort": 7}', '{"test_loss": 1}'])
def test_what_is_no_record_is_refused(line):
    with pytest.raises(DataError):
        Record.from_line(line)


def test_a_torn_last_line_never_was(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text(RECORD.to_line() + "\n" + RECORD.to_line()[:20])
    assert read_records(path) == [RECORD]
    assert read_records(tmp_path / "nothing") == []


def test_a_history_that_is_not_utf_8_is_refused_by_our_error(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_bytes(b"\xff" + RECORD.to_line().encode() + b"\n")
    with pytest.raises(DataError, match=r"cannot read .*history\.jsonl.*utf-8"):
        read_records(path)


def test_a_header_reads_back():
    assert Header.from_json(HEADER.to_json()) == HEADER
    adaptive = replace(HEADER, clip=AdaptiveClip(clip=0.1))
    assert Header.from_json(adaptive.to_json()) == adaptive


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"skellam-run": 2}', '{"skellam-run": 1}'])
def test_what_is_no_header_is_refused(text):
    with pytest.raises(DataError):
        Header.from_json(text)


def test_a_record_finds_its_measures_by_name():
    assert RECORD.evaluated
    assert RECORD.measured("test_top_5") is None
    assert RECORD.measured("test_accuracy") == RECORD.test_accuracy == 0.75
    assert RECORD.measured("validation_loss") is None
    with pytest.raises(DomainError, match="test_ or validation_"):
        RECORD.measured("accuracy")


def test_a_run_of_the_first_version_is_refused_with_words():
    with pytest.raises(DataError, match="version 1 and version 2 is needed"):
        Header.from_json('{"skellam-run": 1}')


def test_a_data_frame_takes_the_lines(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text((RECORD.to_line() + "\n") * 2)
    frame = pd.read_json(path, lines=True)
    assert frame["test_accuracy"].tolist() == [0.75, 0.75]
    assert frame["epsilon_server"].astype(float).tolist() == [math.inf, math.inf]
