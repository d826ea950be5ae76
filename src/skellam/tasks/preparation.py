"""Preparation of data sets: where their files are, who holds what, and pixels and text as numbers.

Every division among clients, and of clients among training, validation and test, is a public
function of a public seed: it says who holds what in an experiment, and protects nobody. In text
0 is padding, then come the tokens, then unknown, begin and end.
"""

from __future__ import annotations

import os
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from skellam import _checks
from skellam.entropy import SeededEntropy
from skellam.errors import DataError, DomainError
from skellam.federated.data.examples import ClientData, Clients, Examples, T

Rows = NDArray[np.intp]
Location: TypeAlias = str | PathLike[str] | None
"""A file, a folder that holds it, or nothing: then the folder that SKELLAM_DATA names."""
_VARIABLE = "SKELLAM_DATA"
_PUBLIC_SEED = bytes(32)
_SIDE = 28


@dataclass(frozen=True, slots=True)
class Source:
    """A data set that users fetch themselves: the names of its files, and where they come from."""

    name: str
    files: tuple[str, ...]
    origin: str
    leaf: bool = False
    """Whether LEAF has it too, as a folder of ``all_data_*.json``."""


def locate(source: Source, path: Location) -> Path:
    """Return the file of ``source``: at ``path`` (a file, or a folder that holds it), or in the
    folder that the variable SKELLAM_DATA names; raise `DataError` that says how to get it.
    """
    start = path if path is not None else os.environ.get(_VARIABLE)
    if start is not None:
        for candidate in (Path(start), *(Path(start, name) for name in source.files)):
            if candidate.is_file():
                return candidate
        if source.leaf and [*Path(start).glob("all_data*.json")]:
            return Path(start)
    looked = "no path was given" if start is None else f"it is not at {os.fspath(start)}"
    raise DataError(
        f"the data set {source.name!r} is not here ({looked}): get {' or '.join(source.files)} "
        f"from {source.origin}, and pass its path, or put it into a folder and set "
        f"{_VARIABLE} to that folder"
    )


@dataclass(frozen=True, slots=True, eq=False)
class Splits:
    """Clients to train on, to choose hyperparameters by, and to report on.

    Targets are numbers below ``classes``.
    """

    train: ClientData
    validation: ClientData | None
    test: ClientData
    classes: int = field(kw_only=True)


def shuffled(count: int, context: str) -> Rows:
    """Return a public random order of ``count`` things, another one for every ``context``."""
    keys = np.empty(count, dtype=np.uint64)
    SeededEntropy(_PUBLIC_SEED, context).fill(keys)
    return np.argsort(keys, kind="stable")


def divided(
    clients: Clients[T], context: str, *, validation: float, test: float
) -> tuple[Clients[T], Clients[T], Clients[T]]:
    """Return three groups of clients (train, validation, test) that share nobody."""
    count = len(clients)
    held, kept = round(count * validation), round(count * test)
    if not (held >= 1 and kept >= 1 and held + kept < count):
        raise DomainError(f"{count} clients are too few to be divided into three groups")
    ids = list(clients)
    order = [ids[index] for index in shuffled(count, context)]
    groups = order[held + kept :], order[:held], order[held : held + kept]
    train, chosen, tested = (clients.only(sorted(group)) for group in groups)
    return train, chosen, tested


def by_label(
    labels: NDArray[np.int64], *, clients: int, each: int, concentration: float, context: str
) -> list[Rows]:
    """Return for each client the rows of its ``each`` examples, no row twice.

    A client likes the classes by a Dirichlet law: a small ``concentration`` gives it few of them,
    a large one all alike.
    """
    _checks.integer("each", each, 1)
    _checks.integer("clients", clients, 1, len(labels) // each)
    liking = _likings(clients, int(labels.max()) + 1, concentration, context)
    coins = _uniform(clients * each, f"{context}/picks").reshape(clients, each)
    order = shuffled(len(labels), f"{context}/order")
    pools = [list(order[labels[order] == label]) for label in range(liking.shape[1])]
    return [
        np.array([_pick(weights, pools, uniform) for uniform in row])
        for weights, row in zip(liking, coins, strict=True)
    ]


def _pick(weights: NDArray[np.float64], pools: list[list[np.intp]], uniform: float) -> np.intp:
    open_weights = weights * [bool(pool) for pool in pools]
    if not open_weights.sum() > 0:
        open_weights = np.array([float(len(pool)) for pool in pools])
    steps = np.cumsum(open_weights)
    label = int(np.searchsorted(steps, uniform * steps[-1], side="right"))
    return pools[min(label, len(pools) - 1)].pop()


def _likings(count: int, classes: int, concentration: float, context: str) -> NDArray[np.float64]:
    """Return weights that are Dirichlet once each row is divided by its sum: gammas."""
    from scipy.special import gammaincinv

    shape = _checks.positive("concentration", concentration)
    coins = _uniform(count * classes, f"{context}/liking")
    gammas = np.asarray(gammaincinv(shape, coins), dtype=np.float64)
    return gammas.reshape(count, classes) + 1e-300


def _uniform(count: int, context: str) -> NDArray[np.float64]:
    bits = np.empty(count, dtype=np.uint64)
    SeededEntropy(_PUBLIC_SEED, context).fill(bits)
    return ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def grouped(owners: NDArray[np.intp], names: Mapping[int, str]) -> dict[str, Rows]:
    """Return for each name the rows that belong to it."""
    order = np.argsort(owners, kind="stable")
    values, starts = np.unique(owners[order], return_index=True)
    parts = np.split(order, starts[1:])
    return {names[int(value)]: rows for value, rows in zip(values, parts, strict=True)}


def from_background(pixels: ArrayLike, labels: ArrayLike, *, classes: int, where: str) -> Examples:
    """Return examples from pixels in which 1 is the background and 0 is ink, and stays so."""
    values = _array(pixels, where)
    checked = from_ink(1 - values, labels, classes=classes, where=where)
    return Examples(values.reshape(checked.inputs.shape), checked.targets)


def from_ink(pixels: ArrayLike, labels: ArrayLike, *, classes: int, where: str) -> Examples:
    """Return examples from pixels in which 0 is the background and 1 is ink."""
    values, targets = _array(pixels, where), np.asarray(labels).reshape(-1)
    if values.size != targets.size * _SIDE * _SIDE:
        raise DataError(f"{where}: {values.shape} pixels do not go with {targets.size} labels")
    if not (values.size and np.all((values >= 0) & (values <= 1))):
        raise DataError(f"{where}: pixels must lie in [0, 1], and there must be some")
    if not float(values.mean()) <= 0.5:
        raise DataError(f"{where}: more ink than background; are the two swapped?")
    if targets.dtype.kind not in "iu" or not np.all((targets >= 0) & (targets < classes)):
        raise DataError(f"{where}: labels must be integers from 0 to {classes - 1}")
    return Examples(values.reshape(-1, _SIDE, _SIDE), targets)


def _array(pixels: ArrayLike, where: str) -> NDArray[np.float32]:
    try:
        return np.asarray(pixels, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where}: pixels must be numbers: {error}") from error


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
