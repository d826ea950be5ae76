"""Batches: what a client holds, passed over in a random order.

A client may hold a torch ``Dataset``, arrays (inputs, targets), or an iterable of batches.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, TensorDataset, default_collate

from skellam.entropy import Entropy
from skellam.errors import DataError
from skellam.federated.data.examples import Clients, Examples, as_clients, numbers, pooled

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
    if isinstance(part, Mapping):
        return {key: _arrays(value) for key, value in part.items()}
    if isinstance(part, tuple):
        return tuple(map(_arrays, part))
    return part if isinstance(part, Tensor) else numbers("an array", np.asarray(part))


def _taken(part: Any, rows: NDArray[np.intp]) -> Any:  # noqa: ANN401
    if isinstance(part, Mapping):
        return {key: _taken(value, rows) for key, value in part.items()}
    if isinstance(part, tuple):
        return tuple(_taken(value, rows) for value in part)
    return part[torch.from_numpy(rows) if isinstance(part, Tensor) else rows]


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
