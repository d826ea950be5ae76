"""``skellam query``: private statistics of a CSV or Parquet file with a user column, simulated."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from enum import StrEnum
from math import isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, assert_never

import typer

from skellam import _checks
from skellam.cli.answer import AsJson, answer, table
from skellam.errors import DataError, DomainError, MissingExtraError
from skellam.plan import Servers

if TYPE_CHECKING:
    from skellam import analytics as an


Line: TypeAlias = tuple[str, float, float, float]
"""What a number is of, the number, and the ends of its interval."""


class Job(StrEnum):
    """What is asked."""

    COUNT = "count"
    SUM = "sum"
    MEAN = "mean"
    HISTOGRAM = "histogram"
    QUANTILES = "quantiles"
    FREQUENCIES = "frequencies"


def query(
    job: Annotated[Job, typer.Argument(help="What to ask.")],
    path: Annotated[Path, typer.Argument(help="A CSV or Parquet file.")],
    *,
    user: Annotated[str, typer.Option(help="The column that says whose a row is.")],
    column: Annotated[
        str | None, typer.Option(help="The column that is asked about; of counts there is none.")
    ] = None,
    epsilon: Annotated[float, typer.Option(help="What the answer may cost.")],
    delta: Annotated[float, typer.Option(help="Below one over the number of users is usual.")],
    low: Annotated[float | None, typer.Option(help="Of sums and means: smallest value.")] = None,
    high: Annotated[float | None, typer.Option(help="Of sums and means: largest value.")] = None,
    edges: Annotated[
        str | None, typer.Option(help="Of histograms and quantiles: edges, as 0,10,20.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(help="Of quantiles: probabilities; 0.5 unless given.")
    ] = None,
    categories: Annotated[
        str | None, typer.Option(help="Of frequencies: all values there can be, as a,b,c.")
    ] = None,
    max_rows: Annotated[
        int, typer.Option(help="Rows of one user that count, in each of its buckets.")
    ] = 1,
    max_buckets: Annotated[
        int | None,
        typer.Option(help="Of histograms and frequencies: buckets of one user that count; 1."),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    secure: Annotated[
        bool, typer.Option("--secure", help="Run the whole protocol of one or two servers.")
    ] = False,
    aggregation: Annotated[
        Servers, typer.Option(help="One server, or a leader and a helper that do not collude.")
    ] = Servers.ONE,
    ledger: Annotated[
        Path | None, typer.Option(help="A ledger from whose budget the answer is spent.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask a question about many users, each on a simulated device of its own.

    Every user is protected as a whole, with all rows that count. How many users there are counts
    as public; so do the bounds, edges and categories that you name. Do not read them off the data.
    What did not count is said on the error stream; it is exact, and not for publication.

    \b
    skellam query count hours.csv --user who --max-rows 5 --epsilon 1 --delta 1e-6
    skellam query mean hours.csv --user who --column hours --low 0 --high 24 \\
        --epsilon 1 --delta 1e-6
    skellam query quantiles hours.csv --user who --column hours \\
        --edges 0,4,8,12,16,20,24 --at 0.25,0.5,0.75 --epsilon 1 --delta 1e-6
    skellam query frequencies pets.parquet --user owner --column pet \\
        --categories cat,dog,other --epsilon 1 --delta 1e-6
    """
    import skellam as sk
    from skellam import analytics as an
    from skellam.accounting.ledger import Ledger
    from skellam.engines import local, two_servers

    options = {
        "column": column,
        "low": low,
        "high": high,
        "edges": edges,
        "at": at,
        "categories": categories,
        "max_buckets": max_buckets,
    }
    _require_options(job, options)
    _checks.open_unit("--confidence", confidence)
    shares = _shares(at)
    users = by_user(path, user=user, column=user if column is None else column)
    targets: an.PlanOptions = {
        "clients": len(users),
        "epsilon": epsilon,
        "delta": delta,
        "aggregation": aggregation,
    }
    protocol = two_servers.two_servers if aggregation is Servers.TWO else local.secure
    asked = _asked(job, targets, options, max_rows=max_rows)
    texts = job in {Job.COUNT, Job.FREQUENCIES}
    held = as_text(users) if texts else as_numbers(users, str(column))
    added: list[an.Contribution] = []
    with ExitStack() as stack:
        opened = None if ledger is None else stack.enter_context(Ledger.open(ledger))
        found: Any = an.run(
            asked,
            [*held.values()],
            entropy=sk.SystemEntropy(),
            aggregate=protocol if secure else local.unmasked,
            ledger=opened,
            watch=added.append,
        )
    lines = (
        _quantiles(found, shares, confidence)
        if job is Job.QUANTILES
        else _lines(found, confidence, label=str(job))
    )
    counted = _counted(job, column, user, max_rows, max_buckets or 1)
    _show(asked, lines, confidence, counted, as_json=as_json)
    why = _why_left_out(job, max_rows, max_buckets or 1)
    _log_for_operator(sum(map(len, held.values())), len(users), added, why)


_USED = {
    Job.COUNT: (),
    Job.SUM: ("column", "low", "high"),
    Job.MEAN: ("column", "low", "high"),
    Job.HISTOGRAM: ("column", "edges", "max_buckets"),
    Job.QUANTILES: ("column", "edges", "at"),
    Job.FREQUENCIES: ("column", "categories", "max_buckets"),
}
"""The options of each job."""
_OPTIONAL = {"at", "max_buckets"}


def _require_options(job: Job, options: dict[str, Any]) -> None:
    """Raise unless ``options`` are those of ``job``: none is ignored, and none is guessed."""
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is not None and name not in _USED[job]:
            raise DomainError(f"{option} says nothing about a {job}; leave it out")
        if value is None and name in _USED[job] and name not in _OPTIONAL:
            raise DomainError(_missing(job, option))


def _missing(job: Job, option: str) -> str:
    if option == "--column":
        return f"give --column, the column that the {job} is of"
    return f"give {option}; it is public, so do not read it off the data"


def _counted(job: Job, column: str | None, user: str, max_rows: int, max_buckets: int) -> str:
    """Return in words what counts of a user."""
    what = "rows" if job is Job.COUNT else f"column {column!r}"
    many = "1 row" if max_rows == 1 else f"{max_rows} rows"
    buckets = job in {Job.HISTOGRAM, Job.FREQUENCIES}
    where = f" in each of at most {max_buckets} of its buckets" if buckets else ""
    return f"{job} of {what}; of each {user!r} at most {many}{where} (--max-rows)"


def _why_left_out(job: Job, max_rows: int, max_buckets: int) -> str:
    why = f"more than --max-rows {max_rows} of one user"
    if job in {Job.HISTOGRAM, Job.FREQUENCIES}:
        why += f" in a bucket, or than --max-buckets {max_buckets} buckets of one"
    return why


def _log_for_operator(rows: int, users: int, added: Sequence[an.Contribution], why: str) -> None:
    """Say what did not count, to whoever holds the file: the numbers are exact."""
    left_out = sum(each.left_out for each in added)
    clipped = sum(each.clipped for each in added)
    parts = [f"{rows:,} rows of {users:,} users"]
    if left_out:
        parts.append(f"{left_out:,} rows did not count: {why}")
    if clipped:
        parts.append(f"{clipped:,} values were moved to the nearest bound")
    typer.echo(f"the file (not private, keep it): {'; '.join(parts)}", err=True)


def _asked(
    job: Job, targets: an.PlanOptions, options: dict[str, Any], *, max_rows: int
) -> an.Query[Any]:
    from skellam import analytics as an

    max_buckets = options["max_buckets"] or 1
    match job:
        case Job.COUNT:
            return an.count(max_rows=max_rows, **targets)
        case Job.SUM:
            return an.sum(options["low"], options["high"], max_rows=max_rows, **targets)
        case Job.MEAN:
            return an.mean(options["low"], options["high"], max_rows=max_rows, **targets)
        case Job.HISTOGRAM:
            edges = _numbers("edges", options["edges"])
            return an.histogram(edges, max_buckets=max_buckets, max_rows=max_rows, **targets)
        case Job.QUANTILES:
            return an.cdf(_numbers("edges", options["edges"]), max_rows=max_rows, **targets)
        case Job.FREQUENCIES:
            domain = options["categories"].split(",")
            return an.frequencies(domain, max_buckets=max_buckets, max_rows=max_rows, **targets)
        case _ as never:
            assert_never(never)


def _numbers(name: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise DomainError(f"--{name} takes numbers with commas between them: {error}") from error


def _shares(text: str | None) -> list[float]:
    return [_checks.between("--at", share, 0, 1) for share in _numbers("at", text or "0.5")]


def _show(
    asked: an.Query[Any], lines: list[Line], confidence: float, counted: str, *, as_json: bool
) -> None:
    guarantee = asked.plan.privacy()
    record = {
        "counted": counted,
        "confidence": confidence,
        "answer": [dict(zip(("of", "value", "low", "high"), line, strict=True)) for line in lines],
        "guarantee": guarantee.as_dict(),
    }
    cells = [[str(label), *(f"{x:.6g}" for x in numbers)] for label, *numbers in lines]
    headings = ["", "value", f"low ({confidence:.0%})", "high"]
    answer(record, counted, table(headings, cells), f"\n{guarantee}", as_json=as_json)


def _lines(
    found: an.Counts[Any] | an.Estimate | an.MeanEstimate, confidence: float, *, label: str
) -> list[Line]:
    from skellam import analytics as an

    if not isinstance(found, an.Counts):
        return [(label, found.value, *found.interval(confidence))]
    band = found.interval(confidence)
    labels = [_label(label) for label in found.labels]
    return [*zip(labels, found.values.tolist(), band.low.tolist(), band.high.tolist(), strict=True)]


def _quantiles(found: an.Cdf, shares: list[float], confidence: float) -> list[Line]:
    quantiles = [found.quantile(share, confidence) for share in shares]
    return [(f"quantile {q.probability:g}", q.value, *q.interval) for q in quantiles]


def _label(label: object) -> str:
    match label:
        case (low, high):
            return f"{low:g} to {high:g}"
        case _:
            return str(label)


Users = dict[str, list[Any]]


def by_user(path: Path, *, user: str, column: str) -> Users:
    """Return for each user of column ``user`` what it has in ``column``."""
    names, values = _columns(path, user, column)
    users: Users = defaultdict(list)
    for number, (name, value) in enumerate(zip(names, values, strict=True), start=1):
        if name is None or not str(name).strip():
            raise DataError(f"{path}, row {number}, has no {user!r}; every row needs an owner")
        users[str(name)].append(value)
    if not users:
        raise DataError(f"{path} has no rows")
    return dict(users)


def as_numbers(users: Users, column: str) -> Users:
    """Return the values as numbers, or raise `DataError` naming one that is none."""
    return {
        user: [_number(value, column, user) for value in values] for user, values in users.items()
    }


def _number(value: Any, column: str, user: str) -> float:  # noqa: ANN401
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = nan
    if isnan(number):
        raise DataError(
            f"{column!r} of {user!r} is no number, got {value!r}; correct the row or leave it out"
        )
    return number


def as_text(users: Users) -> Users:
    """Return the values as text."""
    return {user: [str(value) for value in values] for user, values in users.items()}


def _columns(path: Path, *names: str) -> list[Iterable[Any]]:
    match path.suffix.lower():
        case ".csv":
            return _csv(path, names)
        case ".parquet":
            return _parquet(path, names)
        case _:
            raise DomainError(f"{path} must end in .csv or .parquet")


def _csv(path: Path, names: tuple[str, ...]) -> list[Iterable[Any]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # Excel writes the mark
            reader = csv.DictReader(file, strict=True)
            _require(path, reader.fieldnames or (), names)
            rows = [*reader]
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error}; save it as UTF-8") from error
    except (OSError, csv.Error) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    for number, row in enumerate(rows, start=2):
        if any(row.get(name) is None for name in names):
            missing = " or ".join(dict.fromkeys(names))
            raise DataError(f"{path}, line {number}, is too short: it has no {missing}")
        if None in row:
            raise DataError(f"{path}, line {number}, has more values than there are columns")
    return [[row[name] for row in rows] for name in names]


def _parquet(path: Path, names: tuple[str, ...]) -> list[Iterable[Any]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise MissingExtraError("Parquet needs pyarrow: pip install 'skellam[data]'") from error
    try:
        _require(path, parquet.read_schema(path).names, names)
        table = parquet.read_table(path, columns=[*dict.fromkeys(names)])
        return [table.column(name).to_pylist() for name in names]
    except (OSError, KeyError, UnicodeDecodeError, ArrowException) as error:
        raise DataError(f"cannot read {path}: {error}") from error


def _require(path: Path, known: Sequence[str], names: tuple[str, ...]) -> None:
    for name in names:
        if name not in known:
            columns = ", ".join(known) or "nothing"
            raise DataError(f"{path} has no column {name!r}, only {columns}")
        if [*known].count(name) > 1:
            raise DataError(f"{path} has two columns {name!r}; rename one")
