"""Text as numbers: 0 is padding, then the tokens, then unknown, begin and end; and its loss."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from skellam import _checks
from skellam.errors import DomainError
from skellam.federated.data.examples import ClientData, Clients, Examples

Texts: TypeAlias = Clients[tuple[str, ...]]
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
        _checks.assign(self, _numbers=numbers)

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
    """Return windows of ``length`` characters and, for each, the one after it.

    As in TensorFlow Federated, a text is cut into pieces of ``length + 1``: none overlap, and what
    a piece begins with is no target.
    """
    _checks.integer("length", length, 1)

    def examples(pieces: tuple[str, ...]) -> Examples:
        rows = [
            encoded[start : start + length + 1]
            for encoded in map(CHARACTERS.encode, pieces)
            for start in range(0, len(encoded) - 1, length + 1)
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


@dataclass(frozen=True, slots=True)
class NextToken:
    """Loss and measures of a model that names the next token, from logits (batch, time, token).

    Padding is neither learnt nor measured; ``unmeasured`` tokens are learnt, but the accuracy does
    not ask for them. They are answers all the same, as in TensorFlow Federated: a model that names
    one of them is wrong.
    """

    unmeasured: tuple[int, ...] = ()

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the mean over all targets but padding."""
        return cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=PAD)

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of every target but padding."""
        flat, wanted = logits.flatten(0, -2), targets.flatten()
        return cross_entropy(flat, wanted, reduction="none")[wanted != PAD]

    def accuracy(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return for every measured target whether it has the largest of the logits."""
        flat, wanted = logits.flatten(0, -2), targets.flatten()
        marks = torch.tensor([PAD, *self.unmeasured], device=flat.device)
        return (flat.argmax(1) == wanted).float()[~torch.isin(wanted, marks)]

    def measured(self, targets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the targets that the accuracy is over."""
        return targets[~np.isin(targets, [PAD, *self.unmeasured])]
