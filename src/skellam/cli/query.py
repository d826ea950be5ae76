"""``skellam query``: private statistics of a file with a user column, simulated."""

from __future__ import annotations

from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, assert_never

import typer

from skellam.cli import columns
from skellam.cli.answer import AsJson, answer, table
from skellam.errors import DomainError

if TYPE_CHECKING:
    from skellam import analytics as an


T = TypeVar("T")
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
    column: Annotated[str | None, typer.Option(help="The column that is asked about.")] = None,
    epsilon: Annotated[float, typer.Option(help="What the answer may cost.")],
    delta: Annotated[float, typer.Option(help="Below one over the number of users is usual.")],
    low: Annotated[float | None, typer.Option(help="Of sums and means: least value.")] = None,
    high: Annotated[float | None, typer.Option(help="Of sums and means: largest value.")] = None,
    edges: Annotated[
        str | None, typer.Option(help="Of histograms and quantiles: edges, as 0,10,20.")
    ] = None,
    at: Annotated[str, typer.Option(help="Of quantiles: probabilities.")] = "0.5",
    categories: Annotated[
        str | None, typer.Option(help="Of frequencies: all values there can be, as a,b,c.")
    ] = None,
    max_rows: Annotated[
        int, typer.Option(help="Rows of one user that count, in each of its buckets.")
    ] = 1,
    max_buckets: Annotated[
        int, typer.Option(help="Of histograms and frequencies: buckets of one user that count.")
    ] = 1,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    secure: Annotated[
        bool, typer.Option("--secure", help="Run the whole secure-aggregation protocol.")
    ] = False,
    ledger: Annotated[
        Path | None, typer.Option(help="A ledger whose budget pays for the answer.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask a question about many users, each on a simulated device of its own.

    Every user is protected as a whole, with all rows that count. How many users there are counts
    as public; so do the bounds, edges and categories that you name. Do not read them off the data.

    \b
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
    from skellam.engines import local

    users = columns.by_user(path, user=user, column=column or user)
    targets: an.PlanOptions = {"clients": len(users), "epsilon": epsilon, "delta": delta}
    options = {"low": low, "high": high, "edges": edges, "categories": categories}
    asked = _asked(job, targets, options, max_rows=max_rows, max_buckets=max_buckets)
    shares = _numbers("at", at)
    texts = job in {Job.COUNT, Job.FREQUENCIES}
    held = columns.as_text(users) if texts else columns.as_numbers(users)
    with ExitStack() as stack:
        opened = None if ledger is None else stack.enter_context(Ledger.open(ledger))
        found: Any = an.run(
            asked,
            [*held.values()],
            entropy=sk.SystemEntropy(),
            aggregate=local.secure if secure else local.unmasked,
            ledger=opened,
        )
    lines = (
        _quantiles(found, shares, confidence) if job is Job.QUANTILES else _lines(found, confidence)
    )
    _show(asked, lines, confidence, as_json=as_json)


def _asked(
    job: Job, targets: an.PlanOptions, options: dict[str, Any], *, max_rows: int, max_buckets: int
) -> an.Query[Any]:
    from skellam import analytics as an

    match job:
        case Job.COUNT:
            return an.count(max_rows=max_rows, **targets)
        case Job.SUM:
            low, high = (_given(name, options[name]) for name in ("low", "high"))
            return an.sum(low, high, max_rows=max_rows, **targets)
        case Job.MEAN:
            low, high = (_given(name, options[name]) for name in ("low", "high"))
            return an.mean(low, high, max_rows=max_rows, **targets)
        case Job.HISTOGRAM:
            edges = _numbers("edges", options["edges"])
            return an.histogram(edges, max_buckets=max_buckets, max_rows=max_rows, **targets)
        case Job.QUANTILES:
            return an.cdf(_numbers("edges", options["edges"]), max_rows=max_rows, **targets)
        case Job.FREQUENCIES:
            domain = _given("categories", options["categories"]).split(",")
            return an.frequencies(domain, max_buckets=max_buckets, max_rows=max_rows, **targets)
        case _ as never:
            assert_never(never)


def _given(name: str, value: T | None) -> T:
    if value is None:
        raise DomainError(f"give --{name}; it is public, so do not read it off the data")
    return value


def _numbers(name: str, text: str | None) -> list[float]:
    try:
        return [float(part) for part in _given(name, text).split(",")]
    except ValueError as error:
        raise DomainError(f"--{name} takes numbers with commas between them: {error}") from error


def _show(asked: an.Query[Any], lines: list[Line], confidence: float, *, as_json: bool) -> None:
    guarantee = asked.plan.privacy()
    record = {
        "confidence": confidence,
        "answer": [dict(zip(("of", "value", "low", "high"), line, strict=True)) for line in lines],
        "guarantee": guarantee.as_dict(),
    }
    cells = [[str(label), *(f"{x:.6g}" for x in numbers)] for label, *numbers in lines]
    headings = ["", "value", f"low ({confidence:.0%})", "high"]
    answer(record, table(headings, cells), f"\n{guarantee}", as_json=as_json)


def _lines(found: an.Counts[Any] | an.Estimate | an.MeanEstimate, confidence: float) -> list[Line]:
    from skellam import analytics as an

    if not isinstance(found, an.Counts):
        return [("answer", found.value, *found.interval(confidence))]
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
