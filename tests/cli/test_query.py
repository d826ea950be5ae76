import json

import pytest
from typer.testing import CliRunner

from skellam.accounting.ledger import Ledger
from skellam.cli import app

HOURS = {f"user-{i}": (i % 10, "cat" if i % 4 else "dog") for i in range(300)}
TARGETS = ["--user=who", "--epsilon=4", "--delta=1e-6"]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "hours.csv"
    lines = [f"{who},{hours},{pet}" for who, (hours, pet) in HOURS.items()]
    path.write_text("\n".join(["who,hours,pet", *lines, ""]))
    return path


def run(*words):
    return CliRunner().invoke(app, ["query", *map(str, words)])


def test_two_servers_answer_with_the_noise_of_both(file):
    """An interval of 1 - 1e-9: a false alarm in 10^9 runs."""
    given = ["--secure", "--aggregation=two-servers", "--confidence=0.999999999", "--json"]
    shown = run("count", file, *TARGETS, *given)
    assert shown.exit_code == 0, shown.output
    record = json.loads(shown.stdout)
    (line,) = record["answer"]
    assert line["low"] <= 300 <= line["high"]
    assert record["guarantee"]["audience"] == "leader"


@pytest.mark.parametrize(
    ("job", "options", "truth"),
    [
        ("count", [], [300]),
        ("sum", ["--column=hours", "--low=0", "--high=10"], [1350]),
        ("mean", ["--column=hours", "--low=0", "--high=10"], [4.5]),
        ("histogram", ["--column=hours", "--edges=0,5,10"], [150, 150]),
        ("quantiles", ["--column=hours", "--edges=0,2,4,6,8,10", "--at=0.5"], [4.5]),
        ("frequencies", ["--column=pet", "--categories=cat,dog,fish"], [225, 75, 0]),
    ],
)
def test_an_answer_has_an_interval_around_the_truth(file, job, options, truth):
    """Intervals of 1 - 1e-9 each: a false alarm in 10^8 runs."""
    shown = run(job, file, *TARGETS, *options, "--confidence=0.999999999", "--json")
    assert shown.exit_code == 0, shown.output
    record = json.loads(shown.stdout)
    for line, value in zip(record["answer"], truth, strict=True):
        assert line["low"] <= value <= line["high"]
    assert record["guarantee"]["epsilon"] <= 4


def test_parquet_is_read_like_csv(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    path = tmp_path / "hours.parquet"
    hours = [hours for hours, _ in HOURS.values()]
    parquet.write_table(pa.table({"who": list(HOURS), "hours": hours}), path)
    shown = run("mean", path, *TARGETS, "--column=hours", "--low=0", "--high=10")
    assert shown.exit_code == 0, shown.output
    assert "DP for one user" in shown.output


def test_a_ledger_pays_for_the_answer_or_nothing_is_answered(file, tmp_path):
    book = tmp_path / "book"
    Ledger.create(book, epsilon=5, delta=1e-6).close()
    words = ("count", file, *TARGETS, "--ledger", book)
    assert run(*words).exit_code == 0
    refused = run(*words)
    assert refused.exit_code == 3
    assert len(Ledger.verify(book).spends) == 1


@pytest.mark.parametrize(
    ("words", "way_out"),
    [
        (["mean", "--column=hours"], "--low"),
        (["histogram", "--column=hours"], "--edges"),
        (["histogram", "--column=hours", "--edges=0,x"], "--edges"),
        (["frequencies", "--column=pet"], "--categories"),
        (["sum", "--column=pet", "--low=0", "--high=1"], "no number"),
        (["sum", "--column=nothing", "--low=0", "--high=1"], "nothing"),
    ],
)
def test_a_question_that_lacks_something_is_refused_with_what_it_lacks(file, words, way_out):
    job, *options = words
    shown = run(job, file, *TARGETS, *options)
    assert shown.exit_code == 1
    assert way_out in shown.stderr


def test_what_counts_is_named_and_what_does_not_is_told_to_the_operator_alone(tmp_path):
    path = tmp_path / "visits.csv"
    path.write_text("who,hours\n" + "".join(f"u{n // 3},{n % 20}\n" for n in range(3000)))
    shown = run("count", path, *TARGETS)
    assert "count of rows; of each 'who' at most 1 row (--max-rows)" in shown.stdout
    assert "3,000 rows of 1,000 users" in shown.stderr
    assert "2,000 rows did not count" in shown.stderr
    assert "2,000" not in shown.stdout
    clipped = run("mean", path, *TARGETS, "--column=hours", "--low=0", "--high=9", "--max-rows=3")
    assert "mean of column 'hours'; of each 'who' at most 3 rows" in clipped.stdout
    assert "1,500 values were moved" in clipped.stderr
    assert "did not count" not in clipped.stderr


def test_what_does_not_count_is_said_with_the_reason_of_its_job(tmp_path):
    path = tmp_path / "pets.csv"
    path.write_text(
        "who,pet\n" + "".join(f"u{n // 3},{'cat' if n % 3 else 'cow'}\n" for n in range(3000))
    )
    assert "2,000 rows did not count: more than --max-rows 1 of one user" in (
        run("count", path, *TARGETS).stderr
    )
    said = run("frequencies", path, *TARGETS, "--column=pet", "--categories=cat,cow").stderr
    assert "in a bucket, or than --max-buckets 1 buckets of one" in " ".join(said.split())


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_row_without_a_user_is_refused_and_costs_nothing(tmp_path, ending):
    import pandas as pd

    frame = pd.DataFrame({"who": ["ann", None, "bob"], "hours": [1, 2, 3]})
    path, book = tmp_path / f"hours.{ending}", tmp_path / "book"
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    Ledger.create(book, epsilon=5, delta=1e-6).close()
    shown = run("count", path, *TARGETS, "--ledger", book)
    assert shown.exit_code == 1
    assert "row 2, has no 'who'; every row needs an owner" in " ".join(shown.stderr.split())
    assert not Ledger.verify(book).spends


@pytest.mark.parametrize("value", ["NA", "nan", ""])
def test_a_value_that_is_no_number_is_named_with_its_column_and_user(tmp_path, value):
    path = tmp_path / "hours.csv"
    path.write_text(f"who,hours\nann,1\nbob,{value}\n")
    shown = run("mean", path, *TARGETS, "--column=hours", "--low=0", "--high=9")
    assert shown.exit_code == 1
    assert f"'hours' of 'bob' is no number, got {value!r}" in " ".join(shown.stderr.split())


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    path = tmp_path / "excel.csv"
    path.write_text("who,hours\nann,1\nbob,2\n", encoding="utf-8-sig")
    assert run("count", path, *TARGETS).exit_code == 0


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_wrong_column_is_named_beside_those_that_there_are(tmp_path, ending):
    import pandas as pd

    frame = pd.DataFrame({"who": ["ann"], "hours": [1]})
    path = tmp_path / f"hours.{ending}"
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    shown = run("count", path, "--user=owner", "--epsilon=4", "--delta=1e-6")
    assert shown.exit_code == 1
    assert "has no column 'owner', only who, hours" in shown.stderr


@pytest.mark.parametrize("job", ["sum", "mean", "histogram", "quantiles", "frequencies"])
def test_no_column_is_guessed(file, job):
    shown = run(job, file, *TARGETS)
    assert shown.exit_code == 1
    assert f"give --column, the column that the {job} is of" in " ".join(shown.stderr.split())
