"""``skellam plan``: from targets to parameters, for one plan, rivals of it, or a sweep.

A sweep of one parameter is written ``bits=8..20``, ``cohort=100..1000..300`` or ``epsilon=1,2,4``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from skellam.cli.answer import AsJson, answer, draw, table
from skellam.errors import DomainError, InfeasibleError
from skellam.plan import Accountant, CalibratedPlan, Noise, NoiseBy, Plan, Sampling, Servers

if TYPE_CHECKING:
    from rich.table import Table

    from skellam.plan.explanation import Explanation

NoiseByOption: TypeAlias = Annotated[
    NoiseBy | None, typer.Option(help="With two servers, who adds noise; both unless given.")
]
CorrelationOption: TypeAlias = Annotated[
    str | None,
    typer.Option(help='Noise that cancels over rounds: "auto", or a band such as 4,2,1.'),
]
_ONE_SERVER: dict[str, Any] = {
    "aggregation": Servers.ONE,
    "noise_by": None,
    "correlation": None,
}
RIVALS: dict[str, dict[str, Any]] = {
    "this plan": {},
    "the paper's method": {
        **_ONE_SERVER,
        "noise": Noise.SKELLAM,
        "accountant": Accountant.PAPER,
        "rounding": "conditional",
    },
    "central Gaussian": {**_ONE_SERVER, "noise": Noise.GAUSSIAN},
    "distributed discrete Gaussian": {
        **_ONE_SERVER,
        "noise": Noise.DISCRETE_GAUSSIAN,
        "rounding": "conditional",
    },
}
"""What each rival changes in a plan."""
SETTINGS = {f.name for f in fields(Plan)} - {"target_epsilon", "target_delta"}
SWEPT = SETTINGS | {"epsilon", "delta"}


def plan(
    *,
    dimension: Annotated[int, typer.Option(help="Parameters of the model, or entries of a sum.")],
    clip: Annotated[float, typer.Option(help="Largest L2 norm of one client's vector.")],
    cohort: Annotated[int, typer.Option(help="Expected clients in a round.")],
    epsilon: Annotated[float, typer.Option(help="Target against whoever sees the releases.")],
    delta: Annotated[float, typer.Option(help="Target; below 1/population is usual.")],
    population: Annotated[
        int | None, typer.Option(help="Clients that cohorts are drawn from.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Releases that share the budget.")] = 1,
    bits: Annotated[int, typer.Option(help="Bits of a coordinate on the wire.")] = 16,
    sampling: Annotated[Sampling, typer.Option(help="How a round's clients are drawn.")] = (
        Sampling.POISSON
    ),
    participation_probability: Annotated[
        float | None, typer.Option(help="With self-sampling: chance to send data, not zeros.")
    ] = None,
    participations: Annotated[
        int | None, typer.Option(help="Rounds that one client's data may enter, at most.")
    ] = None,
    min_cohort: Annotated[
        int | None, typer.Option(help="Smallest cohort that is summed; others are skipped.")
    ] = None,
    public_sizes: Annotated[
        bool, typer.Option("--public-sizes", help="Cohort sizes are shown (Poisson cohorts).")
    ] = False,
    noise: Annotated[Noise, typer.Option(help="Which noise, and who adds it.")] = Noise.SKELLAM,
    aggregation: Annotated[
        Servers, typer.Option(help="One server, or a leader and a helper that do not collude.")
    ] = Servers.ONE,
    noise_by: NoiseByOption = None,
    correlation: CorrelationOption = None,
    server_momentum: Annotated[
        float, typer.Option(help="Momentum of the server, which a band is chosen for.")
    ] = 0.0,
    dropout: Annotated[float, typer.Option(help="Share of a cohort that may drop out.")] = 0.0,
    colluding: Annotated[
        float, typer.Option(help="Share of the POPULATION that may work for the server.")
    ] = 0.0,
    signal: Annotated[
        str, typer.Option(help='How updates add up: "aligned", "independent", or a number.')
    ] = "aligned",
    compression: Annotated[
        str | None, typer.Option(help='Rotated coordinates that are sent: a number, or "auto".')
    ] = None,
    accountant: Annotated[Accountant, typer.Option(help="How epsilon is computed.")] = (
        Accountant.BEST
    ),
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the plan goes.")] = Path(
        "plan.json"
    ),
    compare: Annotated[
        bool, typer.Option("--compare", help="Show other methods at the same targets beside it.")
    ] = False,
    sweep: Annotated[
        str | None, typer.Option(help="Plan again for every value, e.g. bits=8..20; writes none.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="With --sweep: draw the error (.png, .svg or .pdf).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the scale, noise and rounding that meet a privacy target with the least error.

    Writes the plan as JSON, the same that skellam.Plan.load reads, and explains every number.

    \b
    The paper's EMNIST setting at 12 bits a parameter:
    skellam plan --dimension 1018174 --clip 0.03 --bits 12 --cohort 100 \\
        --population 3400 --rounds 1500 --epsilon 10 --delta 0.000294

    \b
    One sum over a thousand clients, beside other methods:
    skellam plan --dimension 250 --clip 10 --cohort 1000 --sampling all \\
        --epsilon 1 --delta 1e-5 --compare

    \b
    Two servers that do not collude, one message from a client:
    skellam plan --dimension 250 --clip 10 --cohort 1000 --sampling all \\
        --epsilon 1 --delta 1e-5 --aggregation two-servers

    \b
    Noise that cancels over rounds: one epsilon against everybody:
    skellam plan --dimension 5000 --clip 1 --cohort 154 --population 2000 --rounds 50 \\
        --sampling cyclic --epsilon 4 --delta 0.0005 --aggregation two-servers \\
        --correlation auto --server-momentum 0.9

    \b
    How many bits are enough? (Any parameter; lists as epsilon=1,2,4.)
    skellam plan --dimension 250 --clip 10 --cohort 1000 --sampling all \\
        --epsilon 1 --delta 1e-5 --sweep bits=10..20..2 --plot bits.png
    """
    settings = {name: value for name, value in locals().items() if name in SWEPT}
    if compression is not None and compression.isdecimal():
        settings["compression"] = int(compression)
    with suppress(ValueError):
        settings["signal"] = float(signal)
    settings["correlation"] = correlation_of(correlation)
    if plot is not None and sweep is None:
        raise DomainError("--plot draws a sweep; add --sweep, for instance --sweep bits=8..20")
    if sweep is not None:
        _sweep(settings, parse_sweep(sweep, SWEPT), plot, as_json=as_json)
    elif compare:
        _compare(settings, out, as_json=as_json)
    else:
        _one(settings, out, as_json=as_json)


def correlation_of(text: str | None) -> str | tuple[int, ...] | None:
    """Return what ``--correlation`` asks for: "auto", or a band."""
    if text is None or text == "auto":
        return text
    try:
        return tuple(map(int, text.split(",")))
    except ValueError as error:
        raise DomainError(
            f'--correlation must be "auto" or integers such as 4,2,1, got {text!r}'
        ) from error


def _made(settings: dict[str, Any], **changes: Any) -> CalibratedPlan:  # noqa: ANN401  (fields of a plan)
    every = {**settings, **changes}
    epsilon, delta = every.pop("epsilon"), every.pop("delta")
    return Plan(**every).calibrated(epsilon=epsilon, delta=delta)


def _one(settings: dict[str, Any], out: Path, *, as_json: bool) -> None:
    made = _made(settings)
    made.save(out)
    explanation = made.explain()
    record = {
        "plan": json.loads(made.to_json()),
        "explanation": explanation.as_dict(),
        "written": str(out),
    }
    answer(record, _explained(explanation), f"wrote {out}", as_json=as_json)


def _explained(explanation: Explanation) -> Table:
    from rich.table import Table

    shown = Table(show_header=False, box=None, pad_edge=False)
    shown.add_column(no_wrap=True)
    shown.add_column(justify="right", no_wrap=True)
    shown.add_column(style="dim")
    for line in explanation.lines:
        shown.add_row(line.name, line.value, line.why)
    return shown


def _compare(settings: dict[str, Any], out: Path, *, as_json: bool) -> None:
    made, refused = dict[str, CalibratedPlan](), dict[str, str]()
    for name, changes in RIVALS.items():
        try:
            made[name] = _made(settings, **changes)
        except (DomainError, InfeasibleError) as error:
            if not changes:
                raise
            refused[name] = str(error)
    made["this plan"].save(out)
    explained = {name: found.explain().as_dict() for name, found in made.items()}
    rows = dict.fromkeys(line for lines in explained.values() for line in lines)
    cells = [
        [row, *(lines.get(row, {}).get("value", "-") for lines in explained.values())]
        for row in rows
    ]
    record = {
        "plans": {name: json.loads(found.to_json()) for name, found in made.items()},
        "explanations": explained,
        "infeasible": refused,
        "written": str(out),
    }
    answer(
        record,
        table(["", *made], cells),
        *(f"{name}: none; {reason}" for name, reason in refused.items()),
        f"wrote {out} (this plan)",
        as_json=as_json,
    )


def _sweep(settings: dict[str, Any], sweep: Sweep, plot: Path | None, *, as_json: bool) -> None:
    rows = [_row(settings, sweep.name, value) for value in sweep.values]
    if plot is not None:
        _plot(rows, sweep.name, plot)
    columns = ["noise_multiplier", "error", "relative_error", "bytes_per_client"]
    cells = [[str(row["value"]), *(_cell(row[column]) for column in columns)] for row in rows]
    title = f"squared error of a coordinate of the mean, over {sweep.name}"
    headings = [sweep.name, *(column.replace("_", " ") for column in columns)]
    notes = [f"{row['value']}: {row['reason']}" for row in rows if row["reason"]]
    drawn = [] if plot is None else [f"drew {plot}"]
    answer(
        {"parameter": sweep.name, "rows": rows},
        title,
        table(headings, cells),
        *notes,
        *drawn,
        as_json=as_json,
    )


def _row(settings: dict[str, Any], name: str, value: Any) -> dict[str, Any]:  # noqa: ANN401
    row: dict[str, Any] = {"value": value, "reason": None}
    try:
        made = _made(settings, **{name: value})
    except InfeasibleError as error:
        nothing = dict.fromkeys(("noise_multiplier", "error", "relative_error", "bytes_per_client"))
        return {**row, **nothing, "reason": str(error)}
    return {
        **row,
        "noise_multiplier": made.noise_multiplier,
        "error": made.error.total,
        "relative_error": made.relative_error,
        "bytes_per_client": made.bytes_per_client,
    }


def _plot(rows: list[dict[str, Any]], name: str, path: Path) -> None:
    found = [row for row in rows if row["reason"] is None]
    if not found:
        raise InfeasibleError(
            f"no value of {name} meets the targets, so there is nothing to draw; "
            "sweep over other values or relax the targets"
        )
    draw(
        path,
        [row["value"] for row in found],
        {"predicted": [row["error"] for row in found]},
        x=name.replace("_", " "),
        y="squared error of a coordinate of the mean",
        title=f"error over {name.replace('_', ' ')}",
        logarithmic=True,
    )


def _cell(value: float | None) -> str:
    match value:
        case None:
            return "none"
        case int():
            return f"{value:,}"
        case _:
            return f"{value:.6g}"


MAX_VALUES = 1000


@dataclass(frozen=True, slots=True)
class Sweep:
    """A parameter and the values that it takes in turn."""

    name: str
    values: tuple[Any, ...]


def parse_sweep(text: str, names: Collection[str]) -> Sweep:
    """Return the sweep that ``text`` asks for; its parameter must be one of ``names``."""
    name, equals, values = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals or name not in names:
        raise DomainError(
            f"a sweep is written name=first..last, name=first..last..step or name=a,b,c "
            f"with a name of {', '.join(sorted(names))}; got {text!r}"
        )
    ends = values.split("..")
    found = _range(ends) if len(ends) > 1 else [_number(v.strip()) for v in values.split(",")]
    return Sweep(name, tuple(found))


def _range(ends: Iterable[str]) -> list[int]:
    try:
        first, last, step = (*map(int, ends), 1)[:3]
        values = range(first, last + 1, step)
    except ValueError as error:
        raise DomainError("a range takes whole numbers; list others with commas") from error
    if not 1 <= len(values) <= MAX_VALUES:
        raise DomainError(f"a range must have 1 to {MAX_VALUES} values, got {len(values)}")
    return [*values]


def _number(text: str) -> int | float | str:
    kinds: tuple[Callable[[str], int | float], ...] = (int, float)
    for kind in kinds:
        try:
            return kind(text)
        except ValueError:
            continue
    return text
