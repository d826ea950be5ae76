"""Calls that cannot work: each ends in one line that says what is wrong, and never in a trace."""

import pytest
from typer.testing import CliRunner

from skellam import Plan
from skellam.accounting.ledger import Ledger
from skellam.cli import app

PLAN = {
    "--dimension": "4",
    "--clip": "1",
    "--cohort": "3",
    "--sampling": "all",
    "--epsilon": "1",
    "--delta": "0.1",
    "--out": "{new}",
}
QUERY = {"--user": "who", "--epsilon": "1", "--delta": "1e-6"}
MEAN = {**QUERY, "--column": "hours", "--low": "0", "--high": "9"}
HISTOGRAM = {**QUERY, "--column": "hours", "--edges": "0,5,9"}
QUANTILES = {**QUERY, "--column": "hours", "--edges": "0,5,9"}
FREQUENCIES = {**QUERY, "--column": "pet", "--categories": "cat,dog"}
FLEET = {"--users": "1000", "--cohort": "10", "--rounds": "5", "--epsilon": "1"}
TRAIN = {"--folder": "{new}", "--epsilon": "8", "--rounds": "1", "--engine": "unmasked"}
UNREADABLE = ("{missing}", "{folder}", "{empty}", "{noise}", "{csv}")


def words(verb, options, **changes):
    """Return a call with options replaced, added, or with None left out."""
    changed = {"--" + name.replace("_", "-"): value for name, value in changes.items()}
    pairs = {**options, **changed}.items()
    return [
        *verb.split(),
        *(w for name, value in pairs if value is not None for w in (name, value)),
    ]


def each(verb, options, **values):
    """Yield a call for every value of every option."""
    for name, bad in values.items():
        for value in bad:
            yield words(verb, options, **{name: value})


NUMBERS = ("nan", "-1", "x", "")
CALLS = [
    [],
    ["nothing"],
    ["--nothing"],
    ["plan"],
    ["keys", "nothing"],
    ["ledger", "nothing"],
    ["keys", "new"],
    ["keys", "new", "{new}", "--number=-1"],
    ["keys", "new", "{csv}"],
    ["keys", "new", "{missing}/deeper/key"],
    *(["keys", "roster", file, "--out", "{new}"] for file in UNREADABLE),
    *each(
        "plan",
        PLAN,
        dimension=("0", "1e3", *NUMBERS),
        clip=("0", "inf", *NUMBERS),
        cohort=("0", "2.5", *NUMBERS),
        epsilon=("0", "inf", "1e-320", "1e308", *NUMBERS),
        delta=("0", "1", "2", "1e-320", *NUMBERS),
        rounds=("0", "1e8", *NUMBERS),
        bits=("0", "99", *NUMBERS),
        population=("2", "x"),
        sampling=("poisson", "nothing"),
        noise=("none", "nothing"),
        dropout=("1", "nan", "-1"),
        colluding=("1", "nan"),
        signal=("sideways", "-1"),
        compression=("0", "x"),
        sweep=("bits", "bits=9..1", "bits=a..b", "nothing=1,2"),
        plot=("{new}.png",),
        out=("{folder}", "{missing}/deeper/plan.json"),
    ),
    words("plan", PLAN, sweep="bits=8,9", plot="{new}.nothing"),
    *(["account", file] for file in UNREADABLE),
    ["account"],
    ["account", "{plan}", "--delta=2"],
    ["account", "{plan}", "--participations=0"],
    ["account", "{plan}", "--curve={new}.nothing"],
    ["account", "{plan}", "--users=10"],
    ["account", "{ledger}", "--delta=0.1"],
    *each(
        "account",
        FLEET,
        users=(None, "0", "1", "5", "x"),
        cohort=(None, "0", "x"),
        rounds=("0", "x"),
        epsilon=(None, "0", "x"),
        noise_multiplier=("1", "-1", "1e300"),
        delta=("0", "1", "x"),
    ),
    *(["verify", file] for file in UNREADABLE),
    ["verify", "{ledger}", "--key=xyz"],
    ["verify", "{ledger}", "--key=" + "00" * 32],
    *(["cite", file] for file in UNREADABLE),
    *(["audit", file] for file in UNREADABLE),
    ["audit", "{plan}", "--trials=0"],
    ["audit", "{plan}", "--confidence=2"],
    ["audit", "{plan}", "--delta=2"],
    *(["report", file] for file in UNREADABLE),
    ["ledger", "new", "{new}"],
    ["ledger", "new", "{new}", "--epsilon=0", "--delta=1e-6"],
    ["ledger", "new", "{new}", "--epsilon=1", "--delta=2"],
    ["ledger", "new", "{ledger}", "--epsilon=1", "--delta=1e-6"],
    ["ledger", "new", "{folder}", "--epsilon=1", "--delta=1e-6"],
    *(words(f"query count {file}", QUERY) for file in UNREADABLE[:-1]),
    words("query count {csv}", QUERY, user="wh"),
    words("query count {csv}", QUERY, column="hours"),
    words("query count {csv}", QUERY, low="1"),
    words("query count {csv}", QUERY, max_rows="0"),
    words("query count {csv}", QUERY, ledger="{missing}"),
    words("query count {csv}", QUERY, ledger="{plan}"),
    words("query nothing {csv}", QUERY),
    words("account", FLEET, epsilon=None, noise_multiplier="1e300"),
    words("query count {short}", QUERY),
    words("query count {long}", QUERY),
    words("query count {twice}", QUERY),
    words("query count {unowned}", QUERY),
    words("query mean {csv}", MEAN, column=""),
    words("query count {bytes}", QUERY),
    words("query mean {csv}", QUERY, low="0", high="1"),
    words("query mean {csv}", MEAN, column="pet"),
    words("query mean {csv}", MEAN, low=None),
    words("query mean {csv}", MEAN, low="9", high="0"),
    words("query mean {csv}", MEAN, low="nan"),
    words("query mean {csv}", MEAN, epsilon="0"),
    words("query mean {csv}", MEAN, delta="0"),
    words("query mean {csv}", MEAN, confidence="1"),
    words("query mean {csv}", MEAN, edges="0,1"),
    words("query sum {csv}", MEAN, high=None),
    words("query histogram {csv}", HISTOGRAM, edges="5,5"),
    words("query histogram {csv}", HISTOGRAM, edges="0,x"),
    words("query histogram {csv}", HISTOGRAM, edges=None),
    words("query histogram {csv}", HISTOGRAM, max_buckets="-1"),
    words("query quantiles {csv}", QUANTILES, at="2"),
    words("query quantiles {csv}", QUANTILES, at="x"),
    words("query frequencies {csv}", FREQUENCIES, categories=None),
    words("query frequencies {csv}", FREQUENCIES, categories="cat,cat"),
    words("train nothing", TRAIN),
    words("train digits", TRAIN, epsilon=None),
    words("train digits", TRAIN, epsilon="0"),
    words("train digits", TRAIN, engine="nothing"),
    words("train digits", TRAIN, epsilon=None, rounds=None, plan="{missing}"),
    words("train digits", TRAIN, epsilon=None, rounds=None, plan="{folder}"),
    words("train digits", TRAIN, epsilon=None, rounds=None, plan="{plan}"),
    words("train digits", TRAIN, rounds=None, plan="{plan}"),
    words("train digits", TRAIN, epsilon=None, rounds=None, plan="{plan}", bits="4"),
    words("train digits", TRAIN, quantile_noise="0.1"),
    words("train digits", TRAIN, adaptive_clip="1.5"),
    words("train digits", TRAIN, simulate_dropout="0.9"),
    words("train digits", TRAIN, simulate_dropout="nan"),
    words("train digits", TRAIN, data="{csv}"),
    words("train digits", TRAIN, folder="{csv}"),
    words("train emnist", TRAIN, data="{missing}"),
    words("train emnist", TRAIN, data="{csv}"),
    [*words("train digits", TRAIN), "--resume"],
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    root = tmp_path_factory.mktemp("files")
    names = (
        "new",
        "missing",
        "folder",
        "empty",
        "noise",
        "csv",
        "short",
        "bytes",
        "long",
        "twice",
        "unowned",
        "plan",
        "ledger",
    )
    paths = {name: root / name for name in names} | {"csv": root / "a.csv"}
    for name in ("short", "bytes", "long", "twice", "unowned"):
        paths[name] = root / f"{name}.csv"
    paths["folder"].mkdir()
    paths["empty"].write_bytes(b"")
    paths["noise"].write_bytes(bytes(range(256)) * 4)
    paths["csv"].write_text("who,hours,pet\n" + "".join(f"u{n},{n % 9},cat\n" for n in range(30)))
    paths["short"].write_text("hours,who\n1,ann\n2\n")
    paths["long"].write_text("who,hours\nann,1,2\nbob,3\n")
    paths["twice"].write_text("who,who,hours\nann,bob,1\ncid,dan,2\n")
    paths["unowned"].write_text("who,hours\nann,1\n,2\nbob,3\n")
    paths["bytes"].write_bytes(b"who,hours\n\xff\xfe,1\n")
    asked = Plan(dimension=4, clip=1, cohort=3, sampling="all", rounds=1)
    asked.calibrated(epsilon=1, delta=0.1).save(paths["plan"])
    Ledger.create(paths["ledger"], epsilon=1, delta=1e-6).close()
    return paths


def test_there_are_more_than_140_calls():
    assert len({tuple(call) for call in CALLS}) > 140


@pytest.mark.parametrize("call", CALLS, ids=lambda call: " ".join(call)[:60] or "nothing")
def test_a_bad_call_ends_in_one_line_and_no_trace(call, files):
    filled = [word.format(**files) for word in call]
    shown = CliRunner().invoke(app, filled)
    assert shown.exception is None or isinstance(shown.exception, SystemExit), shown.exception
    if not call or call in (["keys"], ["ledger"]):
        assert "Usage" in shown.output  # the help, which no_args_is_help shows
        return
    assert shown.exit_code in {1, 2, 3, 4}, shown.output
    assert shown.stdout == ""
    assert shown.stderr.startswith("error: ")
    assert shown.stderr.count("\n") == 1
    assert len(shown.stderr) > 20
    assert not files["new"].exists()
