import json
import math
from dataclasses import replace

import pytest

from oracles.tiny_task import plan
from skellam.errors import DataError
from skellam.federated import Header, Record
from skellam.federated.history import read_records
from skellam.plan import AdaptiveClip

RECORD = Record(round=3, test_loss=0.5, test_accuracy=0.75, epsilon_server_worst=math.inf)
HEADER = Header(
    task="tiny",
    training="sgd",
    server="fedavg",
    aggregate="clear",
    population="population 12",
    private=True,
    replayable=False,
    plan=plan(),
)


def test_a_record_is_one_line_of_standard_json():
    line = RECORD.to_line()
    assert "\n" not in line
    assert json.loads(line, parse_constant=pytest.fail)["epsilon_server_worst"] == "inf"
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


def test_a_header_reads_back():
    assert Header.from_json(HEADER.to_json()) == HEADER
    adaptive = replace(HEADER, clip=AdaptiveClip(clip=0.1))
    assert Header.from_json(adaptive.to_json()) == adaptive


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"skellam-run": 2}', '{"skellam-run": 1}'])
def test_what_is_no_header_is_refused(text):
    with pytest.raises(DataError):
        Header.from_json(text)


def test_a_data_frame_takes_the_lines(tmp_path):
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "history.jsonl"
    path.write_text((RECORD.to_line() + "\n") * 2)
    frame = pandas.read_json(path, lines=True)
    assert frame["test_accuracy"].tolist() == [0.75, 0.75]
    assert frame["epsilon_server_worst"].astype(float).tolist() == [math.inf, math.inf]
