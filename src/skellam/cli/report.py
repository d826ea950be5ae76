"""``skellam report``: the page of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skellam.cli.answer import AsJson, answer
from skellam.errors import DomainError


def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    *,
    ledger: Annotated[
        Path | None, typer.Option(help="The run's ledger, where it is not in the folder.")
    ] = None,
    operator: Annotated[
        bool,
        typer.Option(
            "--operator", help="The operator's page instead: failures, skipped rounds, cohorts."
        ),
    ] = False,
    baseline: Annotated[
        Path | None,
        typer.Option(help="With --operator: the folder of the same run without privacy."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a run's page anew: one HTML file that loads nothing from anywhere.

    What is exact is on the operator's page alone, which nobody else may read.

    \b
    skellam report runs/first
    skellam report runs/first --operator --baseline runs/plain
    """
    from skellam.report import write, write_operator

    if operator:
        page = write_operator(folder, ledger=ledger, baseline=baseline)
    elif baseline is not None:
        raise DomainError("--baseline goes with --operator: it is not private; add --operator")
    else:
        page = write(folder, ledger=ledger)
    answer({"report": str(page)}, f"wrote {page}", as_json=as_json)
