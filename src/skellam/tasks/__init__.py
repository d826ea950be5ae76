"""Tasks: the paper's and the stand-in data sets, models and presets.

They use `skellam.federated`, which never needs them: somewhere to begin, and to compare with.

>>> from skellam import tasks                                                # doctest: +SKIP
>>> task = tasks.digits()
>>> plan = tasks.preset("digits").plan(task, epsilon=4)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from skellam.errors import MissingExtraError

if TYPE_CHECKING:
    from skellam.tasks import models
    from skellam.tasks.preparation import NextToken, Splits, Vocabulary
    from skellam.tasks.tasks import (
        PRESETS,
        Cell,
        Preset,
        digits,
        emnist,
        image_task,
        mnist_writers,
        preset,
        shakespeare,
        shakespeare_roles,
        stackexchange,
        stackoverflow,
        sweep,
        text_task,
        unigram_accuracy,
        unipen,
    )

__all__ = [
    "PRESETS",
    "Cell",
    "NextToken",
    "Preset",
    "Splits",
    "Vocabulary",
    "digits",
    "emnist",
    "image_task",
    "mnist_writers",
    "models",
    "preset",
    "shakespeare",
    "shakespeare_roles",
    "stackexchange",
    "stackoverflow",
    "sweep",
    "text_task",
    "unigram_accuracy",
    "unipen",
]
_HOMES = {
    **dict.fromkeys(("NextToken", "Splits", "Vocabulary"), "preparation"),
    "models": "models",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  (PEP 562: torch is imported when it is needed)
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = import_module(f"{__name__}.{_HOMES.get(name, 'tasks')}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtraError("tasks need torch: pip install 'skellam[torch]'") from error
    return home if name == "models" else getattr(home, name)


def __dir__() -> list[str]:
    return sorted(__all__)
