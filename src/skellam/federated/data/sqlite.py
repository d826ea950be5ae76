"""TensorFlow Federated's SQLite files: one serialised ``tf.train.Example`` a row."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from skellam.errors import DataError
from skellam.federated.data import images
from skellam.federated.data.clients import ClientData, Clients, Examples, Texts
from skellam.federated.data.example_proto import Feature, parse_example
from skellam.federated.data.files import Format, require_format


def read_images(path: Path, *, split: str, classes: int = 62) -> ClientData:
    """Return handwritten characters: features ``pixels`` (1 is background) and ``label``."""

    def load(client: str) -> Examples:
        pixels, labels = _features(path, split, client, "pixels", "label")
        where = f"{path}, client {client}"
        return images.from_paper(
            np.concatenate(pixels), np.concatenate(labels), classes=classes, where=where
        )

    return Clients(_ids(path, split), load)


def read_texts(path: Path, feature: str, *, split: str) -> Texts:
    """Return the pieces of text that clients hold under ``feature``."""

    def load(client: str) -> tuple[str, ...]:
        (values,) = _features(path, split, client, feature)
        try:
            return tuple(piece.decode() for value in values for piece in value)
        except (AttributeError, UnicodeDecodeError) as error:
            raise DataError(f"{path}, client {client}: {feature!r} is not text") from error

    return Clients(_ids(path, split), load)


def _ids(path: Path, split: str) -> list[str]:
    with _opened(path) as database:
        rows = database.execute("SELECT DISTINCT split_name FROM client_metadata").fetchall()
        splits = sorted(row[0] for row in rows)
        if split not in splits:
            raise DataError(f"{path} has no split {split!r}, only {', '.join(map(repr, splits))}")
        query = "SELECT client_id FROM client_metadata WHERE split_name = ? ORDER BY client_id"
        return [str(row[0]) for row in database.execute(query, (split,))]


def _features(path: Path, split: str, client: str, *names: str) -> list[list[Any]]:
    with _opened(path) as database:
        query = (
            "SELECT serialized_example_proto FROM examples WHERE split_name = ? AND client_id = ?"
        )
        rows = database.execute(query, (split, client)).fetchall()
        _require_count(database, split, client, len(rows), path)
    examples = [parse_example(row[0]) for row in rows]
    return [[_feature(example, name, path, client) for example in examples] for name in names]


def _require_count(
    database: sqlite3.Connection, split: str, client: str, found: int, path: Path
) -> None:
    query = "SELECT num_examples FROM client_metadata WHERE split_name = ? AND client_id = ?"
    (stated,) = database.execute(query, (split, client)).fetchone()
    if found != stated:
        raise DataError(f"{path}, client {client}: {stated} examples are stated, {found} are there")


def _feature(example: dict[str, Feature], name: str, path: Path, client: str) -> Feature:
    if name not in example:
        raise DataError(f"{path}, client {client}: no feature {name!r}, only {[*example]}")
    return example[name]


def _require_all_pages(path: Path) -> None:
    """SQLite reads zeros where a last page is cut; its header says how long the file must be."""
    with path.open("rb") as file:
        header = file.read(100)
    page, pages = int.from_bytes(header[16:18]), int.from_bytes(header[28:32])
    if path.stat().st_size < (65536 if page == 1 else page) * pages:
        raise DataError(f"{path} is damaged or truncated: it is shorter than its header says")


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    require_format(path, Format.SQLITE)
    _require_all_pages(path)
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            yield database
    except sqlite3.Error as error:
        raise DataError(f"{path} is damaged, truncated or not a file of TFF's: {error}") from error
