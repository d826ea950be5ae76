"""The public page of a run: big numbers, charts and a table of the rounds, and what they depend on.

It is made of the run's public files and nothing else of its folder: ``operator.jsonl`` and
``checkpoint.npz`` are the operator's and are never opened here. The sections at its end are the
guarantees, the plan, bytes, headroom, the ledger and the commands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Self, TypeAlias

from markupsafe import Markup

from skellam import _checks
from skellam.accounting.guarantee import Guarantee
from skellam.accounting.ledger import Account, read_ledger
from skellam.engines import durable
from skellam.errors import DataError
from skellam.federated.history import Header, Record, read_records
from skellam.federated.spending import guarantees
from skellam.plan import AnyGuarantees, TwoServerGuarantees
from skellam.report.chart import Chart, Line, Text
from skellam.report.markup import (
    NOTHING,
    bound,
    bullets,
    card,
    chance,
    document,
    join,
    number,
    percent,
    percent_tick,
    section,
    size,
    table,
    tag,
    warning,
)


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """A ledger that was read: what it says, and the digest of its last line."""

    account: Account
    digest: str

    @classmethod
    def open(cls, path: Path) -> Self:
        """Return the ledger at ``path``, every line checked; nothing is written."""
        account, head = read_ledger(path)
        return cls(account, head.digest)


@dataclass(frozen=True, slots=True)
class Run:
    """A run's header, a record a round, and the ledger that it was spent from."""

    header: Header
    records: tuple[Record, ...]
    ledger: LedgerSummary | None = None
    guarantees: AnyGuarantees | None = field(init=False)
    """What holds for all that was released; none without a ledger of secret noise."""

    def __post_init__(self) -> None:
        _checks.assign(self, guarantees=self._guarantees())

    @property
    def measured(self) -> tuple[Record, ...]:
        """The rounds after which the model was measured."""
        return tuple(r for r in self.records if r.evaluated)

    def _guarantees(self) -> AnyGuarantees | None:
        if self.ledger is None or self.header.replayable or not self.header.private:
            return None
        return guarantees(self.ledger.account, self.header.plan, self.header.population)


def read(folder: str | PathLike[str], *, ledger: str | PathLike[str] | None = None) -> Run:
    """Return the run in ``folder``; ``ledger`` says where its ledger is, if not there."""
    files = Path(folder)
    path = Path(ledger or files / "ledger")
    try:
        header = Header.from_json((files / "run.json").read_text(encoding="utf-8"))
    except DataError:
        raise
    except (OSError, ValueError) as error:
        raise DataError(
            f"{files} holds no run: {error}; pass the folder that training wrote"
        ) from error
    records = tuple(read_records(files / "history.jsonl"))
    kept_here = ledger is not None or durable.exists(path)
    return Run(header, records, LedgerSummary.open(path) if kept_here else None)


def write(folder: str | PathLike[str], *, ledger: str | PathLike[str] | None = None) -> Path:
    """Write ``report.html`` into a run's folder and return its path."""
    path = Path(folder) / "report.html"
    text = page(read(folder, ledger=ledger))
    durable.replace(path, text.encode("utf-8", "xmlcharrefreplace"), mode=durable.PUBLIC)
    return path


def page(run: Run) -> str:
    """Return the page of ``run``, whole: no script, no font, no picture from anywhere else."""
    return document(f"{run.header.task} – skellam run", *_body(run))


def _body(run: Run) -> Iterator[Markup]:
    yield tag("header", tag("h1", _title(run)), tag("p", _subtitle(run), class_="mute"))
    yield join(warnings(run))
    yield tag("div", *_numbers(run), class_="numbers")
    yield tag("section", *(chart.draw() for chart in charts(run)), class_="charts")
    yield rounds_table(run)
    yield from sections(run)
    yield tag(
        "footer",
        "Everything on this page derives from released sums or from public test data. Who took "
        "part and how many, training losses, clip rates and seeds are the operator's secrets.",
    )


def _title(run: Run) -> str:
    kind = "Private training of" if run.header.private else "Training of"
    return f"{kind} {run.header.task}"


def _subtitle(run: Run) -> str:
    plan, skipped = run.header.plan, sum(r.skipped is not None for r in run.records)
    parts = [
        f"{len(run.records)} of {plan.rounds} rounds",
        f"{plan.dimension:,} parameters",
        f"about {plan.cohort:,} clients a round",
        run.header.population,
        f"aggregation: {run.header.aggregate}",
    ]
    if skipped:
        reasons = sorted({r.skipped for r in run.records if r.skipped is not None})
        parts.insert(1, f"{skipped} of them released nothing ({', '.join(reasons)})")
    return " · ".join(parts)


def _numbers(run: Run) -> Iterator[Markup]:
    yield from _measures(run)
    found = run.guarantees
    if found is None:
        yield card("ε against the public", NOTHING, "no guarantee")
        yield card("ε against the server", NOTHING, "no guarantee")
        return
    public = found.public
    yield card("ε against the public", bound(public.epsilon), f"δ = {bound(public.delta)}")
    if isinstance(found, TwoServerGuarantees):
        helper = f"{bound(found.helper.epsilon)} against the helper"
        yield card("ε against the leader", bound(found.leader.epsilon), helper)
    else:
        mean = bound(found.server_mean.epsilon)
        told = f"for every client; {mean} for the mean client, which is no bound"
        yield card("ε against the server", bound(found.server.epsilon), told)
    clipped = [r.clipped for r in run.records if r.clipped is not None]
    if clipped:
        last = min(max(clipped[-1], 0.0), 1.0)
        yield card("clients that the clip touched", percent(last), "in the last round, with noise")


def _measures(run: Run) -> Iterator[Markup]:
    """Yield a card for each measure; a loss that is not alone is told beside the first one."""
    if not run.measured:
        yield card("measured on public data", NOTHING, "nothing yet")
        return
    last, names = run.measured[-1], measures(run)
    split = "test" if last.test else "validation"
    shown = [name for name in names if name != "loss"] or names
    for name in shown:
        others = names if name == shown[0] else [name]
        yield card(
            f"{split} {name}", _value(last, split, name), _details(last, split, name, others)
        )


def _details(last: Record, split: str, name: str, others: list[str]) -> str:
    parts = [f"loss {_value(last, split, 'loss')}"] if "loss" in others and name != "loss" else []
    if split == "test" and name in last.validation:
        parts.append(f"validation {_value(last, 'validation', name)}")
    return ", ".join(parts)


def _value(record: Record, split: str, name: str) -> str:
    return measure_text(name)(record.measured(f"{split}_{name}"))


Column: TypeAlias = tuple[str, str, Text]
"""What a column of the table is called, the field that it shows, and how."""
_COLUMNS: tuple[Column, ...] = (
    ("ε public", "epsilon_public", bound),
    ("ε server", "epsilon_server", bound),
    ("ε server, mean client", "epsilon_server_mean", bound),
    ("headroom", "wrap_k", number),
    ("chance of a wrap", "wrap_probability", chance),
)
_CLIP: tuple[Column, ...] = (("clip", "clip", number), ("clipped, noisy", "clipped", percent))
_SPLITS = ("test", "validation")
_EPSILONS = {
    "public": "epsilon_public",
    "server": "epsilon_server",
    "server, mean client": "epsilon_server_mean",
}


def measures(run: Run) -> list[str]:
    """Return the names of what was measured: accuracy first, the loss last."""
    names = {name for record in run.records for name in record.measures}
    return sorted(names, key=lambda name: (name == "loss", name != "accuracy", name))


def measure_text(name: str) -> Text:
    """Return how a measure is written: accuracies in per cent."""
    return percent if name == "accuracy" else number


def charts(run: Run) -> Iterator[Chart]:
    """Yield every measure, the epsilons, the headroom in the modulus and a clip that adapts."""
    shown = run.measured
    rounds = _rounds(shown)
    for index, name in enumerate(measures(run)):
        title = f"{name[:1].upper()}{name[1:]} on public data"
        lines = _lines(shown, {split: f"{split}_{name}" for split in _SPLITS})
        tick = percent_tick if name == "accuracy" else number
        yield Chart(f"measure-{index}", title, rounds, lines, measure_text(name), tick=tick)
    if run.ledger is not None and run.guarantees is not None:
        budget = ("public budget", run.ledger.account.budget.epsilon)
        lines = _lines(shown, _EPSILONS)
        yield Chart("epsilon", "ε spent", rounds, lines, bound, log=True, level=budget)
    summed = [r for r in run.records if r.wrap_k is not None]
    if summed:
        lines = _lines(summed, {"deviations of the sum in half the modulus": "wrap_k"})
        title, level = "Headroom in the modulus", ("planned", run.header.plan.signal_multiple)
        yield Chart("headroom", title, _rounds(summed), lines, number, level=level)
    if run.header.clip is not None:
        lines = _lines(run.records, {"clip": "clip"})
        yield Chart("clip", "The clip", _rounds(run.records), lines, number, log=True)
        lines = _lines(run.records, {"share of clients, with noise": "clipped"})
        aim = ("aim", 1 - run.header.clip.target)
        yield Chart(
            "clipped",
            "Clients that the clip touched",
            _rounds(run.records),
            lines,
            percent,
            tick=percent_tick,
            level=aim,
        )


def rounds_table(run: Run) -> Markup:
    """Return every number of every round."""
    measured = tuple(
        (f"{split} {name}", f"{split}_{name}", measure_text(name))
        for name in measures(run)
        for split in _SPLITS
    )
    columns = (*measured, *_COLUMNS, *(_CLIP if run.header.clip is not None else ()))
    names = ("round", *(name for name, _, _ in columns))
    head = tag("tr", *(tag("th", name, scope="col") for name in names))
    rows = (tag("tr", *_cells(record, columns)) for record in run.records)
    table = tag("table", tag("thead", head), tag("tbody", *rows))
    inside = tag("div", table, class_="scroll", tabindex=0)
    return tag("details", tag("summary", "Every round as a table"), inside)


def _cells(record: Record, columns: Iterable[Column]) -> Iterator[Markup]:
    yield tag("th", str(record.round + 1), scope="row")
    shown = record.as_dict()
    for _, name, text in columns:
        yield tag("td", text(shown.get(name)))


def _rounds(records: Sequence[Record]) -> tuple[int, ...]:
    return tuple(r.round + 1 for r in records)


def _lines(records: Sequence[Record], names: Mapping[str, str]) -> tuple[Line, ...]:
    shown = [record.as_dict() for record in records]
    lines = (Line(name, tuple(r.get(field) for r in shown)) for name, field in names.items())
    return tuple(line for line in lines if any(x is not None for x in line.values))


def sections(run: Run) -> Iterator[Markup]:
    """Yield the sections that ``run`` has something for."""
    if run.guarantees is not None:
        yield section("What is guaranteed, and to whom", *_guarantees(run))
    if run.header.aggregate != "non_private":
        yield section("What travels", *_travel(run))
        yield section("The plan, explained", _explanation(run))
    if run.ledger is not None:
        yield section("The ledger", *_ledger(run))
    yield section("How to repeat it", *_repeat(run))


def warnings(run: Run) -> Iterator[Markup]:
    """Yield, in the reader's face, why the run guarantees nothing, if it does not."""
    if not run.header.private:
        yield warning("This run was not private: updates were summed without noise.")
    elif run.header.replayable:
        yield warning(
            "There is no guarantee: the noise came from a seed, and whoever knows the seed can "
            "take it off again."
        )
    elif run.ledger is None:
        yield warning(
            "No guarantee is shown: the ledger is kept elsewhere. Pass its path to report.write."
        )
    done = {
        "unmasked": "messages were summed without masks",
        "trusted_sum": "a trusted server summed the updates and drew all noise at once",
    }.get(run.header.aggregate)
    if done and run.header.plan.noise.distributed:
        yield tag(
            "p",
            f"A simulation: {done}. What is said against servers holds for the same plan "
            "with masks.",
            class_="note",
            role="note",
        )


def _guarantees(run: Run) -> Iterator[Markup]:
    found = run.guarantees
    if found is None:
        return
    titles = (
        "The public",
        "The server, for every client",
        "The server, for the mean client",
    )
    sees = (
        "Whoever sees the releases and not who took part.",
        "Whoever also sees who took part; no client takes part more often than it says.",
        "The same, on average: many clients take part more often, and this is no bound for them.",
    )
    if isinstance(found, TwoServerGuarantees):
        titles = ("The public", "The leader", "The helper")
        sees = (
            "Whoever sees the releases and not who took part.",
            "The server that trains: it sees who took part, and knows its own noise.",
            "The second server: it sees who took part, and knows its own noise and the masks.",
        )
    common = [
        line for line in found.public.assumptions if all(line in g.assumptions for g in found)
    ]
    cards = (_card(*each, common) for each in zip(titles, sees, found, strict=True))
    yield tag("div", *cards, class_="cards")
    yield tag("p", "All of them assume that")
    yield bullets(common)


def _card(title: str, sees: str, guarantee: Guarantee, common: list[str]) -> Markup:
    said = (
        f"({bound(guarantee.epsilon, 4)}, {bound(guarantee.delta, 4)})-differential privacy for "
        f"one {guarantee.unit} ({guarantee.adjacency}; accountant: {guarantee.accountant})."
    )
    own = [line for line in guarantee.assumptions if line not in common]
    more = (tag("p", "It assumes that"), bullets(own)) if own else ()
    return tag("div", tag("h3", title), tag("p", sees, class_="mute"), tag("p", said), *more)


def _travel(run: Run) -> Iterator[Markup]:
    plan = run.header.plan
    sent, floats = plan.bytes_per_client, 4 * plan.dimension
    rows = [
        ("a client sends in a round", size(sent), "packed residues, without keys and shares"),
        ("in bits a parameter", number(8 * sent / plan.dimension), f"{plan.bits} bits a residue"),
        ("against 32-bit floats", f"{sent / floats:.1%}", f"of {size(floats)}"),
        ("a round, on average", size(sent * plan.invited), f"{plan.invited:,} messages"),
    ]
    if not plan.noise.continuous:
        yield table(rows)
    summed = [r for r in run.records if r.wrap_k is not None]
    if summed:
        yield tag("p", _headroom(summed, plan.signal_multiple))


def _headroom(summed: list[Record], planned: float) -> str:
    tightest = min(summed, key=lambda r: r.wrap_k or 0.0)
    return (
        f"Wrap-around: half of the modulus was planned to hold {planned:g} standard deviations of "
        f"the sum, and held {number(tightest.wrap_k)} in the tightest round "
        f"({tightest.round + 1}), where a coordinate wraps with a chance of about "
        f"{chance(tightest.wrap_probability)}. This is read off the released sums themselves."
    )


def _explanation(run: Run) -> Markup:
    lines = run.header.plan.explain().lines
    if run.guarantees is None:
        lines = tuple(line for line in lines if not line.name.startswith("epsilon"))
    return table((line.name, line.value, line.why) for line in lines)


def _ledger(run: Run) -> Iterator[Markup]:
    if run.ledger is None:
        return
    account = run.ledger.account
    budget = f"at δ = {bound(account.budget.delta)}, fixed before the first release"
    written = "each written down before its release was made"
    yield table(
        [
            ("budget", f"ε = {number(account.budget.epsilon)}", budget),
            ("spends", str(len(account.spends)), written),
        ]
    )
    yield tag("p", "Digest of its last line, which binds all lines before it:")
    yield tag("pre", run.ledger.digest)


def _repeat(run: Run) -> Iterator[Markup]:
    header = run.header
    settings = [
        ("task", header.task),
        ("a client's training", header.training),
        ("server", header.server),
        ("aggregation", header.aggregate),
        ("accounted for", header.population),
        ("plan, SHA-256", header.plan.digest.hex()),
    ]
    if header.clip is not None:
        settings.append(("clip at first", repr(header.clip)))
    yield table((name, value, "") for name, value in settings)
    yield tag("p", "Save the plan below as plan.json, then, with the task's data as task:")
    yield tag("pre", _program(run))
    yield tag("details", tag("summary", "plan.json"), tag("pre", header.plan.to_json(), tabindex=0))
    if not header.replayable:
        yield tag("p", "The noise is secret and drawn anew: curves will agree, digits will not.")


def _program(run: Run) -> str:
    clip = run.header.clip
    moving = "" if clip is None else f"    clip=fl.{clip!r},\n"
    return f"""import skellam as sk
from skellam import federated as fl, report

plan = sk.Plan.load("plan.json")
fl.train(
    task,
    plan,
    aggregate=fl.{run.header.aggregate}(),
    server=fl.{run.header.server},
{moving}    entropy=sk.SystemEntropy(),
    folder="again",
)
report.write("again")"""
