"""``skellam train``: a private training run in a folder."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, assert_never

import typer

from skellam import _checks
from skellam.accounting.guarantee import rounded_up
from skellam.cli.answer import AsJson, answer, table
from skellam.cli.plan import CorrelationOption, NoiseByOption, correlation_of
from skellam.errors import DomainError
from skellam.plan import AdaptiveClip, CalibratedPlan, Noise, Sampling, Servers

if TYPE_CHECKING:
    from skellam import federated as fl
    from skellam import tasks


class Engine(StrEnum):
    """How the vectors of a round are summed."""

    SECURE = "secure"
    """By the whole protocol of one or two servers, every party in this process."""
    UNMASKED = "unmasked"
    """The same integers, added up in the open: fast, for simulation."""
    TRUSTED_SUM = "trusted_sum"
    """The same law with all noise drawn at once, as by a trusted server: faster, for simulation."""
    NON_PRIVATE = "non_private"
    """Without clipping, noise or guarantee: what privacy is compared with."""


def train(
    task: Annotated[
        str,
        typer.Argument(
            help="digits (needs no file), emnist, shakespeare, stackoverflow, unipen, "
            "mnist_writers, shakespeare_roles or stackexchange."
        ),
    ],
    *,
    folder: Annotated[Path, typer.Option(help="Where history, ledger and checkpoint go.")],
    epsilon: Annotated[
        float | None, typer.Option(help="Target for the task's usual settings.")
    ] = None,
    plan: Annotated[Path | None, typer.Option(help="A plan instead of a target.")] = None,
    data: Annotated[Path | None, typer.Option(help="The task's data files.")] = None,
    engine: Annotated[
        Engine | None, typer.Option(help="How vectors are summed; secure unless given.")
    ] = None,
    noise: Annotated[
        Noise | None, typer.Option(help="Which noise, and who adds it; skellam unless given.")
    ] = None,
    aggregation: Annotated[
        Servers | None,
        typer.Option(help="One server, or two that do not collude; one unless given."),
    ] = None,
    noise_by: NoiseByOption = None,
    correlation: CorrelationOption = None,
    bits: Annotated[
        int | None, typer.Option(help="Bits of a coordinate on the wire; 16 unless given.")
    ] = None,
    sampling: Annotated[
        Sampling | None, typer.Option(help="How clients are drawn; poisson unless given.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Instead of the task's usual number.")] = None,
    cohort: Annotated[int | None, typer.Option(help="Instead of the task's usual number.")] = None,
    dropout: Annotated[
        float | None,
        typer.Option(help="Share of a cohort that may drop out: enough for what is simulated."),
    ] = None,
    simulate_dropout: Annotated[
        float, typer.Option(help="Chance of every client to drop out of a round.")
    ] = 0.0,
    adaptive_clip: Annotated[
        float | None,
        typer.Option(
            help="Share of clients that the clip shall not touch, such as 0.5: the clip begins "
            "at the plan's and follows that quantile of the updates' norms."
        ),
    ] = None,
    quantile_noise: Annotated[
        float | None,
        typer.Option(
            help="Deviation of the noise on that share, spent out of epsilon; 0.05 unless given."
        ),
    ] = None,
    every: Annotated[int, typer.Option(help="Measure the model every so many rounds.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on after a kill.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a model privately; every round is spent from a ledger before it is released.

    \b
    skellam train digits --epsilon 4 --folder runs/first
    skellam train digits --folder runs/first --resume
    skellam train digits --epsilon 4 --aggregation two-servers --folder runs/two
    skellam train digits --epsilon 4 --aggregation two-servers --sampling cyclic \\
        --correlation auto --folder runs/one-epsilon
    skellam train digits --epsilon 4 --adaptive-clip 0.5 --folder runs/adaptive
    skellam train emnist --data emnist_all.sqlite --plan plan.json --folder runs/emnist

    Then look at it with skellam report, and check it with skellam verify.
    """
    given = {
        "epsilon": epsilon,
        "rounds": rounds,
        "cohort": cohort,
        "noise": noise,
        "bits": bits,
        "sampling": sampling,
        "aggregation": aggregation,
        "noise_by": noise_by,
        "correlation": correlation_of(correlation),
        "dropout": dropout,
        "quantile_noise": quantile_noise,
    }
    _checks.between("--simulate-dropout", simulate_dropout, 0, 1)
    if adaptive_clip is None and quantile_noise is not None:
        raise DomainError("--quantile-noise goes with --adaptive-clip; give both, or none")
    begun = _begun(folder) if resume else None
    if resume and plan is not None:
        raise DomainError(f"--plan is not for --resume: {folder} has the run's plan; leave it out")
    planned = None if plan is None else CalibratedPlan.load(plan)
    if begun is not None:
        _require_same(given, begun.plan, folder)
        _require_same_clip(adaptive_clip, begun)
    elif planned is not None:
        _require_same(given, planned, plan)
    else:
        _target(epsilon)

    import skellam as sk
    from skellam import federated as fl
    from skellam import tasks

    preset = tasks.preset(task)
    learnt = preset.task(data)
    if begun is not None:
        chosen, clip, engine = begun.plan, begun.clip, engine or _engine(begun.aggregate)
    else:
        chosen = planned or _preset_plan(preset, learnt, given, simulate_dropout, adaptive_clip)
        clip = _clip(adaptive_clip, chosen)
    with fl.progress(chosen.rounds, console=_console()) as watch:
        history = fl.train(
            learnt,
            chosen,
            aggregate=_aggregation(engine or Engine.SECURE, chosen)(dropout=simulate_dropout),
            entropy=sk.SystemEntropy(),
            clip=clip,
            server=preset.server(),
            folder=folder,
            resume=resume,
            every=every,
            watch=watch,
        )
    _show(history, folder, as_json=as_json)


def _engine(aggregate: str) -> Engine:
    """Return the engine with which a run was begun."""
    return Engine.SECURE if aggregate == "two_servers" else Engine(aggregate)


def _aggregation(engine: Engine, plan: CalibratedPlan) -> Callable[..., fl.Aggregation]:
    from skellam import federated as fl

    match engine:
        case Engine.SECURE:
            return fl.two_servers if plan.aggregation is Servers.TWO else fl.secure
        case Engine.UNMASKED:
            return fl.unmasked
        case Engine.TRUSTED_SUM:
            return fl.trusted_sum
        case Engine.NON_PRIVATE:
            return fl.non_private
        case _ as never:
            assert_never(never)


def _begun(folder: Path) -> fl.Header:
    from skellam import report

    return report.read(folder).header


def _require_same(given: dict[str, Any], plan: CalibratedPlan, where: Path | None) -> None:
    """Raise if an option says something else than the plan that is used."""
    for name, value in given.items():
        planned = plan.target_epsilon if name == "epsilon" else getattr(plan, name)
        if value is not None and value != planned:
            option = name.replace("_", "-")
            raise DomainError(
                f"--{option} {value} contradicts {where}, which has {planned}; leave it out, "
                "or plan again with it"
            )


def _require_same_clip(target: float | None, begun: fl.Header) -> None:
    began = None if begun.clip is None else begun.clip.target
    if target is not None and target != began:
        raise DomainError(f"--adaptive-clip {target} contradicts the run, which has {began}")


def _preset_plan(
    preset: tasks.Preset,
    learnt: fl.Task,
    given: dict[str, Any],
    simulated: float,
    adaptive_clip: float | None,
) -> CalibratedPlan:
    changes = dict(given)
    if given["aggregation"] is not Servers.TWO:
        changes["dropout"] = _tolerated(given["dropout"], simulated)
    if adaptive_clip is not None:
        changes["quantile_noise"] = given["quantile_noise"] or 0.05
    epsilon = _target(changes.pop("epsilon"))
    stated = {name: value for name, value in changes.items() if value is not None}
    return preset.plan(learnt, epsilon=epsilon, **stated)


def _tolerated(dropout: float | None, simulated: float) -> float:
    """Return the share that may drop out: as given, or three times what is simulated."""
    return min(0.45, ceil(300 * simulated) / 100) if dropout is None else dropout


def _target(epsilon: float | None) -> float:
    if epsilon is None:
        raise DomainError("give a target with --epsilon, or a plan with --plan")
    return epsilon


def _clip(target: float | None, plan: CalibratedPlan) -> AdaptiveClip | None:
    if target is None:
        return None
    return AdaptiveClip(clip=plan.clip, target=_checks.open_unit("--adaptive-clip", target))


def _console() -> Any:  # noqa: ANN401  (rich is imported when a run begins)
    """Return the terminal's error stream, so that what is printed stays clean."""
    from rich.console import Console

    return Console(stderr=True)


def _show(history: fl.History, folder: Path, *, as_json: bool) -> None:
    last = next((r for r in reversed(history.records) if r.evaluated), history.records[-1])
    skipped = sum(record.skipped is not None for record in history.records)
    guarantees = {} if history.guarantees is None else history.guarantees._asdict()
    record = {
        "folder": str(folder),
        "rounds": len(history.records),
        "stop": str(history.stop),
        "skipped": skipped,
        "test": dict(last.test),
        "validation": dict(last.validation),
        "guarantees": {name: guarantee.as_dict() for name, guarantee in guarantees.items()},
    }
    rows = [
        ["rounds", f"{len(history.records)} ({history.stop})"],
        *([["rounds that released nothing", str(skipped)]] if skipped else []),
        *_measured(last),
        *(
            [f"epsilon, {name.replace('_', ', ')}", rounded_up(guarantee.epsilon)]
            for name, guarantee in guarantees.items()
        ),
    ]
    heading = ["run", str(folder)]
    answer(record, table(heading, rows), f"next: skellam report {folder}", as_json=as_json)


def _measured(record: fl.Record) -> list[list[str]]:
    from skellam.federated.monitoring import measure_text

    return [
        [f"{split} {name}", measure_text(name, value)]
        for split, measures in (("test", record.test), ("validation", record.validation))
        for name, value in sorted(measures.items())
    ]
