"""How rivals are timed and shown: side by side in one process, as ratios against a limit."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

from rich.console import Console
from rich.table import Table

ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Timing:
    """Least seconds of each rival in each round."""

    rounds: tuple[Mapping[str, float], ...]

    def least(self, name: str) -> float:
        """Return the least seconds of ``name``."""
        return min(each[name] for each in self.rounds)

    def ratio(self, slower: str, faster: str) -> float:
        """Return how many times longer ``slower`` takes: the median over the rounds."""
        return median(each[slower] / each[faster] for each in self.rounds)


def interleave(rivals: Mapping[str, Callable[[], object]], *, repeats: int = 5) -> Timing:
    """Time the rivals in turn: in each round the least CPU time of this thread over ``repeats``.

    A rival repeats at once, so that none suffers from the caches that another left behind.
    """
    return Timing(
        tuple(
            {name: min(_cpu_seconds(run) for _ in range(repeats)) for name, run in rivals.items()}
            for _ in range(ROUNDS)
        )
    )


class Report:
    """A table of measurements; each row may have a ratio and the limit that it must keep.

    ``peers`` names the columns that are about what is measured beside ours.
    """

    made: ClassVar[list[Report]] = []
    """All that were made in this process, in their order."""

    def __init__(self, title: str, *columns: str, peers: Sequence[str] = ()) -> None:
        Report.made.append(self)
        self.title, self.lines = title, list[str]()
        self._columns, self._peers = columns, peers
        self._table = Table(title=title, title_justify="left")
        self._table.add_column(columns[0])
        for column in (*columns[1:], "ratio", "limit", ""):
            self._table.add_column(column, justify="right")

    def row(
        self,
        *cells: str,
        ratio: float | None = None,
        floor: float | None = None,
        ceiling: float | None = None,
    ) -> None:
        """Add a row; ``floor`` and ``ceiling`` are the limits of ``ratio``."""
        shown, limit, mark = "", "", ""
        if ratio is not None:
            shown = f"{ratio:.3g}x"
            holds = (floor is None or ratio >= floor) and (ceiling is None or ratio <= ceiling)
            limit = f">= {floor:g}x" if floor else f"<= {ceiling:g}x" if ceiling else ""
            mark = ("[green]✓[/]" if holds else "[red]✗[/]") if limit else ""
        self._table.add_row(*cells, shown, limit, mark)
        ours, theirs = list[str](), list[str]()
        for name, cell in zip(self._columns[1:], cells[1:], strict=True):
            if cell:
                shown_cell = cell if name == "peer" else f"{name} {cell}"
                (theirs if name in self._peers else ours).append(shown_cell)
        missed = " (missed)" if "red" in mark else ""
        parts = (cells[0], ", ".join(ours), ", ".join(theirs), shown, limit + missed)
        self.lines.append(" | ".join(parts))

    def print(self) -> None:
        """Show the table."""
        Console(width=None if Console().is_terminal else 120).print(self._table)


def _cpu_seconds(run: Callable[[], object]) -> float:
    gc.disable()
    try:
        start = time.thread_time()
        run()
        return time.thread_time() - start
    finally:
        gc.enable()
