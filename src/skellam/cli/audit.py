"""``skellam audit``: attack a plan's rounds, and compare with what it claims."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skellam.cli.answer import AsJson, answer
from skellam.plan import CalibratedPlan

VIOLATED = 5
"""The exit code of a refuted claim."""


def audit(
    plan: Annotated[Path, typer.Argument(help="A plan.")],
    *,
    trials: Annotated[int, typer.Option(help="Attacks with the canary, and as many without.")] = (
        1000
    ),
    confidence: Annotated[
        float, typer.Option(help="One minus the rate of false alarms.")
    ] = 0.999999,
    delta: Annotated[
        float | None, typer.Option(help="Another point of the claim; large ones show more.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Attack a plan's rounds with a canary: a lower bound on epsilon beside the claim.

    Exit code 5 if the attacks refute the claim. That they do not is no proof. Every trial runs all
    rounds of the plan, so audit a small one: few parameters, few rounds.

    \b
    skellam plan --dimension 4 --clip 1 --bits 12 --cohort 3 --sampling all \\
        --rounds 2 --epsilon 1 --delta 0.1 --out small.json
    skellam audit small.json --trials 400
    """
    import skellam as sk
    from skellam import audit as attacks

    found = attacks.codec(
        CalibratedPlan.load(plan),
        trials=trials,
        confidence=confidence,
        delta=delta,
        entropy=sk.SystemEntropy(),
    )
    answer(found.as_dict(), str(found), as_json=as_json)
    if found.verdict is attacks.Verdict.VIOLATED:
        raise typer.Exit(VIOLATED)
