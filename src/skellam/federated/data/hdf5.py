"""TensorFlow Federated's HDF5 files: ``examples/<client>/<feature>``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skellam.errors import DataError, MissingExtraError
from skellam.federated.data import images
from skellam.federated.data.clients import ClientData, Clients, Examples, Texts
from skellam.federated.data.files import Format, require_format


def read_images(path: Path, *, classes: int = 62) -> ClientData:
    """Return handwritten characters: features ``pixels`` (1 is background) and ``label``."""

    def load(client: str) -> Examples:
        pixels, labels = _features(path, client, "pixels", "label")
        return images.from_paper(pixels, labels, classes=classes, where=f"{path}, client {client}")

    return Clients(_ids(path), load)


def read_texts(path: Path, feature: str) -> Texts:
    """Return the pieces of text that clients hold under ``feature``."""

    def load(client: str) -> tuple[str, ...]:
        (values,) = _features(path, client, feature)
        return tuple(_text(value, path, client) for value in values)

    return Clients(_ids(path), load)


def _ids(path: Path) -> list[str]:
    with _opened(path) as file:
        if "examples" not in file:
            raise DataError(f"{path} has no group 'examples'; it is not a file of TFF's")
        return sorted(file["examples"])


def _features(path: Path, client: str, *names: str) -> list[NDArray[Any]]:
    with _opened(path) as file:
        group = file["examples"][client]
        if missing := [name for name in names if name not in group]:
            raise DataError(f"{path}, client {client}: no feature {missing[0]!r}, only {[*group]}")
        return [np.asarray(group[name][()]) for name in names]


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError("HDF5 needs h5py: pip install 'skellam[data]'") from error
    require_format(path, Format.HDF5)
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, RuntimeError, KeyError) as error:
        raise DataError(f"{path} is damaged or truncated: {error}") from error


def _text(value: bytes | str, path: Path, client: str) -> str:
    try:
        return value.decode() if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, client {client}: text is not UTF-8") from error
