"""The shape of federated data: for every client what it holds, loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skellam.errors import DataError, DomainError

T = TypeVar("T")
S = TypeVar("S")


@final
@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """What one client holds: ``inputs[i]`` goes with ``targets[i]``.

    Images are float32 in [0, 1] with ink at 1; text is the numbers of its tokens.
    """

    inputs: NDArray[Any]
    targets: NDArray[np.int64]

    def __post_init__(self) -> None:
        inputs, targets = np.asarray(self.inputs), np.asarray(self.targets)
        if not (inputs.ndim and targets.ndim and len(inputs) == len(targets)):
            raise DataError(f"inputs {inputs.shape} do not go with targets {targets.shape}")
        if targets.dtype.kind not in "iu":
            raise DataError(f"targets must be whole numbers, got {targets.dtype}")
        if inputs.dtype.kind not in "iuf":
            raise DataError(f"inputs must be numbers, got {inputs.dtype}")
        if not np.isfinite(inputs).all():
            raise DataError("inputs must be finite")
        kind = np.float32 if inputs.dtype.kind == "f" else np.int64
        object.__setattr__(self, "inputs", inputs.astype(kind, copy=False))
        object.__setattr__(self, "targets", targets.astype(np.int64, copy=False))

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Examples:
        return Examples(self.inputs[rows], self.targets[rows])


@final
class Clients(Mapping[str, T], Generic[T]):
    """A read-only mapping from client id to what ``load`` gives for it, in a fixed order."""

    __slots__ = ("_ids", "_load")

    def __init__(self, ids: Iterable[str], load: Callable[[str], T]) -> None:
        self._ids = dict.fromkeys(ids)
        if not self._ids:
            raise DataError("federated data needs at least one client")
        self._load = load

    def __getitem__(self, client: str) -> T:
        if client not in self._ids:
            raise KeyError(client)
        return self._load(client)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, client: object) -> bool:
        return client in self._ids

    def only(self, ids: Iterable[str]) -> Clients[T]:
        """Return the same data for some of the clients."""
        chosen = tuple(ids)
        if missing := next((client for client in chosen if client not in self._ids), None):
            raise DomainError(f"there is no client {missing!r}")
        return Clients(chosen, self._load)

    def map(self, function: Callable[[T], S]) -> Clients[S]:
        """Return the data with ``function`` applied to what each client holds, when it is read."""
        return Clients(self._ids, lambda client: function(self._load(client)))


ClientData: TypeAlias = Clients[Examples]
Texts: TypeAlias = Clients[tuple[str, ...]]


def client_data(clients: Mapping[str, Examples | tuple[ArrayLike, ArrayLike]]) -> ClientData:
    """Return the user's own data: any mapping from client id to (inputs, targets)."""
    if not isinstance(clients, Mapping):
        raise DomainError(f"clients must be a mapping, got {type(clients).__name__}")
    held = {str(client): _examples(client, value) for client, value in clients.items()}
    if len({(e.inputs.shape[1:], e.targets.shape[1:]) for e in held.values()}) > 1:
        raise DataError("the clients' examples must all have the same shape")
    return Clients(held, held.__getitem__)


def pooled(data: ClientData) -> Examples:
    """Return all examples together, client after client, as a public test set is used."""
    parts = list(data.values())
    inputs = np.concatenate([part.inputs for part in parts])
    return Examples(inputs, np.concatenate([part.targets for part in parts]))


def _examples(client: object, value: Examples | tuple[ArrayLike, ArrayLike]) -> Examples:
    if isinstance(value, Examples):
        return value
    try:
        inputs, targets = value
        return Examples(np.asarray(inputs), np.asarray(targets))
    except (TypeError, ValueError, DataError) as error:
        raise DataError(f"client {client!r} must hold (inputs, targets): {error}") from error
