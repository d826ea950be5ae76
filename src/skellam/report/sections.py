"""Sections on what the numbers depend on: guarantees, plan, bytes, headroom, ledger, commands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from skellam.accounting.guarantee import Guarantee
from skellam.federated.history import Record
from skellam.plan import TwoServerGuarantees
from skellam.report.markup import Markup, bound, chance, join, number, size, tag
from skellam.report.run import Run


def all_of(run: Run) -> Iterator[Markup]:
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
    yield _list(common)


def _card(title: str, sees: str, guarantee: Guarantee, common: list[str]) -> Markup:
    said = (
        f"({bound(guarantee.epsilon, 4)}, {bound(guarantee.delta, 4)})-differential privacy for "
        f"one {guarantee.unit} ({guarantee.adjacency}; accountant: {guarantee.accountant})."
    )
    own = [line for line in guarantee.assumptions if line not in common]
    more = (tag("p", "It assumes that"), _list(own)) if own else ()
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


def section(title: str, *content: Markup) -> Markup:
    """Return content under a heading."""
    return tag("section", tag("h2", title), *content)


def warning(text: str) -> Markup:
    """Return a sentence that nobody overlooks."""
    return tag("p", tag("strong", text), class_="warning", role="note")


def _list(lines: Iterable[str]) -> Markup:
    return tag("ul", *(tag("li", line) for line in lines))


def table(rows: Iterable[tuple[str, str, str]]) -> Markup:
    """Return rows of a name, a value, and why it is so."""
    lines = (
        tag("tr", tag("th", name, scope="row"), tag("td", value), tag("td", why, class_="mute"))
        for name, value, why in rows
    )
    return tag("div", tag("table", tag("tbody", join(lines))), class_="scroll", tabindex=0)
