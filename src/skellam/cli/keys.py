"""``skellam keys``: the identities by which clients know each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from skellam.engines.flower import keys
from skellam.entropy import SystemEntropy, random_bytes
from skellam.errors import SkellamError
from skellam.secagg import Identity

T = TypeVar("T")
app = typer.Typer(help="Make identity keys and rosters for a fleet.", no_args_is_help=True)


@app.command()
def new(
    path: Annotated[Path, typer.Argument(help="The secret key; its public twin gets .pub.")],
    number: Annotated[
        int | None, typer.Option(min=0, help="The client's number; random if it is not given.")
    ] = None,
) -> None:
    """Make one client's identity, on that client's own machine."""
    entropy = SystemEntropy()
    chosen = number
    if chosen is None:
        chosen = int.from_bytes(random_bytes(6, entropy=entropy), "big")
    public = _or_exit(lambda: keys.write_identity(path, Identity.generate(chosen, entropy=entropy)))
    typer.echo(f"client {chosen}: {path} is secret and stays here; give {public} to everybody")


@app.command()
def roster(
    publics: Annotated[list[Path], typer.Argument(help="The .pub files of all clients.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the roster goes.")] = Path(
        "roster.json"
    ),
) -> None:
    """Put the public keys of all clients into one roster, the same for every node."""
    found = _or_exit(lambda: keys.write_roster(out, publics))
    typer.echo(f"{out} has {len(found.keys)} clients")


def _or_exit(call: Callable[[], T]) -> T:
    try:
        return call()
    except (SkellamError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
