"""Columns of a CSV or Parquet file, by user."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import isnan, nan
from pathlib import Path
from typing import Any

from skellam.errors import DataError, DomainError, MissingExtraError

Users = dict[str, list[Any]]


def by_user(path: Path, *, user: str, column: str) -> Users:
    """Return for each user of column ``user`` what it has in ``column``."""
    names, values = _columns(path, user, column)
    users: Users = defaultdict(list)
    for number, (name, value) in enumerate(zip(names, values, strict=True), start=1):
        if name is None or not str(name).strip():
            raise DataError(f"{path}, row {number}, has no {user!r}; every row needs an owner")
        users[str(name)].append(value)
    if not users:
        raise DataError(f"{path} has no rows")
    return dict(users)


def as_numbers(users: Users, column: str) -> Users:
    """Return the values as numbers, or raise `DataError` naming one that is none."""
    return {
        user: [_number(value, column, user) for value in values] for user, values in users.items()
    }


def _number(value: Any, column: str, user: str) -> float:  # noqa: ANN401
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = nan
    if isnan(number):
        raise DataError(
            f"{column!r} of {user!r} is no number, got {value!r}; correct the row or leave it out"
        )
    return number


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
        with path.open(newline="", encoding="utf-8-sig") as file:  # Excel writes the mark
            reader = csv.DictReader(file, strict=True)
            _require(path, reader.fieldnames or (), names)
            rows = [*reader]
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error}; save it as UTF-8") from error
    except (OSError, csv.Error) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    for number, row in enumerate(rows, start=2):
        if any(row.get(name) is None for name in names):
            missing = " or ".join(dict.fromkeys(names))
            raise DataError(f"{path}, line {number}, is too short: it has no {missing}")
    return [[row[name] for row in rows] for name in names]


def _parquet(path: Path, names: tuple[str, ...]) -> list[Iterable[Any]]:
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError as error:
        raise MissingExtraError("Parquet needs pyarrow: pip install 'skellam[data]'") from error
    try:
        _require(path, parquet.read_schema(path).names, names)
        table = parquet.read_table(path, columns=[*dict.fromkeys(names)])
        return [table.column(name).to_pylist() for name in names]
    except (OSError, KeyError, ArrowInvalid) as error:
        raise DataError(f"cannot read {path}: {error}") from error


def _require(path: Path, known: Sequence[str], names: tuple[str, ...]) -> None:
    for name in names:
        if name not in known:
            columns = ", ".join(known) or "nothing"
            raise DataError(f"{path} has no column {name!r}, only {columns}")
