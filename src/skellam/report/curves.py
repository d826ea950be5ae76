"""A run's numbers round by round: the charts, and the table that holds the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from skellam.federated.history import Record
from skellam.report.chart import Chart, Line, Text
from skellam.report.markup import Markup, bound, chance, number, percent, percent_tick, tag
from skellam.report.run import Run

Column: TypeAlias = tuple[str, str, Text]
"""What a column of the table is called, the field that it shows, and how."""
_COLUMNS: tuple[Column, ...] = (
    ("ε public", "epsilon_public", bound),
    ("ε server", "epsilon_server", bound),
    ("ε server, mean client", "epsilon_server_mean", bound),
    ("room", "wrap_k", number),
    ("chance of a wrap", "wrap_probability", chance),
)
_CLIP: tuple[Column, ...] = (("clip", "clip", number), ("clipped, noisy", "clipped", percent))
_SPLITS = ("test", "validation")
_EPSILONS = {
    "public": "epsilon_public",
    "server": "epsilon_server",
    "server, mean client": "epsilon_server_mean",
}


def measures(run: Run) -> list[str]:
    """Return the names of what was measured: accuracy first, the loss last."""
    names = {name for record in run.records for name in record.measures}
    return sorted(names, key=lambda name: (name == "loss", name != "accuracy", name))


def measure_text(name: str) -> Text:
    """Return how a measure is written: accuracies in per cent."""
    return percent if name == "accuracy" else number


def charts(run: Run) -> Iterator[Chart]:
    """Yield every measure, the epsilons, the room in the modulus and a clip that adapts."""
    shown = run.measured
    rounds = _rounds(shown)
    for index, name in enumerate(measures(run)):
        title = f"{name[:1].upper()}{name[1:]} on public data"
        lines = _lines(shown, {split: f"{split}_{name}" for split in _SPLITS})
        tick = percent_tick if name == "accuracy" else number
        yield Chart(f"measure-{index}", title, rounds, lines, measure_text(name), tick=tick)
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
        lines = _lines(run.records, {"share of clients, with noise": "clipped"})
        aim = ("aim", 1 - run.header.clip.target)
        yield Chart(
            "clipped",
            "Clients that the clip touched",
            _rounds(run.records),
            lines,
            percent,
            tick=percent_tick,
            level=aim,
        )


def table(run: Run) -> Markup:
    """Return every number of every round."""
    measured = tuple(
        (f"{split} {name}", f"{split}_{name}", measure_text(name))
        for name in measures(run)
        for split in _SPLITS
    )
    columns = (*measured, *_COLUMNS, *(_CLIP if run.header.clip is not None else ()))
    names = ("round", *(name for name, _, _ in columns))
    head = tag("tr", *(tag("th", name, scope="col") for name in names))
    rows = (tag("tr", *_cells(record, columns)) for record in run.records)
    table = tag("table", tag("thead", head), tag("tbody", *rows))
    inside = tag("div", table, class_="scroll", tabindex=0)
    return tag("details", tag("summary", "Every round as a table"), inside)


def _cells(record: Record, columns: Iterable[Column]) -> Iterator[Markup]:
    yield tag("th", str(record.round + 1), scope="row")
    shown = record.as_dict()
    for _, field, text in columns:
        yield tag("td", text(shown.get(field)))


def _rounds(records: Sequence[Record]) -> tuple[int, ...]:
    return tuple(r.round + 1 for r in records)


def _lines(records: Sequence[Record], names: Mapping[str, str]) -> tuple[Line, ...]:
    shown = [record.as_dict() for record in records]
    lines = (Line(name, tuple(r.get(field) for r in shown)) for name, field in names.items())
    return tuple(line for line in lines if any(x is not None for x in line.values))
