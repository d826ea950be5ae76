"""``skellam account``: what a plan will cost, or what a ledger has cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from skellam import accounting
from skellam.accounting.guarantee import Audience, Guarantee, rounded_up
from skellam.cli.answer import AsJson, answer, table
from skellam.cli.pictures import draw
from skellam.errors import CertificateError, DataError, DomainError
from skellam.plan import CalibratedPlan

POINTS = 12
"""Rounds at which a curve is evaluated."""


def account(
    path: Annotated[Path, typer.Argument(help="A plan (JSON) or a ledger.")],
    *,
    delta: Annotated[float | None, typer.Option(help="Instead of the plan's.")] = None,
    participations: Annotated[
        int | None, typer.Option(help="Rounds of one client, as the server counts them.")
    ] = None,
    curve: Annotated[
        Path | None, typer.Option(help="Draw epsilon over rounds (.png, .svg or .pdf).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """State epsilon by every method, against the public and against the server.

    The public sees what is released. The server also sees who took part: sampling hides nobody
    from it, so its epsilon is the larger one. Quote both, with what they assume.

    \b
    skellam account plan.json
    skellam account plan.json --participations 10 --curve epsilon.png
    skellam account run/ledger --json
    """
    if _is_plan(path):
        _plan(CalibratedPlan.load(path), delta, participations, curve, as_json=as_json)
    elif delta is not None:
        raise DomainError("a ledger is accounted at its budget's delta; leave --delta out")
    else:
        _ledger(path, participations, curve, as_json=as_json)


def _is_plan(path: Path) -> bool:
    try:
        return b'"skellam-plan"' in path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error


def _plan(
    plan: CalibratedPlan,
    delta: float | None,
    participations: int | None,
    curve: Path | None,
    *,
    as_json: bool,
) -> None:
    public, server, mean = plan.guarantees(delta=delta)
    shown = {"public": public, "server": server, "server, mean client": mean}
    if participations is not None:
        shown[f"server, {participations} participations"] = plan.privacy(
            audience=Audience.SERVER, delta=delta, participations=participations
        )
    mechanism, count = plan.releases()
    methods = by_method(
        lambda method: accounting.epsilon(
            mechanism, rounds=count, delta=public.delta, method=method
        )
    )
    if curve is not None:
        _draw(curve, _rounds(plan.rounds), lambda n: _plan_epsilons(plan, n, public.delta))
    _show(methods, shown, as_json)


def _ledger(path: Path, participations: int | None, curve: Path | None, *, as_json: bool) -> None:
    from skellam.accounting.ledger import Account, Ledger

    kept = Ledger.verify(path)
    public = kept.guarantee()
    server = kept.guarantee(audience=Audience.SERVER, participations=participations)
    methods = by_method(
        lambda method: accounting.composed_epsilon(
            kept.rounds.items(), delta=kept.budget.delta, method=method
        )
    )
    if curve is not None:
        accounts = [Account(kept.budget)]
        for spend in kept.spends:
            accounts.append(accounts[-1].plus(spend))
        _draw(curve, _rounds(len(kept.spends)), lambda n: {"public": accounts[n].epsilon()})
    _show(methods, {"public": public, "server": server}, as_json)


def by_method(epsilon: Callable[[accounting.Method], float]) -> dict[str, float | str]:
    """Return epsilon by every method, or why it has none."""
    found: dict[str, float | str] = {}
    for method in get_args(accounting.Method):
        try:
            found[method] = epsilon(method)
        except CertificateError as error:
            found[method] = str(error)
    return found


def _show(
    methods: Mapping[str, float | str], guarantees: Mapping[str, Guarantee], as_json: bool
) -> None:
    first = guarantees["public"]
    record: dict[str, Any] = {
        "delta": first.delta,
        "methods": dict(methods),
        "guarantees": {name: guarantee.as_dict() for name, guarantee in guarantees.items()},
    }
    rows = [
        [method, rounded_up(value) if isinstance(value, float) else "no bound"]
        for method, value in methods.items()
    ]
    title = f"epsilon against the public at delta {rounded_up(first.delta)}"
    answer(
        record,
        title,
        table(["method", "epsilon"], rows),
        *(f"\n{guarantee}" for guarantee in guarantees.values()),
        as_json=as_json,
    )


def _rounds(last: int) -> list[int]:
    return sorted({max(1, last * step // POINTS) for step in range(1, POINTS + 1)})


def _plan_epsilons(plan: CalibratedPlan, rounds: int, delta: float) -> dict[str, float]:
    found = {"public": plan.privacy(rounds=rounds, delta=delta).epsilon}
    with suppress(CertificateError):
        server = plan.privacy(audience=Audience.SERVER, rounds=rounds, delta=delta)
        found["server"] = server.epsilon
    return found


def _draw(path: Path, rounds: list[int], epsilons: Callable[[int], dict[str, float]]) -> None:
    points = [epsilons(n) for n in rounds]
    curves = {name: [point[name] for point in points] for name in points[0]}
    draw(path, rounds, curves, x="rounds", y="epsilon", title="what the rounds cost")
