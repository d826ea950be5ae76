"""Federated data: a mapping from a client's name to what it holds, read when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skellam import _checks
from skellam.errors import DataError, DomainError

T = TypeVar("T")
S = TypeVar("S")


@final
@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """What one client holds, as arrays: ``inputs[i]`` goes with ``targets[i]``.

    Integers become int64 (tokens, classes), other numbers float32.
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]

    def __post_init__(self) -> None:
        inputs, targets = np.asarray(self.inputs), np.asarray(self.targets)
        if not (inputs.ndim and targets.ndim and len(inputs) == len(targets)):
            raise DataError(f"inputs {inputs.shape} do not go with targets {targets.shape}")
        _checks.assign(self, inputs=numbers("inputs", inputs), targets=numbers("targets", targets))

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Examples:
        return Examples(self.inputs[rows], self.targets[rows])


@final
class Clients(Mapping[str, T], Generic[T]):
    """A read-only mapping from a client's name to what ``load`` gives for it, in a fixed order."""

    __slots__ = ("_load", "_names")

    def __init__(self, names: Iterable[str], load: Callable[[str], T]) -> None:
        self._names = dict.fromkeys(names)
        if not self._names:
            raise DataError("federated data needs at least one client, got none")
        self._load = load

    def __getitem__(self, client: str) -> T:
        if client not in self._names:
            raise KeyError(client)
        return self._load(client)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, client: object) -> bool:
        return client in self._names

    def only(self, names: Iterable[str]) -> Clients[T]:
        """Return the same data for some of the clients."""
        chosen = tuple(names)
        if missing := next((client for client in chosen if client not in self._names), None):
            raise DomainError(f"there is no client {missing!r}")
        return Clients(chosen, self._load)

    def map(self, function: Callable[[T], S]) -> Clients[S]:
        """Return the data with ``function`` applied to what each client holds, when it is read."""
        return Clients(self._names, lambda client: function(self._load(client)))


ClientData: TypeAlias = Clients[Examples]


def clients(names: Iterable[str], load: Callable[[str], T]) -> Clients[T]:
    """Return the data of the clients ``names``, each read by ``load(name)`` when it takes part.

    >>> from skellam import federated as fl
    >>> squares = fl.data.clients(["2", "3"], lambda name: int(name) ** 2)
    >>> dict(squares)
    {'2': 4, '3': 9}
    """
    return Clients(names, load)


def as_clients(held: Mapping[Any, T]) -> Clients[T]:
    """Return any mapping from client to data as `Clients`; names become text."""
    if isinstance(held, Clients):
        return held
    if not isinstance(held, Mapping):
        raise DomainError(
            f"clients must be a mapping from client to data, got {type(held).__name__}; "
            "use fl.data.clients(names, load) for a function"
        )
    keys: dict[str, Hashable] = {str(key): key for key in held}
    if len(keys) < len(held):
        raise DataError("two clients have the same name once names are text; rename one")
    return Clients(keys, lambda client: held[keys[client]])


def arrays(held: Mapping[Any, Examples | tuple[ArrayLike, ArrayLike]]) -> ClientData:
    """Return arrays in memory, {client: (inputs, targets)}, checked before anything is trained."""
    if not isinstance(held, Mapping):
        raise DomainError(f"clients must be a mapping, got {type(held).__name__}")
    checked = {str(client): _examples(client, value) for client, value in held.items()}
    if len({(e.inputs.shape[1:], e.targets.shape[1:]) for e in checked.values()}) > 1:
        raise DataError("the clients' examples must all have the same shape")
    return Clients(checked, checked.__getitem__)


def pooled(data: ClientData, *, max_examples: int | None = None) -> Examples:
    """Return all examples together, client after client, as a public test set is used.

    With ``max_examples`` it stops after the client with which there are that many.
    """
    parts, count = [], 0
    for part in data.values():
        parts.append(part)
        count += len(part)
        if max_examples is not None and count >= max_examples:
            break
    inputs = np.concatenate([part.inputs for part in parts])
    return Examples(inputs, np.concatenate([part.targets for part in parts]))


def numbers(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return integers as int64 and other numbers as float32, or raise `DataError`."""
    if values.dtype.kind not in "biuf":
        raise DataError(f"{name} must be numbers, got {values.dtype}; encode them as numbers")
    if not np.isfinite(values).all():
        raise DataError(f"{name} must be finite, got a missing or infinite value; fill it in")
    return values.astype(np.float32 if values.dtype.kind == "f" else np.int64, copy=False)


def _examples(client: object, value: Examples | tuple[ArrayLike, ArrayLike]) -> Examples:
    if isinstance(value, Examples):
        return value
    try:
        inputs, targets = value
        return Examples(np.asarray(inputs), np.asarray(targets))
    except (TypeError, ValueError, DataError) as error:
        raise DataError(f"client {client!r} must hold (inputs, targets): {error}") from error
