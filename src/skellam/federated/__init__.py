"""Private federated training: tasks, cohorts, the loop, and what may be shown of it.

>>> from skellam import federated as fl                                      # doctest: +SKIP
>>> history = fl.train(fl.tasks.digits(), plan, aggregate=fl.secure(dropout=0.05),
...                    entropy=sk.SystemEntropy(), folder="run")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from skellam.errors import MissingExtraError
from skellam.plan import AdaptiveClip

if TYPE_CHECKING:
    from skellam.federated import data, models, tasks
    from skellam.federated.aggregate import Aggregation, clear, plain, secure
    from skellam.federated.history import Header, History, Record, Stop
    from skellam.federated.local import LocalTraining
    from skellam.federated.presets import Preset, preset
    from skellam.federated.server import ServerOptimiser, adam, fedavg
    from skellam.federated.sweeps import sweep
    from skellam.federated.tasks import Task
    from skellam.federated.terminal import progress
    from skellam.federated.training import train

__all__ = [
    "AdaptiveClip",
    "Aggregation",
    "Header",
    "History",
    "LocalTraining",
    "Preset",
    "Record",
    "ServerOptimiser",
    "Stop",
    "Task",
    "adam",
    "clear",
    "data",
    "fedavg",
    "models",
    "plain",
    "preset",
    "progress",
    "secure",
    "sweep",
    "tasks",
    "train",
]

_HOMES = {
    "Aggregation": "aggregate",
    "Header": "history",
    "History": "history",
    "LocalTraining": "local",
    "Preset": "presets",
    "Record": "history",
    "ServerOptimiser": "server",
    "Stop": "history",
    "Task": "tasks",
    "adam": "server",
    "clear": "aggregate",
    "fedavg": "server",
    "plain": "aggregate",
    "preset": "presets",
    "progress": "terminal",
    "secure": "aggregate",
    "sweep": "sweeps",
    "train": "training",
}


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
