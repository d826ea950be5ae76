"""Tasks: federated data, a model for it, how clients train, and what is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from torch import nn

from skellam.entropy import Entropy
from skellam.federated import data, models
from skellam.federated.data import Splits, pooled
from skellam.federated.data.files import Location
from skellam.federated.data.vocabulary import PAD
from skellam.federated.local import Learner, LocalTraining
from skellam.federated.models import Vector


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """What is learnt, from whom, and how well it is known.

    Targets equal to ``padding`` do not exist; ``unmeasured`` ones are learnt but not measured.
    """

    name: str
    splits: Splits
    model: Callable[[], nn.Module]
    training: LocalTraining
    padding: int | None = None
    unmeasured: tuple[int, ...] = ()

    @property
    def dimension(self) -> int:
        """The number of parameters of the model."""
        return models.size(self.model())

    def initial(self, *, entropy: Entropy) -> Vector:
        """Return the parameters of a fresh model."""
        model = self.model()
        models.initialise(model, entropy=entropy)
        return models.flatten(model)

    def learner(self) -> Learner:
        """Return a worker's own model; threads cannot share one."""
        return Learner(self.model(), padding=self.padding, unmeasured=self.unmeasured)

    def unigram_accuracy(self) -> float:
        """Return the test accuracy of always naming the commonest measured target."""
        silent = (*self.unmeasured, *(() if self.padding is None else (self.padding,)))
        targets = pooled(self.splits.test).targets.ravel()
        counts = np.bincount(targets[~np.isin(targets, silent)])
        return float(counts.max() / counts.sum())


def digits(*, clients: int = 2000, each: int = 2, concentration: float = 1.0) -> Task:
    """Return the task that needs no file: ten digits, a linear model of 7,850 parameters."""
    splits = data.digits(clients=clients, each=each, concentration=concentration)
    return Task("digits", splits, models.linear, LocalTraining(rate=0.5, batch=2))


def emnist(path: Location = None) -> Task:
    """Return the paper's first task: 62 handwritten characters, 1,018,174 parameters."""
    training = LocalTraining(rate=0.32, batch=20)
    return Task("emnist", data.emnist(path), models.paper_cnn, training)


def shakespeare(path: Location = None) -> Task:
    """Return the paper's second task: the next character, 820,522 parameters."""
    training = LocalTraining(rate=1.0, batch=4)
    splits = data.shakespeare(path)
    return Task("shakespeare", splits, models.character_model, training, padding=PAD)


def stackoverflow(path: Location = None) -> Task:
    """Return the paper's third task: the next word, 4,050,748 parameters."""
    splits = data.stackoverflow(path)
    training = LocalTraining(rate=0.5, batch=16, most=256)
    model = partial(models.word_model, splits.classes)
    return Task("stackoverflow", splits, model, training, PAD, _marks(splits))


def unipen(path: Location = None) -> Task:
    """Return 62 handwritten characters of real writers, with a small network."""
    training = LocalTraining(rate=0.1, batch=20, most=40)
    return Task("unipen", data.unipen(path), models.small_cnn, training)


def mnist_writers(path: Location = None) -> Task:
    """Return ten digits of real writers, with a small network."""
    training = LocalTraining(rate=0.1, batch=20, most=40)
    return Task("mnist_writers", data.mnist_writers(path), partial(models.small_cnn, 10), training)


def shakespeare_roles(path: Location = None) -> Task:
    """Return the next character of Shakespeare's roles, with a small network of the same kind."""
    training = LocalTraining(rate=4.0, batch=4, most=40)
    model = partial(models.character_model, hidden=96, layers=1)
    return Task("shakespeare_roles", data.shakespeare_roles(path), model, training, padding=PAD)


def stackexchange(path: Location = None, *, words: int = 1000) -> Task:
    """Return the next word of Stack Exchange's users, with a small network of the same kind."""
    splits = data.stackexchange(path, words=words)
    training = LocalTraining(rate=2.0, batch=16, most=64)
    model = partial(models.word_model, splits.classes, embedding=16, hidden=64)
    return Task("stackexchange", splits, model, training, PAD, _marks(splits))


def _marks(splits: Splits) -> tuple[int, ...]:
    """Unknown, begin and end: the last three numbers of a vocabulary."""
    return tuple(range(splits.classes - 3, splits.classes))
