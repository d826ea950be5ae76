"""Answers of the verbs: a table for readers, or JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

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
