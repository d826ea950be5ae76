"""Monitoring: a run as it goes, on the operator's terminal and in TensorBoard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from skellam.accounting.guarantee import rounded_up
from skellam.engines import durable
from skellam.federated.history import Record

if TYPE_CHECKING:
    from rich.console import Console

Watch: TypeAlias = Callable[[Record], object]


@contextmanager
def progress(rounds: int, *, console: Console | None = None) -> Iterator[Watch]:
    """Yield what `train` takes as ``watch``: a bar with the speed, the measures and both epsilons.

    The speed tells the sizes of cohorts to whoever watches closely, so it stays on the terminal.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    text = TextColumn("{task.fields[speed]}  {task.fields[shown]}{task.fields[skipped]}")
    columns = (TextColumn("round"), MofNCompleteColumn(), BarColumn(bar_width=20), text)
    bar = Progress(*columns, console=console)
    job = bar.add_task("train", total=rounds, speed="", skipped="", shown="")
    skipped = 0

    def watch(record: Record) -> None:
        nonlocal skipped
        bar.start()
        skipped += record.skipped is not None
        bar.update(job, completed=record.round + 1)
        speed = bar.tasks[0].speed
        shown = describe(record) or bar.tasks[0].fields["shown"]
        lost = f", {skipped} rounds skipped" if skipped else ""
        bar.update(job, skipped=lost, speed=f"{speed:.2g}/s" if speed else "", shown=shown)

    if bar.console.is_terminal:
        bar.start()
    try:
        yield watch
    finally:
        bar.live.transient = not bar.tasks[0].completed  # nothing is left of a run that never began
        if bar.live.is_started:
            bar.stop()


def describe(record: Record) -> str:
    """Return what a record shows, in few words; nothing if it was not measured."""
    measures = record.test or record.validation
    parts = [f"{name} {measure_text(name, measures[name])}" for name in sorted(measures)]
    if parts and record.epsilon_public is not None:
        parts.append(f"ε {rounded_up(record.epsilon_public)} public")
    if parts and record.epsilon_server is not None:
        parts.append(f"{rounded_up(record.epsilon_server)} server")
    return ", ".join(parts)


def measure_text(name: str, value: float | None) -> str:
    """Return a measure as people write it: accuracies in per cent."""
    if value is None:
        return "not finite"
    return f"{value:.1%}" if name == "accuracy" else f"{value:.3g}"


@contextmanager
def events(folder: Path, *, start: int) -> Iterator[Watch]:
    """Yield what writes a record's numbers to ``folder``, from round ``start`` on.

    Later events that are there already, from before a kill, no longer count. An event's time is its
    round's number: how long a round took would tell the size of its cohort. Without tensorboard
    nothing is written.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        yield lambda _: None
        return
    with durable.explained(folder):
        writer = SummaryWriter(str(folder), purge_step=start)

    def write(record: Record) -> None:
        with durable.explained(folder):
            for name, value in record.as_dict().items():
                if isinstance(value, float):
                    writer.add_scalar(name, value, record.round, walltime=float(record.round))

    try:
        yield write
    finally:
        with durable.explained(folder):
            writer.close()
