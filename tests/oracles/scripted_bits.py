"""Lazy inversion bit by bit: which bits of a 128-bit uniform are asked for, and in what order."""

from bisect import bisect_left, bisect_right

import numpy as np

FULL = 1 << 128


class ScriptedEntropy:
    """Hands out prepared arrays, and insists on the sizes that were foreseen."""

    replayable = True

    def __init__(self, script: list[np.ndarray]) -> None:
        self.script = list(script)

    def fill(self, buffer: np.ndarray) -> None:
        foreseen = self.script.pop(0)
        assert (buffer.dtype, buffer.shape) == (foreseen.dtype, foreseen.shape)
        buffer[:] = foreseen


def steps(table) -> list[int]:
    return [(h << 64) | low for h, low in zip(table.high.tolist(), table.low.tolist(), strict=True)]


def entropy_for(uniforms: list[int], table) -> ScriptedEntropy:
    """Return the entropy from which one block of draws takes exactly ``uniforms``."""
    C = steps(table)
    width = 16 if table.prefix_bits == 16 else 32
    words = [u >> (128 - width) for u in uniforms]
    undecided = [u for u in uniforms if _reaches(C, u, table.prefix_bits)]
    tied = [u for u in undecided if _reaches(C, u, 64)]
    script = [
        np.array(words, dtype=np.uint16 if width == 16 else np.uint32),
        np.array([(u >> 64 - width) % (1 << 64) for u in undecided], dtype=np.uint64),
        np.array([u % (1 << 64) for u in tied], dtype=np.uint64),
    ]
    return ScriptedEntropy([part for part in script if part.size])


def _reaches(C: list[int], u: int, bits: int) -> bool:
    """Whether a step lies among the numbers that share their first ``bits`` bits with ``u``."""
    size = 1 << (128 - bits)
    first = u - u % size
    return bisect_left(C, first) < bisect_right(C, first + size - 1)
