"""Rounds on a real fleet: the protocol's stages as Flower messages (extra ``flower``).

A client app registers its training function with `protect`; a server app hands its strategy a
`SecureGrid`, which `secured` makes. Neither side computes or encrypts anything here:
`skellam.codec`, `skellam.secagg` and `skellam.accounting` do.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from skellam.errors import MissingExtraError

if TYPE_CHECKING:
    from skellam.engines.flower.client import protect
    from skellam.engines.flower.node import Limits, Node
    from skellam.engines.flower.round_config import MetricRanges
    from skellam.engines.flower.server import SecureGrid, secured
    from skellam.engines.flower.simulation import (
        InProcessGrid,
        simulated_roster,
        simulation_folder,
    )
    from skellam.engines.flower.strategies import mean_based
    from skellam.engines.key_files import read_roster
    from skellam.engines.leader import LeaderFiles

__all__ = [
    "InProcessGrid",
    "LeaderFiles",
    "Limits",
    "MetricRanges",
    "Node",
    "SecureGrid",
    "mean_based",
    "protect",
    "read_roster",
    "secured",
    "simulated_roster",
    "simulation_folder",
]

_MODULES = {
    "InProcessGrid": "simulation",
    "LeaderFiles": "server",
    "Limits": "node",
    "MetricRanges": "round_config",
    "Node": "node",
    "SecureGrid": "server",
    "mean_based": "strategies",
    "protect": "client",
    "read_roster": "node",
    "secured": "server",
    "simulated_roster": "simulation",
    "simulation_folder": "simulation",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  (PEP 562)
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "flwr":
            raise
        raise MissingExtraError("Flower is not installed: pip install 'skellam[flower]'") from error


def __dir__() -> list[str]:
    return sorted(__all__)
