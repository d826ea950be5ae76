"""``skellam account``: what a plan will cost, or what a ledger has cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, get_args

import typer

from skellam import _checks, accounting
from skellam.accounting.guarantee import Audience, Guarantee, rounded_up
from skellam.cli.answer import AsJson, answer, draw, table
from skellam.errors import CertificateError, DataError, DomainError
from skellam.plan import CalibratedPlan, Noise, Plan, Sampling, Servers

POINTS = 12
"""Rounds at which a curve is evaluated."""


def account(
    path: Annotated[
        Path | None, typer.Argument(help="A plan (JSON) or a ledger; or none, and --users.")
    ] = None,
    *,
    users: Annotated[
        int | None, typer.Option(help="Without a plan: users that cohorts are drawn from.")
    ] = None,
    cohort: Annotated[int | None, typer.Option(help="Expected users in a round.")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds in all.")] = 1,
    epsilon: Annotated[
        float | None, typer.Option(help="A target; the noise that meets it is found.")
    ] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Deviation of the noise over the clip; epsilon is found.")
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="Instead of the plan's; without a plan users^-1.1 unless given."),
    ] = None,
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

    Before there is a model, name users, cohort and rounds: the noise is then Gaussian, which a
    plan with enough bits comes close to in any dimension.

    \b
    skellam account --users 100000 --cohort 1000 --rounds 2000 --epsilon 5
    skellam account --users 100000 --cohort 1000 --rounds 2000 --noise-multiplier 0.7
    skellam account plan.json
    skellam account plan.json --participations 10 --curve epsilon.png
    skellam account run/ledger --json
    """
    fleet = {
        "users": users,
        "cohort": cohort,
        "rounds": rounds if rounds != 1 else None,
        "epsilon": epsilon,
        "noise_multiplier": noise_multiplier,
    }
    if path is None:
        plan = _without_model(fleet, rounds, delta)
        _plan(plan, None, participations, curve, as_json=as_json)
        return
    if given := next((name for name, value in fleet.items() if value is not None), None):
        option = given.replace("_", "-")
        raise DomainError(f"--{option} goes without a file, and {path} has its own; leave one out")
    if _is_plan(path):
        _plan(CalibratedPlan.load(path), delta, participations, curve, as_json=as_json)
    elif delta is not None:
        raise DomainError("a ledger is accounted at its budget's delta; leave --delta out")
    else:
        _ledger(path, participations, curve, as_json=as_json)


def _without_model(fleet: Mapping[str, Any], rounds: int, delta: float | None) -> CalibratedPlan:
    """Return the plan of a fleet whose model is not known: one number, and Gaussian noise."""
    for name in ("users", "cohort"):
        if fleet[name] is None:
            raise DomainError(
                f"give a plan or a ledger, or --users, --cohort and --rounds; --{name} is missing"
            )
    users, cohort = fleet["users"], fleet["cohort"]
    epsilon, multiplier = fleet["epsilon"], fleet["noise_multiplier"]
    if (epsilon is None) == (multiplier is None):
        raise DomainError("give --epsilon, or --noise-multiplier, one of the two")
    _checks.integer("--users", users, 2)
    chosen = users**-1.1 if delta is None else delta
    asked = Plan(
        dimension=1,
        clip=1.0,
        cohort=_checks.integer("--cohort", cohort, 1, users),
        population=users,
        rounds=rounds,
        noise=Noise.GAUSSIAN,
        sampling=Sampling.ALL if cohort == users else Sampling.POISSON,
    )
    if multiplier is not None:
        return asked.with_noise(multiplier, delta=chosen)
    return asked.calibrated(epsilon=epsilon, delta=chosen)


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
    found = plan.guarantees(delta=delta)
    public, server = found.public, found.server.audience
    shown = {name.replace("_mean", ", mean client"): g for name, g in found._asdict().items()}
    if participations is not None:
        shown[f"{server}, {participations} participations"] = plan.privacy(
            audience=server, delta=delta, participations=participations
        )
    mechanism, count = plan.releases(audience=Audience.PUBLIC)
    methods = by_method(
        lambda method: accounting.epsilon(
            mechanism, rounds=count, delta=public.delta, method=method
        )
    )
    if curve is not None:
        _draw(curve, _rounds(plan.rounds), lambda n: _plan_epsilons(plan, n, public.delta))
    multiplier = f"noise multiplier {plan.noise_multiplier:.4g} (deviation over clip)"
    _show(methods, shown, as_json, {"noise_multiplier": plan.noise_multiplier}, multiplier)


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
    methods: Mapping[str, float | str],
    guarantees: Mapping[str, Guarantee],
    as_json: bool,
    more: Mapping[str, float] = MappingProxyType({}),
    *lines: str,
) -> None:
    first = guarantees["public"]
    record: dict[str, Any] = {
        **more,
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
        *lines,
        title,
        table(["method", "epsilon"], rows),
        *(f"\n{guarantee}" for guarantee in guarantees.values()),
        as_json=as_json,
    )


def _rounds(last: int) -> list[int]:
    return sorted({max(1, last * step // POINTS) for step in range(1, POINTS + 1)})


def _plan_epsilons(plan: CalibratedPlan, rounds: int, delta: float) -> dict[str, float]:
    public = plan.privacy(audience=Audience.PUBLIC, rounds=rounds, delta=delta)
    found = {"public": public.epsilon}
    server = Audience.SERVER if plan.aggregation is Servers.ONE else Audience.LEADER
    with suppress(CertificateError):
        against = plan.privacy(audience=server, rounds=rounds, delta=delta)
        found[str(server)] = against.epsilon
    return found


def _draw(path: Path, rounds: list[int], epsilons: Callable[[int], dict[str, float]]) -> None:
    points = [epsilons(n) for n in rounds]
    curves = {name: [point[name] for point in points] for name in points[0]}
    draw(path, rounds, curves, x="rounds", y="epsilon", title="what the rounds cost")
