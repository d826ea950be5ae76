"""LEAF's JSON: ``{"users": [..], "num_samples": [..], "user_data": {u: {"x": .., "y": ..}}}``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from skellam.errors import DataError
from skellam.federated.data import images
from skellam.federated.data.clients import ClientData, Clients, Examples
from skellam.federated.data.files import Format, require_format
from skellam.federated.data.vocabulary import from_windows


def read_images(path: Path, *, classes: int = 62) -> ClientData:
    """Return FEMNIST: x is 784 floats (1 is background), y a class."""
    return _read(path, lambda x, y, at: images.from_paper(x, y, classes=classes, where=at))


def read_characters(path: Path) -> ClientData:
    """Return Shakespeare: x is a window of characters, y the next one."""
    return _read(path, _windows)


def _read(path: Path, examples: Callable[[Any, Any, str], Examples]) -> ClientData:
    held: dict[str, Examples] = {}
    for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
        content = _content(file)
        for user, stated in zip(content["users"], content["num_samples"], strict=True):
            where = f"{file}, user {user}"
            if user in held:
                raise DataError(f"{where}: the user is there twice")
            held[user] = examples(*_user(content["user_data"].get(user), stated, where), where)
    return Clients(held, held.__getitem__)


def _user(data: Any, stated: int, where: str) -> tuple[list[Any], list[Any]]:  # noqa: ANN401
    match data:
        case {"x": list(x), "y": list(y)} if len(x) == len(y) == stated:
            return x, y
        case _:
            raise DataError(f"{where}: user_data must hold lists x and y of {stated} samples")


def _content(path: Path) -> dict[str, Any]:
    require_format(path, Format.JSON)
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
    except ValueError as error:
        raise DataError(f"{path} is damaged or truncated: {error}") from error
    match content:
        case {"users": list(users), "num_samples": list(counts), "user_data": dict()} if len(
            users
        ) == len(counts):
            return content
        case _:
            raise DataError(f"{path} must hold users, as many num_samples, and user_data, as LEAF")


def _windows(windows: Any, following: Any, where: str) -> Examples:  # noqa: ANN401
    if not all(isinstance(piece, str) for piece in [*windows, *following]):
        raise DataError(f"{where}: x and y must be text")
    return from_windows(windows, following)
