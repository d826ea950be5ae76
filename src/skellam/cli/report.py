"""``skellam report``: the page of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skellam.cli.answer import AsJson, answer


def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    *,
    ledger: Annotated[
        Path | None, typer.Option(help="The run's ledger, where it is not in the folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a run's page anew: one HTML file that loads nothing from anywhere.

    \b
    skellam report runs/first
    """
    from skellam.report import write

    page = write(folder, ledger=ledger)
    answer({"report": str(page)}, f"wrote {page}", as_json=as_json)
