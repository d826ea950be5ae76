"""Drawing by lazy inversion: the first bits of a 128-bit uniform, and more only where it matters.

The bits are taken from the entropy in this order for every block of 131,072 draws: one word each
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

_BLOCK = 1 << 17


def draw_into(out: NDArray[Any], table: Table, *, entropy: Entropy) -> None:
    """Overwrite ``out`` (one-dimensional, wide enough for the table's bound) with draws."""
    block = min(_BLOCK, len(out))
    words = np.empty(block, dtype=np.uint16 if table.prefix_bits == 16 else np.uint32)
    direct = out.dtype == table.cells.dtype and out.flags.c_contiguous
    scratch = None if direct else np.empty(block, dtype=table.cells.dtype)
    for start in range(0, len(out), _BLOCK):
        part = out[start : start + _BLOCK]
        target = part if scratch is None else scratch[: len(part)]
        _draw_block(target, words[: len(part)], table, entropy)
        if target is not part:
            part[:] = target


def _draw_block(out: NDArray[Any], words: NDArray[Any], table: Table, entropy: Entropy) -> None:
    entropy.fill(words)
    undecided = _kernels.look_up(table.cells, words, out)
    if undecided.size:
        more = np.empty(len(undecided), dtype=np.uint64)
        entropy.fill(more)
        out[undecided] = _settle(extend(words[undecided], more), table, entropy)


def extend(words: NDArray[Any], more: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return 64-bit uniforms that begin with ``words`` and go on with the start of ``more``."""
    width = np.uint64(8 * words.itemsize)
    taken = words.astype(np.uint64) << (np.uint64(64) - width)
    return taken | more >> width


def _settle(uniform: NDArray[np.uint64], table: Table, entropy: Entropy) -> NDArray[np.int64]:
    below = np.searchsorted(table.high, uniform)
    if not below.size or not table.high.size:
        return below - table.bound
    at = np.minimum(below, len(table.high) - 1)
    tied = np.flatnonzero(table.high[at] == uniform)
    if tied.size:
        rest = np.empty(len(tied), dtype=np.uint64)
        entropy.fill(rest)
        below[tied] = _break_ties(below[tied], uniform[tied], rest, table)
    return below - table.bound


def _break_ties(
    first: NDArray[np.int64],
    uniform: NDArray[np.uint64],
    rest: NDArray[np.uint64],
    table: Table,
) -> NDArray[np.int64]:
    """Return how many steps lie at or below ``2**64 uniform + rest``, one by one: ties are rare."""
    ends = np.searchsorted(table.high, uniform, side="right")
    runs = zip(first.tolist(), ends.tolist(), rest, strict=True)
    counts = [a + int(np.searchsorted(table.low[a:b], low, side="right")) for a, b, low in runs]
    return np.array(counts, dtype=np.int64)
