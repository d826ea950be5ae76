"""Drawing by lazy inversion: the first bits of a 128-bit uniform, and more only where it matters.

The bits are taken from the entropy in this order for every span of 2**20 draws: one word each
(16 bits, or 32 for tables with a longer prefix); then 64 bits for each draw that its prefix leaves
undecided, of which those beyond the word's extend it to 64 bits; then 64 bits for each of these
that equals the high half of a step. So a draw depends on the entropy alone, whichever back end
does the arithmetic. Time and memory access depend on the draw: this is not constant-time code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skellam import _kernels
from skellam.entropy import Entropy
from skellam.noise._table import Table

_SPAN = 1 << 20
_BLOCK = 1 << 16
"""Words of one block, and what is looked up by them, stay in the second-level cache."""


def draw_into(out: NDArray[Any], table: Table, *, entropy: Entropy) -> None:
    """Overwrite ``out`` (one-dimensional, wide enough for the table's bound) with draws."""
    for start in range(0, len(out), _SPAN):
        _draw_span(out[start : start + _SPAN], table, entropy)


def _draw_span(out: NDArray[Any], table: Table, entropy: Entropy) -> None:
    words = np.empty(min(_BLOCK, len(out)), np.uint16 if table.prefix_bits == 16 else np.uint32)
    direct = out.dtype == table.cells.dtype and out.flags.c_contiguous
    narrow = out if direct else np.empty(len(words), dtype=table.cells.dtype)
    places, kept = [], []
    for start in range(0, len(out), _BLOCK):
        part = out[start : start + _BLOCK]
        first = words[: len(part)]
        entropy.fill(first)
        target = part if direct else narrow[: len(part)]
        undecided = _kernels.look_up(table.cells, first, target)
        if not direct:
            part[:] = target
        places.append(undecided + start)
        kept.append(first[undecided])
    _decide(out, np.concatenate(places), np.concatenate(kept), table, entropy)


def _decide(
    out: NDArray[Any],
    places: NDArray[np.int64],
    words: NDArray[Any],
    table: Table,
    entropy: Entropy,
) -> None:
    if places.size:
        more = np.empty(len(places), dtype=np.uint64)
        entropy.fill(more)
        out[places] = _settle(extend(words, more), table, entropy)


def extend(words: NDArray[Any], more: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return 64-bit uniforms that begin with ``words`` and go on with the start of ``more``."""
    width = np.uint64(8 * words.itemsize)
    taken = words.astype(np.uint64) << (np.uint64(64) - width)
    return taken | more >> width


def _settle(uniform: NDArray[np.uint64], table: Table, entropy: Entropy) -> NDArray[np.int32]:
    """Return the draws for uniforms whose first 64 bits these are: in cells that have a step."""
    below, step = _steps_below(uniform, table)
    tied = np.flatnonzero(step == uniform)
    if tied.size:
        rest = np.empty(len(tied), dtype=np.uint64)
        entropy.fill(rest)
        below[tied] = _break_ties(below[tied], uniform[tied], rest, table)
    return below - table.bound


def _steps_below(
    uniform: NDArray[np.uint64], table: Table
) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
    """Return how many high halves are smaller than each of ``uniform``, and the next one.

    Past the last step the next one is the last, which is smaller. Most cells have one step.
    """
    high = table.high
    first = table.first.take((uniform >> np.uint64(64 - table.prefix_bits)).astype(np.intp))
    below = first + (high.take(first) < uniform)
    step = high.take(below, mode="clip")
    beyond = np.flatnonzero(step < uniform)
    below[beyond] = np.searchsorted(high, uniform[beyond])
    step[beyond] = high.take(below[beyond], mode="clip")
    return below, step


def _break_ties(
    first: NDArray[np.int32],
    uniform: NDArray[np.uint64],
    rest: NDArray[np.uint64],
    table: Table,
) -> NDArray[np.int64]:
    """Return how many steps lie at or below ``2**64 uniform + rest``, one by one: ties are rare."""
    ends = np.searchsorted(table.high, uniform, side="right")
    runs = zip(first.tolist(), ends.tolist(), rest, strict=True)
    counts = [a + int(np.searchsorted(table.low[a:b], low, side="right")) for a, b, low in runs]
    return np.array(counts, dtype=np.int64)
