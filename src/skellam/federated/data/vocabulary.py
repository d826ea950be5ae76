"""Text as numbers: 0 is padding, then the tokens, then unknown, begin and end."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.errors import DomainError
from skellam.federated.data.clients import ClientData, Examples, Texts

PAD = 0


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A closed list of tokens; with its four marks it has ``size`` numbers."""

    tokens: tuple[str, ...]
    _numbers: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        numbers = {token: number for number, token in enumerate(self.tokens, start=1)}
        if not 0 < len(numbers) == len(self.tokens):
            raise DomainError("a vocabulary needs tokens, each of them once")
        object.__setattr__(self, "_numbers", numbers)

    @property
    def unknown(self) -> int:
        """The number of every token that is not in the list."""
        return len(self.tokens) + 1

    @property
    def begin(self) -> int:
        """The mark before a text."""
        return len(self.tokens) + 2

    @property
    def end(self) -> int:
        """The mark after a text."""
        return len(self.tokens) + 3

    @property
    def size(self) -> int:
        """The tokens and the four marks."""
        return len(self.tokens) + 4

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Return begin, the numbers of ``tokens``, end."""
        return [self.begin, *(self._numbers.get(t, self.unknown) for t in tokens), self.end]


CHARACTERS = Vocabulary(
    tuple(sorted(string.ascii_letters + string.digits + " \n\r!\"#$%&'()*,-./:;?@[]_"))
)
"""The 86 characters of the paper's Shakespeare task, 90 numbers with the marks."""


def common_words(texts: Iterable[Sequence[str]], count: int) -> Vocabulary:
    """Return the ``count`` commonest words of ``texts``, ties in alphabetical order.

    The list is released with the model: count public texts, never the clients' own.
    """
    _checks.integer("count", count, 1)
    counts = Counter(word for pieces in texts for piece in pieces for word in piece.split())
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return Vocabulary(tuple(ranked[:count]))


def next_characters(texts: Texts, *, length: int = 80) -> ClientData:
    """Return windows of ``length`` characters and, for each, the one after it: a target once."""
    _checks.integer("length", length, 1)

    def examples(pieces: tuple[str, ...]) -> Examples:
        rows = [
            encoded[start : start + length + 1]
            for encoded in map(CHARACTERS.encode, pieces)
            for start in range(0, len(encoded) - 1, length)
        ]
        return _shifted(rows, length + 1)

    return texts.map(examples)


def next_words(texts: Texts, vocabulary: Vocabulary, *, length: int = 20) -> ClientData:
    """Return the first ``length`` words of every sentence and, for each, the word after it."""
    _checks.integer("length", length, 1)

    def examples(pieces: tuple[str, ...]) -> Examples:
        rows = [vocabulary.encode(piece.split())[: length + 1] for piece in pieces]
        return _shifted(rows, length + 1)

    return texts.map(examples)


def from_windows(windows: Sequence[str], following: Sequence[str]) -> Examples:
    """Return the examples of LEAF: a window of characters, and the character that follows it."""
    rows = [
        CHARACTERS.encode(window + after)[1:-1]
        for window, after in zip(windows, following, strict=True)
    ]
    return _shifted(rows, max(map(len, rows), default=2))


def _shifted(rows: list[list[int]], width: int) -> Examples:
    padded: NDArray[np.int64] = np.full((len(rows), width), PAD, dtype=np.int64)
    for row, numbers in zip(padded, rows, strict=True):
        row[: len(numbers)] = numbers
    return Examples(padded[:, :-1], padded[:, 1:])
