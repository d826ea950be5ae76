"""A node: who it is, whom it knows, what it allows, and where it keeps account."""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from skellam.engines.flower import journal
from skellam.engines.flower.keys import read_identity, read_roster
from skellam.engines.flower.limits import Limits
from skellam.errors import DataError
from skellam.secagg import Identity, Party, Roster, Round

NODE_CONFIG_KEY = "skellam"
"""The key of a SuperNode's ``--node-config`` that names its file."""


@dataclass(frozen=True, slots=True)
class Node:
    """One client of the fleet. ``spend`` is its ledger, ``spend.stages`` what it ever began."""

    identity: Identity
    roster: Roster
    limits: Limits
    spend: Path

    @classmethod
    def load(cls, path: str | Path) -> Node:
        """Read a node's TOML file; the paths in it are relative to its folder."""
        file = Path(path)
        record = _read(file)
        limits = record.pop("limits", None)
        names = {f.name: f.default is MISSING for f in fields(Limits)}
        required = {name for name, needed in names.items() if needed}
        if not isinstance(limits, dict) or not required <= set(limits) <= set(names):
            raise DataError(f"{file} must have a table [limits] with {', '.join(names)}")
        if set(record) != {"identity", "roster", "spend"}:
            raise DataError(f"{file} must name the files identity, roster and spend")
        place = {name: file.parent / str(value) for name, value in record.items()}
        return cls(
            read_identity(place["identity"]),
            read_roster(place["roster"]),
            Limits(**limits),
            place["spend"],
        )

    def enter(self, round_id: bytes, stage: str) -> None:
        """Note durably that ``stage`` begins; a second time raises `TamperError`."""
        journal.enter(self.spend.with_name(self.spend.name + ".stages"), round_id, stage)

    def party(self, this: Round) -> Party:
        """Return this node as a party to ``this`` round."""
        return Party(this, self.roster, self.identity)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as a node's TOML file: {error}") from error
