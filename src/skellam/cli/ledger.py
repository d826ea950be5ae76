"""``skellam ledger``: a budget that several runs and queries share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skellam.cli.answer import AsJson, answer

app = typer.Typer(help="Make a ledger: a budget, and what was spent of it.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Make a ledger: a budget, and what was spent of it."""


@app.command()
def new(
    path: Annotated[Path, typer.Argument(help="The new ledger; its last line also gets .tail.")],
    *,
    epsilon: Annotated[float, typer.Option(help="What all releases together may cost.")],
    delta: Annotated[float, typer.Option(help="Below one over the number of users is usual.")],
    as_json: AsJson = False,
) -> None:
    """Make a ledger whose budget never changes; --ledger of other verbs spends from it.

    \b
    skellam ledger new year.ledger --epsilon 4 --delta 1e-6
    skellam query count hours.csv --user who --epsilon 1 --delta 1e-6 --ledger year.ledger
    skellam verify year.ledger
    """
    from skellam.accounting.ledger import Ledger

    with Ledger.create(path, epsilon=epsilon, delta=delta) as made:
        budget = made.budget
    answer(
        {"ledger": str(path), "budget": {"epsilon": budget.epsilon, "delta": budget.delta}},
        f"{path} has a budget of epsilon {budget.epsilon:g} at delta {budget.delta:g}",
        as_json=as_json,
    )
