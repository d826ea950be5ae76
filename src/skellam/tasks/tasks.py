"""The tasks: the paper's three, the stand-ins, and digits, which need no file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn

from skellam.errors import DomainError
from skellam.federated.data.examples import Clients, pooled
from skellam.federated.optimizers import sgd
from skellam.federated.task import Task
from skellam.tasks import models, paper_sets, stand_ins
from skellam.tasks.splits import Location, Splits
from skellam.tasks.text import NextToken


def digits(*, clients: int = 2000, each: int = 2, concentration: float = 1.0) -> Task:
    """Return the task that needs no file: ten digits, a linear model of 7,850 parameters."""
    splits = stand_ins.digits(clients=clients, each=each, concentration=concentration)
    return image_task("digits", splits, models.linear(), learning_rate=0.5, batch_size=2)


def emnist(path: Location = None, *, full_test: bool = False) -> Task:
    """Return the paper's first task: 62 handwritten characters, 1,018,174 parameters."""
    splits = paper_sets.emnist(path, full_test=full_test)
    return image_task("emnist", splits, models.paper_cnn(), learning_rate=0.32, batch_size=20)


def shakespeare(path: Location = None, *, full_test: bool = False) -> Task:
    """Return the paper's second task: the next character, 820,522 parameters."""
    return text_task(
        "shakespeare",
        paper_sets.shakespeare(path, full_test=full_test),
        models.character_model(),
        initializer=models.shakespeare_weights,
        learning_rate=1.0,
        batch_size=4,
    )


def stackoverflow(path: Location = None) -> Task:
    """Return the paper's third task: the next word, 4,050,748 parameters."""
    splits = paper_sets.stackoverflow(path)
    return text_task(
        "stackoverflow",
        splits,
        models.word_model(splits.classes),
        learning_rate=0.5,
        batch_size=16,
        max_examples=paper_sets.FIRST_SENTENCES,
        unmeasured=_marks(splits),
    )


def unipen(path: Location = None) -> Task:
    """Return 62 handwritten characters of real writers, with a small network."""
    splits, model = stand_ins.unipen(path), models.small_cnn()
    settings = {"learning_rate": 0.1, "batch_size": 20, "max_examples": 40}
    return image_task("unipen", splits, model, **settings)


def mnist_writers(path: Location = None, *, model: nn.Module | None = None) -> Task:
    """Return ten digits of real writers, with a small network or ``model``."""
    splits = stand_ins.mnist_writers(path)
    settings = {"learning_rate": 0.1, "batch_size": 20, "max_examples": 40}
    return image_task("mnist_writers", splits, model or models.small_cnn(10), **settings)


def shakespeare_roles(path: Location = None) -> Task:
    """Return the next character of Shakespeare's roles, with a small network of the same kind."""
    return text_task(
        "shakespeare_roles",
        stand_ins.shakespeare_roles(path),
        models.character_model(hidden=96, layers=1),
        initializer=models.shakespeare_weights,
        learning_rate=4.0,
        batch_size=4,
        max_examples=40,
    )


def stackexchange(path: Location = None, *, words: int = 1000) -> Task:
    """Return the next word of Stack Exchange's users, with a small network of the same kind."""
    splits = stand_ins.stackexchange(path, words=words)
    return text_task(
        "stackexchange",
        splits,
        models.word_model(splits.classes, embedding=16, hidden=64),
        learning_rate=2.0,
        batch_size=16,
        max_examples=64,
        unmeasured=_marks(splits),
    )


def image_task(
    name: str,
    splits: Splits,
    model: nn.Module,
    *,
    learning_rate: float,
    **settings: Any,  # noqa: ANN401
) -> Task:
    """Return the classification of images with the weights that Keras draws."""
    return _task(name, splits, model, sgd(learning_rate), models.keras_weights, settings)


def text_task(
    name: str,
    splits: Splits,
    model: nn.Module,
    *,
    learning_rate: float,
    unmeasured: tuple[int, ...] = (),
    initializer: Callable[[nn.Module], object] = models.keras_weights,
    **settings: Any,  # noqa: ANN401
) -> Task:
    """Return the prediction of the next token."""
    token = NextToken(unmeasured)
    measures = {"loss": token.losses, "accuracy": token.accuracy}
    settings = {"loss": token.loss, "metrics": measures, **settings}
    return _task(name, splits, model, sgd(learning_rate), initializer, settings)


def _task(  # noqa: PLR0917
    name: str,
    splits: Splits,
    model: nn.Module,
    optimizer: Any,  # noqa: ANN401
    initializer: Callable[[nn.Module], object],
    settings: dict[str, Any],
) -> Task:
    return Task(
        model,
        splits.train,
        name=name,
        optimizer=optimizer,
        initializer=initializer,
        validation=splits.validation,
        test=splits.test,
        **settings,
    )


def unigram_accuracy(task: Task) -> float:
    """Return the test accuracy of always naming the commonest measured target."""
    if not isinstance(task.test, Clients):
        raise DomainError("the task must have test clients, as those of skellam.tasks have")
    targets = pooled(task.test).targets.ravel()
    measured = getattr((task.metrics or {}).get("accuracy"), "__self__", None)
    counts = np.bincount(measured.measured(targets) if measured is not None else targets)
    return float(counts.max() / counts.sum())


def _marks(splits: Splits) -> tuple[int, ...]:
    """Unknown, begin and end: the last three numbers of a vocabulary."""
    return tuple(range(splits.classes - 3, splits.classes))
