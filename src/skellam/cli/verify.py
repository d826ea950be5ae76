"""``skellam verify``: whether a ledger is what was written, and what it adds up to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skellam.accounting.guarantee import rounded_up
from skellam.cli.answer import AsJson, answer, table
from skellam.errors import DomainError

if TYPE_CHECKING:
    from skellam.accounting.ledger import Verifier


def verify(
    path: Annotated[Path, typer.Argument(help="The ledger.")],
    *,
    key: Annotated[
        str | None,
        typer.Option(help="The signer's public key, 64 hexadecimal digits; all lines must be its."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a ledger's chain of digests and compute its epsilon anew.

    Exit code 4 and the number of the first bad line if a byte was changed; also if a release drew
    its noise from a seed, for then nothing is guaranteed. A chain guards against accidents: whoever
    can write the file can write another chain, unless every line is signed and --key is given.

    \b
    skellam verify run/ledger
    skellam verify run/ledger --key 0a1b...
    """
    from skellam.accounting.ledger import Ledger

    account = Ledger.verify(path, verifier=None if key is None else _verifier(key))
    guarantee = account.guarantee() if account.spends else None
    record = {
        "ledger": str(path),
        "releases": len(account.spends),
        "signatures": "checked" if key else "not checked",
        "budget": {"epsilon": account.budget.epsilon, "delta": account.budget.delta},
        "epsilon": account.epsilon(),
        "remaining": account.remaining(),
        "guarantee": guarantee and guarantee.as_dict(),
    }
    rows = [
        ["chain", "holds"],
        ["signatures", "checked" if key else "not checked"],
        ["releases", str(len(account.spends))],
        ["budget", f"epsilon {account.budget.epsilon:g}, delta {account.budget.delta:.4g}"],
        ["epsilon, computed anew", rounded_up(account.epsilon())],
        ["epsilon that is left", f"{account.remaining():.4g}"],
    ]
    shown = [] if guarantee is None else [f"\n{guarantee}"]
    answer(record, table(["ledger", str(path)], rows), *shown, as_json=as_json)


def _verifier(key: str) -> Verifier:
    from skellam.secagg import SealVerifier

    try:
        return SealVerifier(bytes.fromhex(key))
    except ValueError as error:
        raise DomainError(f"--key must be 64 hexadecimal digits, got {key!r}") from error
