"""Federated learning and analytics with a privacy guarantee and no trusted server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skellam import errors
from skellam.entropy import SeededEntropy, SystemEntropy
from skellam.errors import SkellamError
from skellam.vectors import Lattice, Reals, Residues

if TYPE_CHECKING:
    from skellam.plan import Plan

__all__ = [
    "Lattice",
    "Plan",
    "Reals",
    "Residues",
    "SeededEntropy",
    "SkellamError",
    "SystemEntropy",
    "errors",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:  # noqa: ANN401  (PEP 562: the plan is loaded when it is used)
    if name == "Plan":
        from skellam.plan import Plan

        return Plan
    raise AttributeError(f"module 'skellam' has no attribute {name!r}")
