"""What may be shown of a run: released sums, public test data, and what both cost.

Cohorts, seeds, training losses, clip rates and the time that a round took (which tells the size of
its cohort) are secrets of the operator's and have no field here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.accounting.audiences import Audiences
from skellam.errors import DataError, DomainError
from skellam.plan import AdaptiveClip, Plan

VERSION = 1


class Stop(StrEnum):
    """Why a run ended."""

    FINISHED = "finished"
    """Every planned round was run."""
    BUDGET = "budget"
    """The ledger's budget allows no more releases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One round; ``None`` where there is nothing to show."""

    round: int
    skipped: str | None = None
    """Why nothing was released, if nothing was."""
    test_loss: float | None = None
    test_accuracy: float | None = None
    validation_loss: float | None = None
    validation_accuracy: float | None = None
    epsilon_public: float | None = None
    """Of all that the ledger holds, against whoever sees the releases."""
    epsilon_server: float | None = None
    """Against the server, for a client with the mean number of rounds."""
    epsilon_server_worst: float | None = None
    """Against the server, for a client in every round."""
    wrap_k: float | None = None
    """Deviations of the released sum that half the modulus holds."""
    wrap_probability: float | None = None
    bytes_per_client: int | None = None
    clip: float | None = None
    """The clip of this round, if it adapts: it follows from what earlier rounds released."""

    def to_line(self) -> str:
        """Return the record as a line of JSON; an infinite epsilon is written ``"inf"``."""
        written = {k: "inf" if v == inf else v for k, v in asdict(self).items()}
        return json.dumps(written, allow_nan=False)

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Return the record that `to_line` wrote, or raise `DataError`."""
        try:
            read: dict[str, Any] = {
                k: inf if v == "inf" else v for k, v in json.loads(line).items()
            }
            return cls(**read)
        except (ValueError, TypeError, AttributeError) as error:
            raise DataError(f"no record of a round: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What was run; the same for every round."""

    task: str
    training: str
    """How clients train."""
    server: str
    """How the server moves the model."""
    aggregate: str
    population: str
    """Whom the accounting is for; says so where that population is hypothetical."""
    private: bool
    replayable: bool
    """Whether the noise came from a seed: then nothing is guaranteed."""
    plan: Plan
    clip: AdaptiveClip | None = None
    """The clip that the run began with, if it adapts."""

    def to_json(self) -> str:
        """Return the header as JSON."""
        record = {f.name: getattr(self, f.name) for f in fields(self)}
        record["plan"] = json.loads(self.plan.to_json())
        clip = record.pop("clip")
        if clip is not None:
            record["clip"] = asdict(clip)
        return json.dumps({"skellam-run": VERSION, **record}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the header that `to_json` wrote, or raise `DataError`."""
        try:
            record = json.loads(text)
            if record.pop("skellam-run") != VERSION:
                raise DataError(f"the run is not of version {VERSION}")
            plan = Plan.from_json(json.dumps(record.pop("plan")))
            clip = record.pop("clip", None)
            return cls(**record, plan=plan, clip=None if clip is None else AdaptiveClip(**clip))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DataError(f"the run's header is damaged: {error}") from error


class LastRounds(NamedTuple):
    """Means over the last evaluated rounds: the paper's measure."""

    test_accuracy: float
    validation_accuracy: float
    test_loss: float
    validation_loss: float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class History:
    """A run so far: its header, a record a round, and the model."""

    header: Header
    records: tuple[Record, ...]
    model: NDArray[np.float32]
    stop: Stop
    guarantees: Audiences | None = None
    """What holds for all that was released; none without noise, or where it replays."""
    folder: Path | None = None

    def last(self, rounds: int = 100) -> LastRounds:
        """Return the means over those of the last ``rounds`` rounds that were evaluated."""
        count = _checks.integer("rounds", rounds, 1)
        shown = [r for r in self.records[-count:] if r.test_accuracy is not None]
        if not shown:
            raise DomainError("none of these rounds was evaluated; take more of them")
        return LastRounds(*(_mean(shown, name) for name in LastRounds._fields))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The records as dictionaries, as a data frame takes them."""
        return [asdict(record) for record in self.records]


def read_records(path: Path) -> list[Record]:
    """Return the whole lines of ``path``; a torn last line was never complete and is left out."""
    if not path.exists():
        return []
    *lines, _torn = path.read_text(encoding="utf-8").split("\n")
    return [Record.from_line(line) for line in lines]


def _mean(records: Sequence[Record], name: str) -> float:
    values = [value for record in records if (value := getattr(record, name)) is not None]
    return float(np.mean(values)) if values else float("nan")
