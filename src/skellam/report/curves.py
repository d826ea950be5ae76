"""A run's numbers round by round: the charts, and the table that holds the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from skellam.federated.history import Record
from skellam.report.chart import Chart, Line, Text
from skellam.report.markup import Markup, bound, chance, number, percent, percent_tick, tag
from skellam.report.run import Run

_COLUMNS = (
    ("test accuracy", "test_accuracy", percent),
    ("validation accuracy", "validation_accuracy", percent),
    ("test loss", "test_loss", number),
    ("validation loss", "validation_loss", number),
    ("ε public", "epsilon_public", bound),
    ("ε server", "epsilon_server", bound),
    ("ε server, mean client", "epsilon_server_mean", bound),
    ("room", "wrap_k", number),
    ("chance of a wrap", "wrap_probability", chance),
)
_CLIP = ("clip", "clip", number)
_ACCURACIES = {"test": "test_accuracy", "validation": "validation_accuracy"}
_LOSSES = {"test": "test_loss", "validation": "validation_loss"}
_EPSILONS = {
    "public": "epsilon_public",
    "server": "epsilon_server",
    "server, mean client": "epsilon_server_mean",
}


def charts(run: Run) -> Iterator[Chart]:
    """Yield accuracy, loss, epsilons, the room in the modulus and a clip that adapts."""
    shown = run.measured
    rounds = _rounds(shown)
    if lines := _lines(shown, _ACCURACIES):
        yield Chart(
            "accuracy", "Accuracy on public data", rounds, lines, percent, tick=percent_tick
        )
    yield Chart("loss", "Loss on public data", rounds, _lines(shown, _LOSSES), number)
    if run.ledger is not None and run.guarantees is not None:
        budget = ("public budget", run.ledger.account.budget.epsilon)
        lines = _lines(shown, _EPSILONS)
        yield Chart("epsilon", "ε spent", rounds, lines, bound, log=True, level=budget)
    summed = [r for r in run.records if r.wrap_k is not None]
    if summed:
        lines = _lines(summed, {"deviations of the sum in half the modulus": "wrap_k"})
        level = ("planned", run.header.plan.signal_multiple)
        yield Chart("room", "Room in the modulus", _rounds(summed), lines, number, level=level)
    if run.header.clip is not None:
        lines = _lines(run.records, {"clip": "clip"})
        yield Chart("clip", "The clip", _rounds(run.records), lines, number, log=True)


def table(run: Run) -> Markup:
    """Return every number of every round."""
    columns = _COLUMNS if run.header.clip is None else (*_COLUMNS, _CLIP)
    names = ("round", *(name for name, _, _ in columns))
    head = tag("tr", *(tag("th", name, scope="col") for name in names))
    rows = (tag("tr", *_cells(record, columns)) for record in run.records)
    table = tag("table", tag("thead", head), tag("tbody", *rows))
    inside = tag("div", table, class_="scroll", tabindex=0)
    return tag("details", tag("summary", "Every round as a table"), inside)


def _cells(record: Record, columns: Iterable[tuple[str, str, Text]]) -> Iterator[Markup]:
    yield tag("th", str(record.round + 1), scope="row")
    for _, field, text in columns:
        yield tag("td", text(getattr(record, field)))


def _rounds(records: Sequence[Record]) -> tuple[int, ...]:
    return tuple(r.round + 1 for r in records)


def _lines(records: Sequence[Record], names: Mapping[str, str]) -> tuple[Line, ...]:
    lines = (Line(name, tuple(getattr(r, field) for r in records)) for name, field in names.items())
    return tuple(line for line in lines if any(x is not None for x in line.values))
