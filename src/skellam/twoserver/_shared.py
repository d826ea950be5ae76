"""Imports from other packages that `twoserver` and its siblings both need.

Everything else in this package takes these names from here.
"""

from __future__ import annotations

from skellam.noise import SkellamSampler
from skellam.secagg import wire
from skellam.secagg.identity import Identity, Roster
from skellam.secagg.masks import add_masks
from skellam.secagg.parameters import MAX_LENGTH
from skellam.secagg.wire import (
    MAX_PARTICIPANTS,
    Blob,
    Digest,
    Fixed,
    Flag,
    Id,
    Many,
    Maybe,
    Nested,
    Numbers,
    Signature,
    Text,
    Uint,
)
from skellam.vectors import pack_residues, packed_size, unpack_residues

__all__ = [
    "MAX_LENGTH",
    "MAX_PARTICIPANTS",
    "Blob",
    "Digest",
    "Fixed",
    "Flag",
    "Id",
    "Identity",
    "Many",
    "Maybe",
    "Nested",
    "Numbers",
    "Roster",
    "Signature",
    "SkellamSampler",
    "Text",
    "Uint",
    "add_masks",
    "pack_residues",
    "packed_size",
    "unpack_residues",
    "wire",
]
