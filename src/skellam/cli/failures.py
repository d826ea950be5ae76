"""Errors become one line with the way out, and an exit code."""

from __future__ import annotations

import traceback
from typing import Any

import click
import typer
from typer.core import TyperGroup

from skellam.errors import BudgetError, InfeasibleError, LedgerError, SkellamError


class Verbs(TyperGroup):
    """The verbs; what skellam raises on purpose ends in one line, with ``--verbose`` in a trace."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401  (click's signature)
        """Run the verb that was asked for."""
        try:
            return super().invoke(ctx)
        except (SkellamError, OSError) as error:
            if ctx.params.get("verbose"):
                traceback.print_exc()
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(_code(error)) from error


def _code(error: Exception) -> int:
    match error:
        case InfeasibleError() | BudgetError():
            return 3
        case LedgerError():
            return 4
        case _:
            return 1
