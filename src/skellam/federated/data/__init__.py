"""Federated data: one shape (`Clients`), and loaders for what users have."""

from __future__ import annotations

from skellam.federated.data.examples import (
    ClientData,
    Clients,
    Examples,
    arrays,
    as_clients,
    clients,
    pooled,
)
from skellam.federated.data.files import leaf, tff, tff_features
from skellam.federated.data.loaders import by_user, folder, hugging_face

__all__ = [
    "ClientData",
    "Clients",
    "Examples",
    "arrays",
    "as_clients",
    "by_user",
    "clients",
    "folder",
    "hugging_face",
    "leaf",
    "pooled",
    "tff",
    "tff_features",
]


def __dir__() -> list[str]:
    return sorted(__all__)
