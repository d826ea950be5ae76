"""Federated learning and analytics with a privacy guarantee and no trusted server."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from skellam import errors
from skellam.entropy import SeededEntropy, SystemEntropy
from skellam.errors import SkellamError
from skellam.vectors import Lattice, Reals, Residues

if TYPE_CHECKING:
    from skellam import (
        accounting,
        analytics,
        audit,
        codec,
        cohorts,
        engines,
        federated,
        noise,
        plan,
        report,
        secagg,
        tasks,
        twoserver,
    )
    from skellam.plan import AdaptiveClip, CalibratedPlan, Plan

__version__ = "0.2.0"
_PACKAGES = (
    "accounting",
    "analytics",
    "audit",
    "codec",
    "cohorts",
    "engines",
    "federated",
    "noise",
    "plan",
    "report",
    "secagg",
    "tasks",
    "twoserver",
)
_PLANNING = ("AdaptiveClip", "CalibratedPlan", "Plan")

__all__ = [
    "AdaptiveClip",
    "CalibratedPlan",
    "Lattice",
    "Plan",
    "Reals",
    "Residues",
    "SeededEntropy",
    "SkellamError",
    "SystemEntropy",
    "accounting",
    "analytics",
    "audit",
    "codec",
    "cohorts",
    "engines",
    "errors",
    "federated",
    "noise",
    "plan",
    "report",
    "secagg",
    "tasks",
    "twoserver",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401  (PEP 562: packages are loaded when used)
    if name in _PLANNING:
        return getattr(import_module("skellam.plan"), name)
    if name in _PACKAGES:
        return import_module(f"skellam.{name}")
    raise AttributeError(f"module 'skellam' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
