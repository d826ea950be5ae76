"""Federated data: one shape (`ClientData`), and loaders for the files that users really hold."""

from __future__ import annotations

from skellam.federated.data.clients import ClientData, Clients, Examples, client_data, pooled
from skellam.federated.data.digits import digits
from skellam.federated.data.paper_sets import emnist, shakespeare, stackoverflow
from skellam.federated.data.split import Splits
from skellam.federated.data.stand_ins import (
    mnist_writers,
    shakespeare_roles,
    stackexchange,
    unipen,
)
from skellam.federated.data.vocabulary import Vocabulary

__all__ = [
    "ClientData",
    "Clients",
    "Examples",
    "Splits",
    "Vocabulary",
    "client_data",
    "digits",
    "emnist",
    "mnist_writers",
    "pooled",
    "shakespeare",
    "shakespeare_roles",
    "stackexchange",
    "stackoverflow",
    "unipen",
]
