"""A run for TensorBoard: event files beside the history, where tensorboard is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from skellam.federated.history import Record


@contextmanager
def events(folder: Path, *, start: int) -> Iterator[Callable[[Record], None]]:
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
    with SummaryWriter(str(folder), purge_step=start) as writer:

        def write(record: Record) -> None:
            for name, value in asdict(record).items():
                if isinstance(value, float):
                    writer.add_scalar(name, value, record.round, walltime=float(record.round))

        yield write
