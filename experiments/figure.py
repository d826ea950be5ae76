"""A figure: a spec gives points, points go into a CSV file, and the picture is drawn from that."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from itertools import cycle
from pathlib import Path
from typing import Any, TypeAlias

from skellam.errors import CertificateError

Spec: TypeAlias = Mapping[str, Any]
HERE = "here"
"""Curves whose names have this word are results of this library; they are drawn heavier."""

_OURS: Mapping[str, Any] = {"linewidth": 4.0, "alpha": 0.45, "markersize": 6}
_THEIRS: Mapping[str, Any] = {"linewidth": 1.2, "linestyle": "--", "markersize": 4}
_MARKERS = "osv^D*PX<>"


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a curve in a panel."""

    panel: str
    curve: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Figure:
    """What is drawn, from a ``quick`` spec or from the ``full`` one."""

    name: str
    title: str
    x: str
    y: str
    quick: Spec
    full: Spec
    points: Callable[[Spec], Iterable[Point]]
    highest: Mapping[str, float]
    """The top of each panel, where curves that leave it are of no interest; by panel."""
    logarithmic: tuple[str, ...] = ()
    """Axes with logarithmic scales."""


def make(figure: Figure, spec: Spec, folder: Path) -> tuple[Path, Path]:
    """Write the table and the picture of ``figure`` and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    table, picture = (folder / f"{figure.name}.{ending}" for ending in ("csv", "png"))
    _write(table, spec, figure.points(spec))
    _draw(figure, table, picture)
    return table, picture


def read(table: Path) -> tuple[Spec, list[Point]]:
    """Return the spec and the points of a table."""
    with table.open(newline="", encoding="utf-8") as file:
        spec = json.loads(file.readline().removeprefix("# "))
        rows = csv.DictReader(file)
        points = [Point(r["panel"], r["curve"], float(r["x"]), float(r["y"])) for r in rows]
    return spec, points


def or_nothing(epsilon: Callable[[], float]) -> float:
    """Return epsilon, or infinity where the method has no bound."""
    try:
        return epsilon()
    except CertificateError:
        return math.inf


def _write(table: Path, spec: Spec, points: Iterable[Point]) -> None:
    with table.open("w", newline="", encoding="utf-8") as file:
        file.write(f"# {json.dumps(dict(spec))}\n")
        writer = csv.DictWriter(file, [field.name for field in fields(Point)])
        writer.writeheader()
        writer.writerows(asdict(point) for point in points)


def _draw(figure: Figure, table: Path, picture: Path) -> None:
    from matplotlib.figure import Figure as Canvas

    spec, points = read(table)
    panels = [*dict.fromkeys(point.panel for point in points)]
    canvas = Canvas(figsize=(7.2 * len(panels), 5.0), layout="constrained")
    for axes, panel in zip(canvas.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw_panel(axes, figure, panel, [point for point in points if point.panel == panel])
    canvas.suptitle(figure.title)
    canvas.savefig(picture, dpi=90, metadata={"Title": figure.title, "Comment": json.dumps(spec)})


def _draw_panel(axes: Any, figure: Figure, panel: str, points: list[Point]) -> None:  # noqa: ANN401
    for curve, marker in zip(dict.fromkeys(p.curve for p in points), cycle(_MARKERS), strict=False):
        drawn = [p for p in points if p.curve == curve and math.isfinite(p.y)]
        style = _OURS if HERE in curve else _THEIRS
        axes.plot([p.x for p in drawn], [p.y for p in drawn], label=curve, marker=marker, **style)
    axes.set(xlabel=figure.x, ylabel=figure.y, title=panel)
    for axis in figure.logarithmic:
        axes.set(**{f"{axis}scale": "log"})
    if panel in figure.highest:
        axes.set_ylim(0.0, figure.highest[panel])
    axes.grid(visible=True, which="both", alpha=0.25)
    axes.legend(fontsize=8)
