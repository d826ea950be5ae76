"""The command line: one file a verb, each loaded when it is used; it parses, calls and prints.

Errors that are raised on purpose become one line and an exit code.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any

import click
import typer
from click.exceptions import NoArgsIsHelpError
from typer.core import TyperGroup

from skellam import __version__
from skellam.errors import BudgetError, InfeasibleError, LedgerError, SkellamError

_USAGE = 2
VERBS = {
    "plan": "Find the scale, noise and rounding that meet a privacy target with the least error.",
    "account": "State epsilon by every method, against the public and against the server.",
    "query": "Ask a question about many users, each on a simulated device of its own.",
    "train": "Train a model privately; every round is spent from a ledger before it is released.",
    "reproduce": "Train the grid of the paper's experiment and draw its figure.",
    "report": "Write a run's page anew: one HTML file that loads nothing from anywhere.",
    "verify": "Check a ledger's chain of digests and compute its epsilon anew.",
    "audit": "Attack a plan's rounds with a canary: a lower bound on epsilon beside the claim.",
    "cite": "List the publications to cite for what a plan runs.",
    "keys": "Make identity keys and rosters for a fleet.",
    "helper": "Run the helper of two servers: it adds up masks and noise, and sees no vector.",
    "ledger": "Make a ledger: a budget, and what was spent of it.",
}
"""The verbs with the first line of their help: the list of them loads none."""


class Verb(click.Command):
    """A verb that is loaded when its arguments are read."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401  (click's signature)
    ) -> click.Context:
        """Return the context of the command that the verb's own file defines."""
        return load(str(self.name)).make_context(info_name, args, parent, **extra)


def load(name: str) -> click.Command:
    """Return the command of a verb: its file's ``app``, or the function of its name."""
    module = import_module(f"skellam.cli.{name}")
    if (app := getattr(module, "app", None)) is None:
        app = typer.Typer(add_completion=False)
        app.command(name)(getattr(module, name))
    return typer.main.get_command(app)


class Verbs(TyperGroup):
    """The verbs; what is raised on purpose ends in one line, with ``--verbose`` in a trace."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        """Return the names of the verbs."""
        return [*VERBS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return a verb, not loaded yet."""
        return Verb(cmd_name, help=VERBS[cmd_name]) if cmd_name in VERBS else None

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
