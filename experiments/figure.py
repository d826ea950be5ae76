"""A figure: a spec gives points, points go into a CSV file, and the picture is drawn from that."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from skellam.errors import CertificateError

Spec: TypeAlias = Mapping[str, Any]
RECORDED = Path(__file__).parent / "recorded" / "figures"
"""Tables of figures whose points take long to compute."""
HERE = "here"
"""Curves whose names have this are results of this library; they are drawn heavier."""

_MARKERS = "osv^D*PX<>"
_LINES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 3)))
_NAME = re.compile(r"((?:\([^)]*\)|[^,(])*)(?:, (.*))?")
"""A method, and after a comma outside parentheses how it is set."""
_FEW = 8
"""So few values of x are marked on the axis as they are."""
_LEGEND = 3.6
"""Inches for a name in the legend."""


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a curve in a panel; ``half`` is half of a 95 % interval."""

    panel: str
    curve: str
    x: float
    y: float
    half: float = 0.0


@dataclass(frozen=True, slots=True)
class Figure:
    """What is drawn, and the spec that it is drawn from."""

    name: str
    title: str
    x: str
    y: str
    spec: Spec
    points: Callable[[Spec], Iterable[Point]]
    highest: Mapping[str, float] = field(default_factory=dict)
    """The top of each panel, where curves that leave it are of no interest; by panel."""
    logarithmic: tuple[str, ...] = ()
    """Axes with logarithmic scales."""
    columns: int = 3
    slow: bool = False
    """Whether the points are kept in `RECORDED`, since computing them takes minutes."""


def make(figure: Figure, spec: Spec, folder: Path) -> tuple[Path, Path]:
    """Compute the points of ``figure``; write its table and picture, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / f"{figure.name}.csv"
    write(table, spec, figure.points(spec))
    return table, draw(figure, table, folder)


def read(table: Path) -> tuple[Spec, list[Point]]:
    """Return the spec and the points of a table."""
    with table.open(newline="", encoding="utf-8") as file:
        spec = json.loads(file.readline().removeprefix("# "))
        numbers = ("x", "y", "half")
        rows = csv.DictReader(file)
        points = [Point(r["panel"], r["curve"], *(float(r[n]) for n in numbers)) for r in rows]
    return spec, points


def write(table: Path, spec: Spec, points: Iterable[Point]) -> None:
    """Write the spec and the points as a table, whole or not at all."""
    part = table.with_suffix(".part")
    with part.open("w", newline="", encoding="utf-8") as file:
        file.write(f"# {json.dumps(dict(spec))}\n")
        writer = csv.DictWriter(file, [each.name for each in fields(Point)], lineterminator="\n")
        writer.writeheader()
        for point in points:
            numbers = {name: f"{getattr(point, name):.6g}" for name in ("x", "y", "half")}
            writer.writerow({**asdict(point), **numbers})
    part.replace(table)


def half_width(values: Sequence[float]) -> float:
    """Return half of Student's 95 % interval for the mean; not a number for a single value."""
    if len(values) < 2:
        return math.nan
    from scipy.stats import t

    return float(t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))


def or_nothing(epsilon: Callable[[], float]) -> float:
    """Return epsilon, or infinity where the method has no bound."""
    try:
        return epsilon()
    except CertificateError:
        return math.inf


def draw(figure: Figure, table: Path, folder: Path) -> Path:
    """Draw the picture of a table into ``folder`` and return its path."""
    from matplotlib.figure import Figure as Canvas

    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / f"{figure.name}.png"
    spec, points = read(table)
    panels = [*dict.fromkeys(point.panel for point in points)]
    styles = _styles([*dict.fromkeys(point.curve for point in points)])
    columns = max(1, min(figure.columns, len(panels)))
    rows = max(1, math.ceil(len(panels) / columns))
    beside = max(1, int(6.4 * columns / _LEGEND))
    height = 4.6 * rows + 0.19 * math.ceil(len(styles) / beside)
    canvas = Canvas(figsize=(6.4 * columns, height), layout="constrained")
    grid = canvas.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    for axes, panel in zip(grid, panels, strict=False):
        _draw_panel(axes, figure, panel, [p for p in points if p.panel == panel], styles)
    lines = {line.get_label(): line for axes in grid for line in axes.get_lines()}
    shown = {curve: lines[curve] for curve in styles}
    canvas.legend(shown.values(), shown, loc="outside lower center", ncols=beside, fontsize=8)
    canvas.suptitle(figure.title)
    canvas.savefig(picture, dpi=80, metadata={"Title": figure.title, "Comment": json.dumps(spec)})
    return picture


def _styles(curves: list[str]) -> dict[str, dict[str, Any]]:
    """Return a style for every curve: a method has a colour, a setting a marker and a line."""
    parts = {c: found.groups() if (found := _NAME.fullmatch(c)) else (c, None) for c in curves}
    methods = [*dict.fromkeys(method for method, _ in parts.values())]
    settings = [*dict.fromkeys(setting for _, setting in parts.values())]
    styles = {}
    for curve, (method, setting) in parts.items():
        hue, kind = methods.index(method), settings.index(setting)
        styles[curve] = {
            "color": f"C{hue % 10}",
            "marker": _MARKERS[(hue + kind) % len(_MARKERS)],
            "linestyle": _LINES[(hue // 10 + kind) % len(_LINES)],
            "linewidth": 2.6 if HERE in curve else 1.2,
            "markersize": 6 if HERE in curve else 4.5,
        }
    return styles


def _draw_panel(
    axes: Any,  # noqa: ANN401
    figure: Figure,
    panel: str,
    points: list[Point],
    styles: Mapping[str, Mapping[str, Any]],
) -> None:
    by_curve = {
        curve: [p for p in points if p.curve == curve and math.isfinite(p.y)]
        for curve in dict.fromkeys(p.curve for p in points)
    }
    apart = _set_apart(by_curve)
    for curve, drawn in by_curve.items():
        x, y, half = (np.array([getattr(p, name) for p in drawn]) for name in ("x", "y", "half"))
        x = x + apart.get(curve, 0.0)
        axes.plot(x, y, label=curve, **styles[curve])
        if len(drawn) == 1:
            axes.errorbar(x, y, yerr=np.nan_to_num(half), color=styles[curve]["color"], capsize=3)
        axes.fill_between(x, y - half, y + half, color=styles[curve]["color"], alpha=0.15)
    if len(ticks := sorted({p.x for p in points})) < _FEW:
        axes.set_xticks(ticks)
    axes.set(xlabel=figure.x, ylabel=figure.y, title=panel)
    for axis in figure.logarithmic:
        axes.set(**{f"{axis}scale": "log"})
    if panel in figure.highest:
        axes.set_ylim(0.0, figure.highest[panel])
    axes.grid(visible=True, which="both", alpha=0.25)


def _set_apart(by_curve: Mapping[str, list[Point]]) -> dict[str, float]:
    """Return how far curves of a single point are moved aside, so that none hides another."""
    every = [p.x for drawn in by_curve.values() for p in drawn]
    step = 0.025 * ((max(every) - min(every)) or 1.0) if every else 0.0
    moved: dict[str, float] = {}
    for x in {*every}:
        single = [c for c, drawn in by_curve.items() if [p.x for p in drawn] == [x]]
        for number, curve in enumerate(single):
            # On both sides in turn, and clear of the curves that have a point here.
            moved[curve] = step * (number // 2 + 1) * (-1) ** number
    return moved
