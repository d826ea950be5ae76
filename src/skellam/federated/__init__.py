"""Federated training: the loop for any torch module, loss, optimiser and data.

>>> from skellam import federated as fl                                      # doctest: +SKIP
>>> task = fl.Task(net, clients, loss=F.cross_entropy, optimizer=fl.sgd(0.1), validation=held_out)
>>> history = fl.train(task, plan, aggregate=fl.secure(), entropy=sk.SystemEntropy(), folder="run")
>>> net = history.torch_model()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from skellam.errors import MissingExtraError
from skellam.plan import AdaptiveClip

if TYPE_CHECKING:
    from skellam.federated import data
    from skellam.federated.aggregation import (
        Aggregation,
        ServerOptimiser,
        adam,
        fedavg,
        non_private,
        secure,
        trusted_sum,
        two_servers,
        unmasked,
    )
    from skellam.federated.history import Header, History, Record, Stop
    from skellam.federated.modules import fix, private_ready
    from skellam.federated.monitoring import progress
    from skellam.federated.optimizers import Schedule, sgd, torch_schedule
    from skellam.federated.task import (
        ClientRound,
        GroupWorker,
        Task,
        Trainable,
        Worker,
        accuracy,
    )
    from skellam.federated.training import train

_MODULES = {
    "history": ("Header", "History", "Record", "Stop"),
    "modules": ("fix", "private_ready"),
    "monitoring": ("progress",),
    "aggregation": (
        "Aggregation",
        "ServerOptimiser",
        "adam",
        "fedavg",
        "non_private",
        "secure",
        "trusted_sum",
        "two_servers",
        "unmasked",
    ),
    "optimizers": ("Schedule", "sgd", "torch_schedule"),
    "task": ("ClientRound", "GroupWorker", "Task", "Trainable", "Worker", "accuracy"),
    "training": ("train",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AdaptiveClip",
    "Aggregation",
    "ClientRound",
    "GroupWorker",
    "Header",
    "History",
    "Record",
    "Schedule",
    "ServerOptimiser",
    "Stop",
    "Task",
    "Trainable",
    "Worker",
    "accuracy",
    "adam",
    "data",
    "fedavg",
    "fix",
    "non_private",
    "private_ready",
    "progress",
    "secure",
    "sgd",
    "torch_schedule",
    "train",
    "trusted_sum",
    "two_servers",
    "unmasked",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401  (PEP 562: torch is imported when it is needed)
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = import_module(f"{__name__}.{_HOMES.get(name, name)}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtraError("training needs torch: pip install 'skellam[torch]'") from error
    return getattr(home, name) if name in _HOMES else home


def __dir__() -> list[str]:
    return sorted(__all__)
