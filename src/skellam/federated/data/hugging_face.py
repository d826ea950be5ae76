"""The files of Hugging Face: ``flwrlabs/femnist`` (Parquet) and ``flwrlabs/shakespeare`` (CSV)."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skellam.errors import DataError, MissingExtraError
from skellam.federated.data import images
from skellam.federated.data.clients import ClientData, Clients, Examples
from skellam.federated.data.files import Format, require_format
from skellam.federated.data.vocabulary import from_windows


def read_images(path: Path, *, classes: int = 62) -> ClientData:
    """Return FEMNIST: ``image`` (PNG, white is background), ``writer_id``, ``character``."""
    table = _table(path, "image", "writer_id", "character")
    rows: dict[str, list[int]] = defaultdict(list)
    for row, writer in enumerate(table["writer_id"]):
        rows[str(writer)].append(row)

    def load(writer: str) -> Examples:
        where = f"{path}, writer {writer}"
        pixels = np.stack([_pixels(table["image"][row], where) for row in rows[writer]])
        labels = np.array([table["character"][row] for row in rows[writer]])
        return images.from_paper(pixels, labels, classes=classes, where=where)

    return Clients(sorted(rows), load)


def read_characters(path: Path) -> ClientData:
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
    except (csv.Error, UnicodeDecodeError) as error:
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
    except (ArrowException, OSError) as error:
        raise DataError(f"{path} is damaged or truncated: {error}") from error
    return {name: table.column(name).to_pylist() for name in columns}


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
