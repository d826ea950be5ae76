"""Secure aggregation: the sum of many vectors modulo ``2**bits``, and nothing else about them.

Sans-IO: bytes and arrays in, bytes and arrays out. The protocol is that of Bonawitz et al. (CCS
2017) against an active server, on the sparse graph of Bell et al. (CCS 2020) for large cohorts.
"""

from __future__ import annotations

from skellam.secagg import bus, client, seeds, server
from skellam.secagg.graph import Topology, topology
from skellam.secagg.identity import Identity, Roster
from skellam.secagg.inbox import Fault
from skellam.secagg.phase import Party, Setting
from skellam.secagg.round import History, Round
from skellam.secagg.seal import Seal, SealVerifier
from skellam.secagg.unlock import Outcome

__all__ = [
    "Fault",
    "History",
    "Identity",
    "Outcome",
    "Party",
    "Roster",
    "Round",
    "Seal",
    "SealVerifier",
    "Setting",
    "Topology",
    "bus",
    "client",
    "seeds",
    "server",
    "topology",
]
