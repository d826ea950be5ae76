"""Columns of a CSV or Parquet file, by user."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from skellam.errors import DataError, DomainError, MissingExtraError

Users = dict[str, list[Any]]


def by_user(path: Path, *, user: str, column: str) -> Users:
    """Return for each user of column ``user`` what it has in ``column``."""
    names, values = _columns(path, user, column)
    users: Users = defaultdict(list)
    for name, value in zip(names, values, strict=True):
        users[str(name)].append(value)
    if not users:
        raise DataError(f"{path} has no rows")
    return dict(users)


def as_numbers(users: Users) -> Users:
    """Return the values as numbers, or raise `DataError` naming one that is none."""
    try:
        return {user: [float(value) for value in values] for user, values in users.items()}
    except (TypeError, ValueError) as error:
        raise DataError(f"a value is no number: {error}") from error


def as_text(users: Users) -> Users:
    """Return the values as text."""
    return {user: [str(value) for value in values] for user, values in users.items()}


def _columns(path: Path, *names: str) -> list[Iterable[Any]]:
    match path.suffix.lower():
        case ".csv":
            return _csv(path, names)
        case ".parquet":
            return _parquet(path, names)
        case _:
            raise DomainError(f"{path} must end in .csv or .parquet")


def _csv(path: Path, names: tuple[str, ...]) -> list[Iterable[Any]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [*csv.DictReader(file, strict=True)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    for number, row in enumerate(rows, start=2):
        if any(row.get(name) is None for name in names):
            raise DataError(f"{path}, line {number}, has no {' or '.join(names)}")
    return [[row[name] for row in rows] for name in names]


def _parquet(path: Path, names: tuple[str, ...]) -> list[Iterable[Any]]:
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError as error:
        raise MissingExtraError("Parquet needs pyarrow: pip install 'skellam[data]'") from error
    try:
        table = parquet.read_table(path, columns=[*names])
        return [table.column(name).to_pylist() for name in names]
    except (OSError, KeyError, ArrowInvalid) as error:
        raise DataError(f"cannot read {', '.join(names)} from {path}: {error}") from error
