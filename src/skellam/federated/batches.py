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
from skellam.federated.data.examples import Clients, Examples, as_clients, pooled

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
    rows = order(len(held[0]) if isinstance(held, tuple) else len(held))[:max_examples]
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
    if len(held) != 2 or len(held[0]) != len(held[1]):
        raise DataError("a tuple must be (inputs, targets), as many of one as of the other")
    if all(isinstance(part, Tensor) for part in held):
        return lambda rows: tuple(part[torch.from_numpy(rows)] for part in held)
    examples = Examples(np.asarray(held[0]), np.asarray(held[1]))
    return lambda rows: (examples.inputs[rows], examples.targets[rows])


def _batches_as_they_come(held: Iterable[Any], max_examples: int | None) -> Iterator[Any]:
    count = 0
    for batch in held:
        if max_examples is not None and count >= max_examples:
            return
        yield batch
        count += len(batch[1]) if isinstance(batch, (tuple, list)) else 1


def public(held: Any) -> Any:  # noqa: ANN401
    """Return public data as one thing that can be passed over: a mapping of clients pooled."""
    if not isinstance(held, Mapping):
        return list(held) if isinstance(held, Iterator) else held
    clients: Clients[Any] = as_clients(held)
    if all(isinstance(clients[name], Examples | tuple) for name in [*clients][:1]):
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
