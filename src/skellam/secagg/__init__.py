"""Secure aggregation: the sum of many vectors modulo ``2**bits``, and nothing else about them.

Sans-IO: bytes and arrays in, bytes and arrays out. The protocol is that of Bonawitz et al. (CCS
2017) against an active server, on the sparse graph of Bell et al. (CCS 2020) for large cohorts.
"""

from __future__ import annotations

from skellam.protocol.identity import Identity, Roster, Seal, SealVerifier
from skellam.secagg import client, server, simulation
from skellam.secagg.graph import Topology, topology
from skellam.secagg.parameters import Party, RoundParameters, SeenRounds, Setting
from skellam.secagg.server import Fault, Outcome

__all__ = [
    "Fault",
    "Identity",
    "Outcome",
    "Party",
    "Roster",
    "RoundParameters",
    "Seal",
    "SealVerifier",
    "SeenRounds",
    "Setting",
    "Topology",
    "client",
    "server",
    "simulation",
    "topology",
]


def __dir__() -> list[str]:
    return sorted(__all__)
