"""A run as it goes, on the operator's terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from skellam.accounting.guarantee import rounded_up
from skellam.federated.history import Record

if TYPE_CHECKING:
    from rich.console import Console

    from skellam.federated.training import Watch


@contextmanager
def progress(rounds: int, *, console: Console | None = None) -> Iterator[Watch]:
    """Yield what `train` takes as ``watch``: a bar with the rate, the measures and both epsilons.

    The rate tells the sizes of cohorts to whoever watches closely, so it stays on the terminal.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    text = TextColumn("{task.fields[rate]}  {task.fields[shown]}")
    columns = (TextColumn("round"), MofNCompleteColumn(), BarColumn(bar_width=20), text)
    with Progress(*columns, console=console) as bar:
        job = bar.add_task("train", total=rounds, rate="", shown="")

        def watch(record: Record) -> None:
            bar.update(job, completed=record.round + 1)
            speed = bar.tasks[0].speed
            shown = describe(record) or bar.tasks[0].fields["shown"]
            bar.update(job, rate=f"{speed:.2g}/s" if speed else "", shown=shown)

        yield watch


def describe(record: Record) -> str:
    """Return what a record shows, in few words; nothing if it was not measured."""
    if record.test_accuracy is None:
        return ""
    parts = [f"accuracy {record.test_accuracy:.1%}"]
    if record.test_loss is not None:
        parts.append(f"loss {record.test_loss:.3f}")
    if record.epsilon_public is not None:
        parts.append(f"ε {rounded_up(record.epsilon_public)} public")
    if record.epsilon_server is not None:
        parts.append(f"{rounded_up(record.epsilon_server)} server")
    return ", ".join(parts)
