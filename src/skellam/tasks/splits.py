"""Data splits: where a data set's files are, and who holds what of it.

Every division among clients, and of clients among training, validation and test, is a public
function of a public seed: it says who holds what in an experiment, and protects nobody.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
