"""Rounds on a real fleet: the protocol's stages as Flower messages (extra ``flower``).

A client app registers its training function with `protect`; a server app hands its strategy a
`SecureGrid`. Neither side computes or encrypts anything here: `skellam.codec`, `skellam.secagg` and
`skellam.accounting` do.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from skellam.errors import MissingExtraError

if TYPE_CHECKING:
    from skellam.engines.flower.client import protect
    from skellam.engines.flower.grid import SecureGrid
    from skellam.engines.flower.inprocess import InProcessGrid
    from skellam.engines.flower.keys import read_roster
    from skellam.engines.flower.limits import Limits
    from skellam.engines.flower.node import Node
    from skellam.engines.flower.strategies import mean_based
    from skellam.engines.flower.virtual import virtual_folder, virtual_roster

__all__ = [
    "InProcessGrid",
    "Limits",
    "Node",
    "SecureGrid",
    "mean_based",
    "protect",
    "read_roster",
    "virtual_folder",
    "virtual_roster",
]

_HOMES = {
    "InProcessGrid": "inprocess",
    "Limits": "limits",
    "Node": "node",
    "SecureGrid": "grid",
    "mean_based": "strategies",
    "protect": "client",
    "read_roster": "keys",
    "virtual_folder": "virtual",
    "virtual_roster": "virtual",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  (PEP 562)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "flwr":
            raise
        raise MissingExtraError("Flower is not installed: pip install 'skellam[flower]'") from error
