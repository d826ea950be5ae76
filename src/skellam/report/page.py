"""The page: big numbers first, then curves, then everything that they depend on."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Final

from skellam.engines import durable
from skellam.federated.history import Record
from skellam.plan import TwoServerGuarantees
from skellam.report import curves, sections
from skellam.report.markup import NOTHING, Markup, bound, join, percent, tag
from skellam.report.run import Run, read

_ALONE: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""The browser itself refuses every request that the page might make."""


def write(folder: str | PathLike[str], *, ledger: str | PathLike[str] | None = None) -> Path:
    """Write ``report.html`` into a run's folder and return its path."""
    path = Path(folder) / "report.html"
    text = page(read(folder, ledger=ledger))
    durable.replace(path, text.encode("utf-8", "xmlcharrefreplace"), mode=durable.PUBLIC)
    return path


def page(run: Run) -> str:
    """Return the page of ``run``, whole: no script, no font, no picture from anywhere else."""
    return document(f"{run.header.task} – skellam run", *_body(run))


def document(title: str, *content: Markup) -> str:
    """Return a whole document that asks for nothing from anywhere."""
    body = tag("body", tag("main", *content))
    return f"<!doctype html>\n{tag('html', _head(title), body, lang='en')}\n"


def _head(title: str) -> Markup:
    # A stylesheet is raw text to HTML: it is ours, has no "<", and must not be escaped.
    style = Markup(files("skellam.report").joinpath("style.css").read_text(encoding="utf-8"))
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_ALONE),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", style),
    )


def _body(run: Run) -> Iterator[Markup]:
    yield tag("header", tag("h1", _title(run)), tag("p", _subtitle(run), class_="mute"))
    yield join(sections.warnings(run))
    yield tag("div", *_numbers(run), class_="numbers")
    yield tag("section", *(chart.draw() for chart in curves.charts(run)), class_="charts")
    yield curves.table(run)
    yield from sections.all_of(run)
    yield tag(
        "footer",
        "Everything on this page derives from released sums or from public test data. Who took "
        "part and how many, training losses, clip rates and seeds are the operator's secrets.",
    )


def _title(run: Run) -> str:
    kind = "Private training of" if run.header.private else "Training of"
    return f"{kind} {run.header.task}"


def _subtitle(run: Run) -> str:
    plan, skipped = run.header.plan, sum(r.skipped is not None for r in run.records)
    parts = [
        f"{len(run.records)} of {plan.rounds} rounds",
        f"{plan.dimension:,} parameters",
        f"about {plan.cohort:,} clients a round",
        run.header.population,
        f"aggregation: {run.header.aggregate}",
    ]
    if skipped:
        reasons = sorted({r.skipped for r in run.records if r.skipped is not None})
        parts.insert(1, f"{skipped} of them released nothing ({', '.join(reasons)})")
    return " · ".join(parts)


def _numbers(run: Run) -> Iterator[Markup]:
    yield from _measures(run)
    found = run.guarantees
    if found is None:
        yield card("ε against the public", NOTHING, "no guarantee")
        yield card("ε against the server", NOTHING, "no guarantee")
        return
    public = found.public
    yield card("ε against the public", bound(public.epsilon), f"δ = {bound(public.delta)}")
    if isinstance(found, TwoServerGuarantees):
        helper = f"{bound(found.helper.epsilon)} against the helper"
        yield card("ε against the leader", bound(found.leader.epsilon), helper)
    else:
        mean = bound(found.server_mean.epsilon)
        told = f"for every client; {mean} for the mean client, which is no bound"
        yield card("ε against the server", bound(found.server.epsilon), told)
    clipped = [r.clipped for r in run.records if r.clipped is not None]
    if clipped:
        last = min(max(clipped[-1], 0.0), 1.0)
        yield card("clients that the clip touched", percent(last), "in the last round, with noise")


def _measures(run: Run) -> Iterator[Markup]:
    """Yield a card for each measure; a loss that is not alone is told beside the first one."""
    if not run.measured:
        yield card("measured on public data", NOTHING, "nothing yet")
        return
    last, names = run.measured[-1], curves.measures(run)
    split = "test" if last.test else "validation"
    shown = [name for name in names if name != "loss"] or names
    for name in shown:
        others = names if name == shown[0] else [name]
        yield card(
            f"{split} {name}", _value(last, split, name), _details(last, split, name, others)
        )


def _details(last: Record, split: str, name: str, others: list[str]) -> str:
    parts = [f"loss {_value(last, split, 'loss')}"] if "loss" in others and name != "loss" else []
    if split == "test" and name in last.validation:
        parts.append(f"validation {_value(last, 'validation', name)}")
    return ", ".join(parts)


def _value(record: Record, split: str, name: str) -> str:
    return curves.measure_text(name)(record.measured(f"{split}_{name}"))


def card(name: str, value: str, more: str) -> Markup:
    """Return a number with its name above it."""
    return tag(
        "div",
        tag("p", name, class_="name"),
        tag("p", value, class_="value"),
        tag("p", more, class_="mute"),
    )
