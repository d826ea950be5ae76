"""``skellam keys``: the identities by which clients know each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skellam.cli.answer import AsJson, answer

app = typer.Typer(help="Make identity keys and rosters for a fleet.", no_args_is_help=True)


@app.command()
def new(
    path: Annotated[Path, typer.Argument(help="The secret key; its public twin gets .pub.")],
    number: Annotated[
        int | None, typer.Option(min=0, help="The client's number; random if it is not given.")
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Make one client's identity, on that client's own machine.

    \b
    skellam keys new client-7.key --number 7
    """
    from skellam.engines import key_files
    from skellam.entropy import SystemEntropy, random_bytes
    from skellam.secagg import Identity

    entropy = SystemEntropy()
    chosen = number
    if chosen is None:
        chosen = int.from_bytes(random_bytes(6, entropy=entropy), "big")
    public = key_files.write_identity(path, Identity.generate(chosen, entropy=entropy))
    answer(
        {"number": chosen, "secret": str(path), "public": str(public)},
        f"client {chosen}: {path} is secret and stays here; give {public} to everybody",
        as_json=as_json,
    )


@app.command()
def roster(
    publics: Annotated[list[Path], typer.Argument(help="The .pub files of all clients.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the roster goes.")] = Path(
        "roster.json"
    ),
    *,
    as_json: AsJson = False,
) -> None:
    """Put the public keys of all clients into one roster, the same for every node.

    \b
    skellam keys roster client-7.key.pub client-8.key.pub --out roster.json
    """
    from skellam.engines import key_files

    found = key_files.write_roster(out, publics)
    answer(
        {"roster": str(out), "clients": sorted(found.keys)},
        f"{out} has {len(found.keys)} clients",
        as_json=as_json,
    )
