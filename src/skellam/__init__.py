"""Federated learning and analytics with a privacy guarantee and no trusted server."""

from __future__ import annotations

from skellam import errors
from skellam.entropy import SeededEntropy, SystemEntropy
from skellam.errors import SkellamError
from skellam.plan import Plan
from skellam.vectors import Lattice, Reals, Residues

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
