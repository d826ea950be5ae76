"""Answers of the verbs: tables for readers, JSON for programs, and pictures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from skellam.errors import DomainError, MissingExtraError

if TYPE_CHECKING:
    from rich.table import Table


AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def answer(record: dict[str, Any], *shown: object, as_json: bool) -> None:
    """Print ``record`` as JSON, or what is ``shown`` of it."""
    if as_json:
        typer.echo(json.dumps(_written(record), indent=1, allow_nan=False))
        return
    from rich.console import Console

    console = Console()
    for part in shown:
        console.print(part, highlight=False, markup=False, soft_wrap=isinstance(part, str))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table whose first column is text and whose others are numbers."""
    from rich.table import Table

    made = Table()
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if index else "left", overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def _written(value: Any) -> Any:  # noqa: ANN401  (JSON values)
    """Return ``value`` with infinite numbers as the string "inf", which JSON can hold."""
    match value:
        case float() if math.isinf(value):
            return "inf"
        case dict():
            return {key: _written(item) for key, item in value.items()}
        case list() | tuple():
            return [_written(item) for item in value]
        case _:
            return value


FORMATS = ("pdf", "png", "svg")
_LINES = ("-", "--", "-.", ":")
_MARKERS = "osv^D*PX<>"


def draw(
    path: Path,
    across: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    *,
    x: str,
    y: str,
    title: str,
    logarithmic: bool = False,
) -> None:
    """Draw every curve over ``across``; infinite values leave a gap."""
    figure = _figure(path, (6.4, 4.0))
    axes = figure.add_subplot(xlabel=x, ylabel=y, title=title)
    for name, values in curves.items():
        axes.plot(across, values, marker="o", markersize=4, label=name)
    if logarithmic:
        axes.set_yscale("log")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)


def panels(
    path: Path,
    grid: Mapping[str, Mapping[str, Sequence[tuple[float, float, float]]]],
    *,
    y: str,
    columns: int,
) -> None:
    """Draw panels by title, each of curves by name; a curve looks the same in all of them.

    Points are (x, y, half of the band's height).
    """
    rows = -(-len(grid) // columns)
    figure = _figure(path, (6.4 * columns, 4.4 * rows))
    names = [*dict.fromkeys(name for curves in grid.values() for name in curves)]
    styles = {
        name: (f"C{i % 10}", _LINES[i // 10 % 4], _MARKERS[i % 10]) for i, name in enumerate(names)
    }
    for index, (title, curves) in enumerate(grid.items(), start=1):
        axes = figure.add_subplot(rows, columns, index, ylabel=y, title=title)
        for name, points in curves.items():
            colour, line, marker = styles[name]
            x, middle, _ = zip(*points, strict=True)
            low, high = ([m + sign * half for _, m, half in points] for sign in (-1, 1))
            axes.fill_between(x, low, high, color=colour, alpha=0.2)
            axes.plot(
                x,
                middle,
                color=colour,
                linestyle=line,
                marker=marker,
                markersize=4,
                label=name,
            )
        axes.grid(visible=True, alpha=0.3)
        if curves:
            axes.legend(fontsize=7)
    figure.savefig(path, dpi=100)


def _figure(path: Path, size: tuple[float, float]) -> Any:  # noqa: ANN401  (matplotlib's, untyped)
    """Return an empty figure, or raise if it could not be written to ``path``."""
    if path.suffix[1:].lower() not in FORMATS:
        raise DomainError(f"{path} must end in one of .{', .'.join(FORMATS)}")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("pictures need matplotlib: pip install 'skellam[plots]'") from error
    return Figure(figsize=size, layout="constrained")
