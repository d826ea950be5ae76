"""The paper's three data sets, in whichever file the user holds them.

Nothing is downloaded: TensorFlow Federated's, Hugging Face's and LEAF's files are read as they are.
"""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skellam.errors import DataError, MissingExtraError
from skellam.federated.data.examples import ClientData, Clients, Examples, T
from skellam.federated.data.files import Format, leaf, require_format, tff_features
from skellam.tasks.preparation import (
    CHARACTERS,
    Location,
    Source,
    Splits,
    Texts,
    Vocabulary,
    divided,
    from_background,
    from_windows,
    locate,
    next_characters,
    next_words,
)

EMNIST = Source(
    "emnist",
    ("fed_emnist_train.h5", "emnist_all.sqlite", "femnist.parquet", "femnist.json"),
    "TensorFlow Federated (tff.simulation.datasets.emnist keeps it in ~/.keras/datasets), "
    "Hugging Face (flwrlabs/femnist) or LEAF (leaf.cmu.edu)",
    leaf=True,
)
SHAKESPEARE = Source(
    "shakespeare",
    ("shakespeare_train.h5", "shakespeare.sqlite", "shakespeare.csv", "shakespeare.json"),
    "TensorFlow Federated (tff.simulation.datasets.shakespeare keeps it in ~/.keras/datasets), "
    "Hugging Face (flwrlabs/shakespeare) or LEAF (leaf.cmu.edu)",
    leaf=True,
)
STACKOVERFLOW = Source(
    "stackoverflow",
    ("stackoverflow_train.h5", "stackoverflow.sqlite"),
    "TensorFlow Federated (tff.simulation.datasets.stackoverflow keeps it in ~/.keras/datasets)",
)
WORD_COUNT = Source(
    "stackoverflow word counts",
    ("stackoverflow.word_count", "stackoverflow_word_count.json"),
    "TensorFlow Federated (stackoverflow.word_count.tar.bz2, unpacked: one JSON object)",
)


FIRST_SENTENCES = 256
"""Of a Stack Overflow user, as the paper has it: the others are never trained on."""


def emnist(path: Location = None, *, full_test: bool = False) -> Splits:
    """Return handwritten characters of 62 classes by writer; the background is 1, as in the files.

    TFF's files divide each writer's own images; the others are divided by writers. Half of TFF's
    test clients are for validation, unless the ``full_test`` is to be reported on.
    """
    file = locate(EMNIST, path)
    match _format(file, Format.HDF5, Format.SQLITE, Format.PARQUET, Format.JSON):
        case Format.HDF5:
            held_out = tff_images(_sibling(file, "test"))
            return Splits(tff_images(file), *_tested(held_out, full_test), classes=62)
        case Format.SQLITE:
            held_out = tff_images(file, split="all_test")
            tested = _tested(held_out, full_test)
            return Splits(tff_images(file, split="all_train"), *tested, classes=62)
        case Format.PARQUET:
            writers = parquet_images(file)
        case _:
            writers = leaf_images(file)
    return Splits(*divided(writers, "emnist", validation=0.1, test=0.1), classes=62)


def shakespeare(path: Location = None, *, length: int = 80, full_test: bool = False) -> Splits:
    """Return the next characters of Shakespeare's roles; ``full_test`` as for `emnist`."""
    file = locate(SHAKESPEARE, path)
    match _format(file, Format.HDF5, Format.SQLITE, Format.TEXT, Format.JSON):
        case Format.HDF5:
            train = tff_texts(file, "snippets")
            held_out = tff_texts(_sibling(file, "test"), "snippets")
        case Format.SQLITE:
            train = tff_texts(file, "snippets", split="train")
            held_out = tff_texts(file, "snippets", split="test")
        case found:
            read = leaf_characters if found is Format.JSON else csv_characters
            roles = divided(read(file), "shakespeare", validation=0.1, test=0.1)
            return Splits(*roles, classes=CHARACTERS.size)
    validation, test = _tested(held_out, full_test)
    return Splits(
        next_characters(train, length=length),
        None if validation is None else next_characters(validation, length=length),
        next_characters(test, length=length),
        classes=CHARACTERS.size,
    )


def stackoverflow(path: Location = None, *, words: int = 10_000, length: int = 20) -> Splits:
    """Return the next words of Stack Overflow's users, over the public list of common words.

    Users train on their first `FIRST_SENTENCES`.
    """
    file = locate(STACKOVERFLOW, path)
    vocabulary = _counted_words(locate(WORD_COUNT, file.parent), words)
    match require_format(file, Format.HDF5, Format.SQLITE):
        case Format.HDF5:
            groups = [tff_texts(file, "tokens")]
            groups += [tff_texts(_sibling(file, s), "tokens") for s in ("held_out", "test")]
        case _:
            names = ("train", "heldout", "test")
            groups = [tff_texts(file, "tokens", split=name) for name in names]
    groups[0] = groups[0].map(lambda sentences: sentences[:FIRST_SENTENCES])
    words_after = (next_words(group, vocabulary, length=length) for group in groups)
    return Splits(*words_after, classes=vocabulary.size)


def tff_images(path: Path, *, split: str | None = None, classes: int = 62) -> ClientData:
    """Return handwritten characters: features ``pixels`` (1 is background) and ``label``."""
    features = tff_features(path, "pixels", "label", split=split)

    def load(client: str) -> Examples:
        pixels, labels = features[client]
        return from_background(pixels, labels, classes=classes, where=f"{path}, client {client}")

    return Clients(features, load)


def tff_texts(path: Path, feature: str, *, split: str | None = None) -> Texts:
    """Return the pieces of text that clients hold under ``feature``."""
    features = tff_features(path, feature, split=split)

    def load(client: str) -> tuple[str, ...]:
        (pieces,) = features[client]
        try:
            return tuple(p.decode() if isinstance(p, bytes) else p.item().decode() for p in pieces)
        except (AttributeError, UnicodeDecodeError) as error:
            raise DataError(f"{path}, client {client}: {feature!r} is not UTF-8 text") from error

    return Clients(features, load)


def leaf_images(path: Path, *, classes: int = 62) -> ClientData:
    """Return FEMNIST: x is 784 floats (1 is background), y a class."""
    return leaf(path, convert=lambda x, y, at: from_background(x, y, classes=classes, where=at))


def leaf_characters(path: Path) -> ClientData:
    """Return Shakespeare: x is a window of characters, y the next one."""

    def convert(windows: list[Any], following: list[Any], where: str) -> Examples:
        if not all(isinstance(piece, str) for piece in [*windows, *following]):
            raise DataError(f"{where}: x and y must be text")
        return from_windows(windows, following)

    return leaf(path, convert=convert)


def parquet_images(path: Path, *, classes: int = 62) -> ClientData:
    """Return FEMNIST: ``image`` (PNG, white is background), ``writer_id``, ``character``."""
    table = _table(path, "image", "writer_id", "character")
    rows: dict[str, list[int]] = defaultdict(list)
    for row, writer in enumerate(table["writer_id"]):
        rows[str(writer)].append(row)

    def load(writer: str) -> Examples:
        where = f"{path}, writer {writer}"
        pixels = np.stack([_pixels(table["image"][row], where) for row in rows[writer]])
        labels = np.array([table["character"][row] for row in rows[writer]])
        return from_background(pixels, labels, classes=classes, where=where)

    return Clients(sorted(rows), load)


def csv_characters(path: Path) -> ClientData:
    """Return Shakespeare: columns ``character_id``, ``x`` (a window) and ``y`` (what follows)."""
    require_format(path, Format.TEXT)
    held: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True)
            _require_columns(path, reader.fieldnames or (), "character_id", "x", "y")
            for row in reader:
                if None in row or None in row.values():
                    raise DataError(f"{path}, line {reader.line_num}: a wrong number of columns")
                windows, following = held[row["character_id"]]
                windows.append(row["x"])
                following.append(row["y"])
    except (OSError, csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{path} is damaged or truncated: {error}") from error
    return Clients(sorted(held), lambda client: from_windows(*held[client]))


def _table(path: Path, *columns: str) -> dict[str, list[Any]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise MissingExtraError("Parquet needs pyarrow: pip install 'skellam[data]'") from error
    require_format(path, Format.PARQUET)
    try:
        _require_columns(path, parquet.read_schema(path).names, *columns)
        table = parquet.read_table(path, columns=list(columns))
        return {name: table.column(name).to_pylist() for name in columns}
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is damaged or truncated: {error}") from error


def _pixels(image: dict[str, Any], where: str) -> NDArray[np.float32]:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise MissingExtraError("PNG needs Pillow: pip install 'skellam[data]'") from error
    try:
        with Image.open(io.BytesIO(image["bytes"])) as picture:
            return np.asarray(picture.convert("L"), dtype=np.float32) / np.float32(255)
    except (KeyError, TypeError, UnidentifiedImageError, OSError, SyntaxError) as error:
        raise DataError(f"{where}: an image cannot be read: {error}") from error


def _require_columns(path: Path, found: Any, *columns: str) -> None:  # noqa: ANN401
    if missing := [name for name in columns if name not in found]:
        raise DataError(f"{path} has no column {missing[0]!r}, only {', '.join(found)}")


def _format(path: Path, *formats: Format) -> Format:
    """Return the format of a file; a folder holds LEAF's."""
    return Format.JSON if path.is_dir() else require_format(path, *formats)


def _sibling(file: Path, split: str) -> Path:
    if "train" not in file.name:
        raise DataError(f"{file} must have 'train' in its name, so that its {split} file is found")
    return file.with_name(file.name.replace("train", split))


def _tested(clients: Clients[T], full: bool) -> tuple[Clients[T] | None, Clients[T]]:
    """Return clients for validation and for the test: halves, or none and all."""
    ids = list(clients)
    return (None, clients) if full else (clients.only(ids[::2]), clients.only(ids[1::2]))


def _counted_words(path: Path, count: int) -> Vocabulary:
    require_format(path, Format.JSON)
    try:
        counts = json.loads(path.read_bytes())
        ranked = sorted(counts, key=lambda word: (-int(counts[word]), word))
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError(f"{path} must hold one JSON object, {{word: count}}: {error}") from error
    return Vocabulary(tuple(ranked[:count]))
