"""Two-server aggregation: a leader and a helper that do not collude; one message from a client.

Sans-IO: bytes and arrays in, bytes and arrays out. The roles are those of the IETF's DAP: the
leader trains, the helper is a machine of another organisation. Clients mask their vectors and seal
the masks' seeds to the helper; the servers open noisy sums, of one round or over a band of rounds.
"""

from __future__ import annotations

from skellam.twoserver import client, helper, leader, messages, simulation
from skellam.twoserver.chain import ChainHead
from skellam.twoserver.constants import RunConstants, RunLimits

__all__ = [
    "ChainHead",
    "RunConstants",
    "RunLimits",
    "client",
    "helper",
    "leader",
    "messages",
    "simulation",
]


def __dir__() -> list[str]:
    return sorted(__all__)
