"""Errors become one line with what to do, and an exit code."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
import typer
from click.exceptions import NoArgsIsHelpError
from typer.core import TyperGroup

from skellam.errors import BudgetError, InfeasibleError, LedgerError, SkellamError

_USAGE = 2


class Verbs(TyperGroup):
    """The verbs; what is raised on purpose ends in one line, with ``--verbose`` in a trace."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read what stands before the verb."""
        with _usage():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401  (click's signature)
        """Run the verb that was asked for."""
        try:
            with _usage():
                return super().invoke(ctx)
        except (SkellamError, OSError) as error:
            if ctx.params.get("verbose"):
                traceback.print_exc()
            typer.echo(f"error: {_one_line(error)}", err=True)
            raise typer.Exit(_code(error)) from error


@contextmanager
def _usage() -> Iterator[None]:
    """Say what is wrong with the words of a call, and where they are explained."""
    try:
        yield
    except NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        path = "skellam" if error.ctx is None else error.ctx.command_path
        said = _one_line(error.format_message()).rstrip(".")
        typer.echo(f"error: {said}; see {path} --help", err=True)
        raise typer.Exit(_USAGE) from error


def _one_line(error: object) -> str:
    return " ".join(str(error).split())


def _code(error: Exception) -> int:
    match error:
        case InfeasibleError() | BudgetError():
            return 3
        case LedgerError():
            return 4
        case _:
            return 1
