"""The command line: one file a verb; each parses, calls and prints."""

from __future__ import annotations

from typing import Annotated

import typer

from skellam import __version__
from skellam.cli.verbs import Verbs

app = typer.Typer(
    name="skellam",
    cls=Verbs,
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"skellam {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the trace of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Federated learning and analytics with privacy and no trusted server.

    Start with a plan: skellam plan --help

    \b
    Exit codes
    0  done
    1  an argument, a file or a missing package; the line says which
    2  wrong usage
    3  no parameters meet the targets, or the budget is spent
    4  a ledger that was changed, or that backs no guarantee
    5  an audit that refutes the claim
    """
    _ = verbose, version
