"""``skellam verify``: whether a ledger is what was written, and what it adds up to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skellam.accounting.guarantee import rounded_up
from skellam.cli.answer import AsJson, answer, table


def verify(
    path: Annotated[Path, typer.Argument(help="The ledger.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Check a ledger's chain of digests and compute its epsilon anew.

    Exit code 4 and the number of the first bad line if a byte was changed; also if a release drew
    its noise from a seed, for then nothing is guaranteed. An unsigned chain guards against
    accidents: whoever can write the file can write another chain.

    \b
    skellam verify run/ledger
    """
    from skellam.accounting.ledger import Ledger

    account = Ledger.verify(path)
    guarantee = account.guarantee() if account.spends else None
    record = {
        "ledger": str(path),
        "releases": len(account.spends),
        "budget": {"epsilon": account.terms.epsilon, "delta": account.terms.delta},
        "epsilon": account.epsilon(),
        "remaining": account.remaining(),
        "guarantee": guarantee and guarantee.as_dict(),
    }
    rows = [
        ["chain", "holds"],
        ["releases", str(len(account.spends))],
        ["budget", f"epsilon {account.terms.epsilon:g}, delta {account.terms.delta:.4g}"],
        ["epsilon, computed anew", rounded_up(account.epsilon())],
        ["epsilon that is left", f"{account.remaining():.4g}"],
    ]
    shown = [] if guarantee is None else [f"\n{guarantee}"]
    answer(record, table(["ledger", str(path)], rows), *shown, as_json=as_json)
