"""Tables by law and parameter: the latest ones, up to a limit of memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

from skellam.noise import _table
from skellam.noise._table import Table
from skellam.noise._weights import Weights

_LIMIT = 1 << 27
_tables: OrderedDict[Hashable, Table] = OrderedDict()
_lock = threading.Lock()


def table(key: Hashable, weights: Callable[[], Weights]) -> Table:
    """Return the table for ``key``, built from ``weights()`` when it is not at hand."""
    with _lock:
        if key in _tables:
            _tables.move_to_end(key)
            return _tables[key]
    made = _table.build(weights())
    with _lock:
        _tables[key] = made
        while len(_tables) > 1 and sum(each.nbytes for each in _tables.values()) > _LIMIT:
            _tables.popitem(last=False)
    return made
