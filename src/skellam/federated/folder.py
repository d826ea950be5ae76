"""What a run leaves in its folder, and which of it may be shown."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from skellam.engines import durable
from skellam.errors import DataError, DomainError
from skellam.federated.checkpoint import Checkpoint
from skellam.federated.history import Header, Record, read_records


@dataclass(frozen=True, slots=True)
class Folder:
    """The files of one run.

    ``run.json``, ``history.jsonl``, ``tensorboard``, ``ledger`` and its tail may be shown;
    ``checkpoint.npz`` and ``operator.jsonl`` are the operator's, mode 0600.
    """

    path: Path

    @property
    def ledger(self) -> Path:
        """Where the ledger is unless the user brings one."""
        return self.path / "ledger"

    @property
    def history(self) -> Path:
        """A line of JSON for every round."""
        return self.path / "history.jsonl"

    @property
    def header(self) -> Path:
        """What was run."""
        return self.path / "run.json"

    @property
    def events(self) -> Path:
        """The same numbers for TensorBoard, where it is installed."""
        return self.path / "tensorboard"

    def prepare(self, *, resume: bool) -> None:
        """Make the folder; one that holds a run already is refused unless the run is to go on."""
        self.path.mkdir(parents=True, exist_ok=True)
        if self._checkpoint.exists() and not resume:
            raise DomainError(
                f"{self.path} holds a run; pass resume=True to go on, or choose another folder"
            )

    def start(self, header: Header, checkpoint: Checkpoint) -> None:
        """Write a new run's header and first checkpoint."""
        durable.replace(self.header, header.to_json().encode(), mode=durable.PUBLIC)
        durable.replace(self.history, b"", mode=durable.PUBLIC)
        checkpoint.save(self._checkpoint)

    def restore(self) -> Checkpoint | None:
        """Return the last checkpoint, if there is one, with the history cut back to it."""
        if not self._checkpoint.exists():
            return None
        checkpoint = Checkpoint.load(self._checkpoint)
        kept = [r.to_line() + "\n" for r in self.records()[: checkpoint.round]]
        if len(kept) < checkpoint.round:
            raise DataError(f"{self.history} has lost lines that the checkpoint saw")
        durable.replace(self.history, "".join(kept).encode(), mode=durable.PUBLIC)
        return checkpoint

    def keep(self, record: Record, checkpoint: Checkpoint) -> None:
        """Write a round's record, then the checkpoint that has it."""
        durable.append(self.history, record.to_line(), mode=durable.PUBLIC)
        checkpoint.save(self._checkpoint)

    def tell_operator(self, number: int, **numbers: int) -> None:
        """Write down what nobody but the operator may see."""
        line = json.dumps({"round": number, **numbers})
        durable.append(self.path / "operator.jsonl", line, mode=durable.SECRET)

    def records(self) -> list[Record]:
        """Return the records of all rounds so far."""
        return read_records(self.history)

    @property
    def _checkpoint(self) -> Path:
        return self.path / "checkpoint.npz"
