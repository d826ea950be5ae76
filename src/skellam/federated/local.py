"""What a client does with its own data: some epochs of gradient descent, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from skellam import _checks
from skellam.entropy import Entropy
from skellam.federated.data import Examples
from skellam.federated.models import Vector, flatten, load, seed_dropout

_NOTHING = -100
_EVALUATED_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class LocalTraining:
    """Gradient descent by ``batch`` examples, on ``most`` examples an epoch at most."""

    rate: float
    batch: int
    epochs: int = 1
    most: int | None = None

    def __post_init__(self) -> None:
        _checks.positive("rate", self.rate)
        _checks.integer("batch", self.batch, 1)
        _checks.integer("epochs", self.epochs, 1)
        if self.most is not None:
            _checks.integer("most", self.most, 1)


@dataclass(frozen=True, slots=True)
class Measure:
    """Mean loss over all targets but padding, and accuracy over the ``count`` that are measured."""

    loss: float
    accuracy: float
    count: int


@final
class Learner:
    """One worker's model: it trains and measures vectors of parameters, one at a time.

    ``padding`` is a target that is neither learnt nor measured. ``unmeasured`` ones are learnt, but
    in a measure they are neither asked for nor answered.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        padding: int | None = None,
        unmeasured: tuple[int, ...] = (),
    ) -> None:
        self._model = model
        self._padding = _NOTHING if padding is None else padding
        marks = unmeasured if padding is None else (padding, *unmeasured)
        self._unmeasured = torch.tensor(marks, dtype=torch.int64)

    def update(
        self, start: Vector, examples: Examples, training: LocalTraining, *, entropy: Entropy
    ) -> Vector:
        """Return how far training moves the parameters away from ``start``."""
        with _one_thread():
            load(self._model, start)
            seed_dropout(self._model, entropy=entropy)
            self._model.train()
            for rows in _batches(len(examples), training, entropy):
                self._step(examples[rows], training.rate)
            return flatten(self._model) - start

    def _step(self, batch: Examples, rate: float) -> None:
        parameters = list(self._model.parameters())
        logits, targets = self._forward(batch)
        loss = cross_entropy(logits, targets, ignore_index=self._padding)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(gradient, alpha=rate)

    @torch.no_grad()
    def evaluate(self, vector: Vector, examples: Examples) -> Measure:
        """Return the loss and the accuracy of the model ``vector`` on ``examples``."""
        load(self._model, vector)
        self._model.eval()
        loss = learnt = correct = measured = 0.0
        for first in range(0, len(examples), _EVALUATED_AT_ONCE):
            logits, targets = self._forward(examples[first : first + _EVALUATED_AT_ONCE])
            total = cross_entropy(logits, targets, ignore_index=self._padding, reduction="sum")
            counted = ~torch.isin(targets, self._unmeasured)
            logits.index_fill_(1, self._unmeasured, -torch.inf)
            loss += float(total)
            learnt += int((targets != self._padding).sum())
            correct += int(((logits.argmax(1) == targets) & counted).sum())
            measured += int(counted.sum())
        return Measure(loss / max(learnt, 1), correct / max(measured, 1), int(measured))

    def _forward(self, examples: Examples) -> tuple[Tensor, Tensor]:
        """Return a row of logits for each target, and the targets."""
        logits: Tensor = self._model(torch.from_numpy(examples.inputs))
        return logits.flatten(0, -2), torch.from_numpy(examples.targets).flatten()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Small batches do not repay torch's threads, which wait for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _batches(count: int, training: LocalTraining, entropy: Entropy) -> Iterator[NDArray[np.intp]]:
    keys = np.empty(count, dtype=np.uint64)
    for _ in range(training.epochs):
        entropy.fill(keys)
        order = np.argsort(keys, kind="stable")[: training.most]
        for first in range(0, len(order), training.batch):
            yield order[first : first + training.batch]
