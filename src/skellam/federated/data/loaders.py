"""Loaders: data frames, Hugging Face data sets, and folders, divided by user."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from skellam.errors import DataError, DomainError
from skellam.federated.data.examples import ClientData, Clients, Examples
from skellam.federated.data.files import UNREADABLE_NPZ

Columns: TypeAlias = str | Sequence[str]
MISSING = frozenset({"", "None", "nan", "<NA>", "NaT"})
"""What tables have in place of a user, as text."""


def by_user(frame: Any, *, user: str, inputs: Columns, target: Columns) -> ClientData:  # noqa: ANN401
    """Return the rows of a table by its column ``user``; pandas, polars, or {column: values}.

    ``inputs`` is a list of columns, which become one float32 vector a row, or the name of one
    column, which is taken as it is (numbers, or rows of equal length). ``target`` likewise.
    All rows of one user are one client: whoever has two names is protected at twice the cost.

    >>> from skellam import federated as fl
    >>> table = {"who": ["ann", "bob", "ann"], "age": [41, 35, 41], "spend": [2.5, 1.0, 3.5]}
    >>> clients = fl.data.by_user(table, user="who", inputs=["age"], target="spend")
    >>> clients["ann"].targets
    array([2.5, 3.5], dtype=float32)
    """
    rows = _rows_by_user(_column(frame, user), user)
    everything = Examples(_stacked(frame, inputs), _stacked(frame, target))
    return Clients(rows, lambda client: everything[rows[client]])


def hugging_face(
    dataset: Any,  # noqa: ANN401  (datasets.Dataset, which is no dependency)
    *,
    user: str,
    inputs: Columns | None = None,
    target: Columns | None = None,
    convert: Callable[[dict[str, Any]], Any] | None = None,
) -> Clients[Any]:
    """Return a Hugging Face ``datasets.Dataset`` by its column ``user``, read when asked for.

    Columns are named as for `by_user`; or ``convert`` makes of a user's rows, {column: values},
    what the client holds: (inputs, targets), for example after tokenising.
    """
    if (convert is None) == (inputs is None or target is None):
        raise DomainError("give inputs= and target=, or convert=, one of the two")
    rows = _rows_by_user(_column(dataset, user), user)

    def load(client: str) -> Any:  # noqa: ANN401
        held: dict[str, Any] = dataset[rows[client].tolist()]
        if convert is not None:
            return convert(held)
        return Examples(_stacked(held, inputs or ()), _stacked(held, target or ()))

    return Clients(rows, load)


def folder(path: str | PathLike[str], *, load: Callable[[Path], Any] | None = None) -> Clients[Any]:
    """Return one client for every file or folder in ``path``, named like it without its ending.

    ``load`` reads one of them; without it they are ``.npz`` files with the arrays ``inputs`` and
    ``targets`` (or folders of such files).
    """
    root = Path(path)
    if not root.is_dir():
        raise DataError(f"{root} must be a folder with one file or folder a client")
    found = {entry.stem: entry for entry in sorted(root.iterdir()) if entry.name[0] != "."}
    if len(found) < sum(entry.name[0] != "." for entry in root.iterdir()):
        raise DataError(f"{root}: two clients have the same name but for their endings; rename one")
    if not found:
        raise DataError(f"{root} is empty; it must hold one file or folder a client")
    read = load or _read_npz
    return Clients(found, lambda client: read(found[client]))


def _read_npz(path: Path) -> Examples:
    if path.is_dir():
        parts = [_read_npz(part) for part in sorted(path.glob("*.npz"))]
        if not parts:
            raise DataError(f"{path} holds no .npz file; pass load= to read other files")
        inputs = np.concatenate([part.inputs for part in parts])
        return Examples(inputs, np.concatenate([part.targets for part in parts]))
    if path.suffix != ".npz":
        raise DataError(f"{path} must be an .npz file; pass load= to read other files")
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return Examples(file["inputs"], file["targets"])
    except UNREADABLE_NPZ as error:
        raise DataError(
            f"{path} must hold the arrays inputs and targets, undamaged: {error}"
        ) from error


def _column(frame: Any, name: str) -> NDArray[Any]:  # noqa: ANN401
    known = _names(frame)
    if name not in known:
        raise DataError(f"there is no column {name!r}, only {', '.join(map(str, known))}")
    values = frame[name]
    if hasattr(values, "__array__"):
        return np.asarray(values)
    try:
        return np.asarray([*values])
    except ValueError:  # rows of different length; `_rows` says so
        rows = np.empty(len(values), dtype=object)
        rows[:] = [*values]
        return rows


def _names(frame: Any) -> list[str]:  # noqa: ANN401
    if isinstance(frame, Mapping):
        return list(frame)
    if not hasattr(frame, "__len__"):  # polars.LazyFrame, a data set that is streamed
        raise DomainError(
            f"the data must be a table in memory, got {type(frame).__name__}; collect it first"
        )
    columns = getattr(frame, "column_names", None) or getattr(frame, "columns", None)
    if columns is None:
        raise DomainError(
            f"the data must be a table with named columns, got {type(frame).__name__}"
        )
    return list(columns)


def _stacked(frame: Any, columns: Columns) -> NDArray[Any]:  # noqa: ANN401
    if isinstance(columns, str):
        return _rows(_column(frame, columns), columns)
    parts = []
    for name in columns:
        values = _rows(_column(frame, name), name)
        if values.ndim != 1:
            raise DataError(f"column {name!r} holds vectors; name it alone, not in a list")
        parts.append(values.astype(np.float32))
    if not parts:
        raise DomainError("a list of columns must name at least one, got none")
    return np.stack(parts, axis=1)


def _rows(values: NDArray[Any], name: str) -> NDArray[Any]:
    """Return a column of numbers; one of lists as a matrix."""
    if values.dtype == object:
        try:
            values = np.stack([np.asarray(value) for value in values])
        except ValueError as error:
            raise DataError(
                f"column {name!r} holds rows of different length; pad them first"
            ) from error
    if values.dtype.kind not in "biuf":
        raise DataError(f"column {name!r} must be numbers, got {values.dtype}; encode it first")
    if missing := int((~np.isfinite(values)).sum()):
        raise DataError(f"column {name!r} has {missing} missing or infinite values; fill them in")
    return values


def _rows_by_user(owners: NDArray[Any], column: str) -> dict[str, NDArray[np.intp]]:
    if not len(owners):
        raise DataError(f"column {column!r} has no rows, and so no user")
    if empty := sum(str(owner) in MISSING for owner in owners.tolist()):
        raise DataError(f"column {column!r} has {empty} missing users; every row needs an owner")
    names = owners.astype(str)
    order = np.argsort(names, kind="stable")
    users, starts = np.unique(names[order], return_index=True)
    parts = np.split(order, starts[1:])
    return {str(user): rows for user, rows in zip(users, parts, strict=True)}
