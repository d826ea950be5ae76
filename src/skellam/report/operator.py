"""The operator's page: failures, skipped rounds, cohorts, and what privacy costs in accuracy.

All of it is exact or computed without noise, so nothing of it is on the public page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from markupsafe import Markup

from skellam.engines import durable
from skellam.federated.history import History, read_operator
from skellam.report.markup import NOTHING, card, document, percent, section, table, tag, warning
from skellam.report.page import Run, measure_text, measures, read

Baseline: TypeAlias = str | PathLike[str] | History
Lines: TypeAlias = dict[int, dict[str, Any]]


def write_operator(
    folder: str | PathLike[str],
    *,
    ledger: str | PathLike[str] | None = None,
    baseline: Baseline | None = None,
) -> Path:
    """Write ``operator.html`` into a run's folder, for its owner alone, and return its path.

    ``baseline`` is the same training by `fl.non_private()`: a history, or the folder of one.
    """
    run = read(folder, ledger=ledger)
    path = Path(folder) / "operator.html"
    lines = {line["round"]: line for line in read_operator(Path(folder))}
    text = operator_page(run, lines, None if baseline is None else _run(baseline))
    durable.replace(path, text.encode("utf-8", "xmlcharrefreplace"), mode=durable.SECRET)
    return path


def operator_page(run: Run, lines: Lines, baseline: Run | None = None) -> str:
    """Return the page of what was logged of each round, by its number."""
    return document(f"{run.header.task} – operator", *_body(run, lines, baseline))


def _run(baseline: Baseline) -> Run:
    if isinstance(baseline, History):
        return Run(baseline.header, baseline.records)
    return read(baseline)


def _body(run: Run, lines: Lines, baseline: Run | None) -> Iterator[Markup]:
    yield tag("header", tag("h1", f"Operator's notes on {run.header.task}"))
    yield warning("Keep this page: its numbers are exact, and no noise protects the clients.")
    yield tag("div", *_numbers(lines), class_="numbers")
    if baseline is not None:
        yield section("With and without privacy", *_comparison(run, baseline))
    if troubles := [line for line in lines.values() if line["failures"] or "skipped" in line]:
        yield section("Failures and skipped rounds", table(map(_trouble, troubles)))
    yield section("Every round", table(map(_round, lines.values())))


def _numbers(lines: Lines) -> Iterator[Markup]:
    skipped = Counter(line["skipped"] for line in lines.values() if "skipped" in line)
    reasons = ", ".join(f"{reason} ({count})" for reason, count in skipped.items())
    yield card("rounds without a release", str(skipped.total()), reasons or "none was skipped")
    failures = sum(line["failures"] for line in lines.values())
    trained = sum(line["survivors"] for line in lines.values())
    share = percent(failures / trained) if trained else NOTHING
    yield card("clients whose training failed", str(failures), f"{share} of {trained:,}")
    invited = sum(line["invited"] for line in lines.values())
    left = f"of {invited:,} that were asked"
    yield card("clients that dropped out", str(invited - trained), left)


def _comparison(run: Run, baseline: Run) -> Iterator[Markup]:
    if not (run.measured and baseline.measured):
        yield tag("p", "One of the two was not measured.")
        return
    ours, theirs = run.measured[-1].as_dict(), baseline.measured[-1].as_dict()
    rows = []
    for name in measures(run):
        text = measure_text(name)
        for split in ("test", "validation"):
            field = f"{split}_{name}"
            if field in ours and field in theirs:
                without = f"{text(theirs[field])} without privacy{_ratio(ours, theirs, field)}"
                rows.append((f"{split} {name}", text(ours[field]), without))
    yield table(rows)
    if baseline.header.private:
        yield tag("p", f"The other run is private too: {baseline.header.aggregate}.")


def _ratio(ours: dict[str, Any], theirs: dict[str, Any], field: str) -> str:
    if not field.endswith("_accuracy") or not ours[field] or not theirs[field]:
        return ""
    return f", of which this is {percent(ours[field] / theirs[field])}"


def _trouble(line: dict[str, Any]) -> tuple[str, str, str]:
    skipped = f"skipped: {line['skipped']}" if "skipped" in line else "released"
    said = f"{line['failures']} failed; {skipped}"
    return f"round {line['round'] + 1}", said, line.get("first_failure", "")


def _round(line: dict[str, Any]) -> tuple[str, str, str]:
    asked = f"{line['survivors']} of {line['invited']}"
    return f"round {line['round'] + 1}", asked, f"{line['failures']} failed"
