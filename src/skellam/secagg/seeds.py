"""Which removable noise seeds may be opened: the rule of add-then-remove, in whole numbers.

Each of ``n`` participants adds the share ``mu / n`` of the planned noise and, besides, components
of 1, 2, 4, ... per cent of that share, each from a seed of its own. When D drop out, the n - D
survivors must carry ``mu / (n - D)`` each, that is ``D / (n - D)`` of a share more than their own;
so they keep the components that make up the least whole number of per cent above it, and the seeds
of all others are opened, so that the server can take that noise off again. What is left is
at least the planned variance and less than 1 % above it:
``(n - D) / n * (1 + ceil(100 D / (n - D)) / 100)`` lies in ``[1, 1 + (n - D) / (100 n))``.
(After Jiang, Wang, Chen, "Efficient federated learning with dropout-resilient differential
privacy", EuroSys 2024.)
"""

from __future__ import annotations

from skellam import _checks


def per_cents(participants: int, tolerated: int) -> tuple[int, ...]:
    """Return the size of each removable component, in per cent of one participant's share."""
    count = _percent(participants, tolerated).bit_length()
    return tuple(1 << j for j in range(count))


def removable(participants: int, tolerated: int, dropped: int) -> tuple[int, ...]:
    """Return the indices of the components to remove when ``dropped`` of the tolerated dropped."""
    _checks.integer("dropped", dropped, 0, tolerated)
    kept = _percent(participants, dropped)
    return tuple(j for j in range(len(per_cents(participants, tolerated))) if not kept >> j & 1)


def _percent(participants: int, dropped: int) -> int:
    """Return the least whole per cent of a share that makes up for ``dropped`` others."""
    _checks.integer("dropped", dropped, 0, participants - 1)
    return -(-100 * dropped // (participants - dropped))
