"""The command line: one file a verb; each parses, calls and prints."""

from __future__ import annotations

import typer

from skellam.cli import keys

app = typer.Typer(
    name="skellam",
    help="Federated learning and analytics with differential privacy and no trusted server.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
app.add_typer(keys.app, name="keys")


@app.callback()
def _root() -> None:
    """Hold the verbs."""
