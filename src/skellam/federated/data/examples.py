"""Federated data: a mapping from a client's name to what it holds, and batches of that.

What a client holds is read when it is asked for: a torch ``Dataset``, arrays (inputs, targets), or
an iterable of batches. Batches are passed over in a random order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skellam import _checks
from skellam.entropy import Entropy
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
        _checks.assign(
            self, inputs=_numbers("inputs", inputs), targets=_numbers("targets", targets)
        )

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
    shapes = {(e.inputs.shape[1:], e.targets.shape[1:]) for e in checked.values()}
    if len(shapes) > 1:
        raise DataError(
            f"the clients' examples must all have the same shape, got {sorted(shapes)[:2]} "
            "(inputs, targets); pad or crop them"
        )
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


def _numbers(name: str, values: NDArray[Any]) -> NDArray[Any]:
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


MAX_MEASURED = 100_000
"""Examples of a mapping of clients that are measured, and a client's more."""
MEASURED_AT_ONCE = 512


@final
class TrainingBatches:
    """A client's batches, shuffled, all epochs one after the other; may be iterated again."""

    def __init__(
        self,
        held: Any,  # noqa: ANN401
        *,
        batch_size: int,
        epochs: int,
        max_examples: int | None,
        placed: Callable[[Any], Any],
        entropy: Entropy,
    ) -> None:
        self._held = list(held) if isinstance(held, Iterator) else held
        self._batch_size, self._epochs, self._max_examples = batch_size, epochs, max_examples
        self._placed, self._entropy = placed, entropy

    def __iter__(self) -> Iterator[Any]:
        order = functools.partial(_shuffled, entropy=self._entropy)
        for _ in range(self._epochs):
            batches = one_pass(
                self._held, self._batch_size, order=order, max_examples=self._max_examples
            )
            yield from map(self._placed, batches)


def one_pass(
    held: Any,  # noqa: ANN401
    batch_size: int,
    *,
    order: Callable[[int], NDArray[np.intp]] = np.arange,
    max_examples: int | None = None,
) -> Iterator[Any]:
    """Yield all that ``held`` has once, in batches, of ``max_examples`` examples."""
    take = _indexed(held)
    if take is None:
        yield from _batches_as_they_come(held, max_examples)
        return
    rows = order(count(held))[:max_examples]
    for first in range(0, len(rows), batch_size):
        yield take(rows[first : first + batch_size])


def _indexed(held: Any) -> Callable[[NDArray[np.intp]], Any] | None:  # noqa: ANN401
    """Return what takes examples by number; nothing if ``held`` is an iterable of batches."""
    import torch
    from torch.utils.data import Dataset, IterableDataset, TensorDataset, default_collate

    if isinstance(held, Examples):
        return lambda rows: (held.inputs[rows], held.targets[rows])
    if isinstance(held, TensorDataset):
        return lambda rows: tuple(tensor[torch.from_numpy(rows)] for tensor in held.tensors)
    if isinstance(held, tuple):
        return _pair(held)
    if isinstance(held, IterableDataset | list):
        return None
    if isinstance(held, Dataset) or (hasattr(held, "__getitem__") and hasattr(held, "__len__")):
        return lambda rows: default_collate([held[row] for row in rows.tolist()])
    if not isinstance(held, Iterable):
        raise DataError(
            f"a client must hold (inputs, targets), a torch Dataset or batches, got "
            f"{type(held).__name__}"
        )
    return None


def _pair(held: tuple[Any, ...]) -> Callable[[NDArray[np.intp]], Any]:
    if len(held) != 2 or len({*_counts(held)}) != 1:
        raise DataError("a tuple must be (inputs, targets), as many of one as of the other")
    parts = tuple(map(_arrays, held))
    return lambda rows: tuple(_taken(part, rows) for part in parts)


def _arrays(part: Any) -> Any:  # noqa: ANN401
    """Return tensors as they are, and other numbers as arrays of the kinds of `Examples`."""
    import torch

    if isinstance(part, Mapping):
        return {key: _arrays(value) for key, value in part.items()}
    if isinstance(part, tuple):
        return tuple(map(_arrays, part))
    return part if isinstance(part, torch.Tensor) else _numbers("an array", np.asarray(part))


def _taken(part: Any, rows: NDArray[np.intp]) -> Any:  # noqa: ANN401
    import torch

    if isinstance(part, Mapping):
        return {key: _taken(value, rows) for key, value in part.items()}
    if isinstance(part, tuple):
        return tuple(_taken(value, rows) for value in part)
    return part[torch.from_numpy(rows) if isinstance(part, torch.Tensor) else rows]


def count(part: Any) -> int:  # noqa: ANN401
    """Return how many examples there are in a data set, or in tensors by name or in a tuple."""
    return next(_counts(part), 0)


def _counts(part: Any) -> Iterator[int]:  # noqa: ANN401
    if isinstance(part, Mapping | tuple):
        for value in part.values() if isinstance(part, Mapping) else part:
            yield from _counts(value)
    else:
        yield len(part)


def _batches_as_they_come(held: Iterable[Any], max_examples: int | None) -> Iterator[Any]:
    seen = 0
    for batch in held:
        if max_examples is not None and seen >= max_examples:
            return
        yield batch
        seen += count(batch[1]) if isinstance(batch, (tuple, list)) else 1


def public(held: Any) -> Any:  # noqa: ANN401
    """Return public data as one thing that can be passed over: a mapping of clients pooled."""
    if not isinstance(held, Mapping):
        return list(held) if isinstance(held, Iterator) else held
    clients: Clients[Any] = as_clients(held)
    first = clients[next(iter(clients))]
    if isinstance(first, Examples) or (
        isinstance(first, tuple) and not isinstance(first[0], Mapping | tuple)
    ):
        examples = clients.map(lambda h: h if isinstance(h, Examples) else Examples(h[0], h[1]))
        return pooled(examples, max_examples=MAX_MEASURED)
    return [batch for each in clients.values() for batch in one_pass(each, MEASURED_AT_ONCE)]


def head(batches: Iterator[Any], count: int | None) -> Iterator[Any]:
    """Return the first ``count`` batches, or all."""
    return batches if count is None else (b for b, _ in zip(batches, range(count), strict=False))


def _shuffled(count: int, *, entropy: Entropy) -> NDArray[np.intp]:
    keys = np.empty(count, dtype=np.uint64)
    entropy.fill(keys)
    return np.argsort(keys, kind="stable")
