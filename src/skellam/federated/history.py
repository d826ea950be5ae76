"""History of a run: what may be shown of it, and the folder in which it lies.

Shown are released sums, measures on public data, and what they cost. Cohorts, seeds, training
losses, exact clip rates, failures and the time that a round took (which tells the size of its
cohort) are secrets of the operator's and have no field in a `Record`.

A checkpoint is what a run needs to go on after a kill, in one file that is complete or not there: a
NumPy archive with one line after it, the format's name and the SHA-256 digest of the archive, so
that no byte can change unseen. It names the last line of the ledger that the run spent from:
another ledger, or an older copy, is refused on resuming. There is no position of a random stream in
it (`sampling.Streams`): a round that was cut off is run again, with the same bits where they replay
and with new ones, spent for again, where they are secret.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.accounting.ledger import Head
from skellam.engines import durable
from skellam.engines.local import RoundResult
from skellam.errors import DataError, DomainError
from skellam.federated.aggregation import ServerState
from skellam.federated.sampling import Participations
from skellam.plan import AdaptiveClip, AnyGuarantees, CalibratedPlan
from skellam.plan.clipping import unclipped_fraction

_FORMAT = b"skellam/checkpoint/2"


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """The state before round ``round``."""

    round: int
    state: ServerState
    run: bytes
    """Names this run in the keys of its spends."""
    fingerprint: str
    """Digest of all that must be the same when the run goes on."""
    head: Head | None
    """The ledger's last line, which it must still have; none where nothing is spent."""
    clip: AdaptiveClip | None = None
    """The clip of round ``round``, if it adapts."""
    earlier: bytes = b""
    """What the rounds so far left for those of the same band (`skellam.engines.correlated`)."""
    history: str = ""
    """SHA-256 digest of the lines of ``history.jsonl`` before this round."""
    record: str = ""
    """The last of these lines, which a kill may have kept from the file."""

    def save(self, path: Path) -> None:
        """Replace the checkpoint at ``path``."""
        buffer = io.BytesIO()
        arrays = {f"memory_{i}": array for i, array in enumerate(self.state.moments)}
        if self.clip is not None:
            arrays["clip"] = np.array([self.clip.clip, self.clip.target, self.clip.learning_rate])
        if self.earlier:
            arrays["earlier"] = np.frombuffer(self.earlier, dtype=np.uint8)
        head = self.head or Head()
        np.savez(
            buffer,
            round=self.round,
            step=self.state.step,
            model=self.state.model,
            run=np.frombuffer(self.run, dtype=np.uint8),
            fingerprint=self.fingerprint,
            history=self.history,
            record=self.record,
            ledger_line=head.line,
            ledger_digest=head.digest,
            **arrays,  # type: ignore[arg-type]
        )
        durable.replace(path, durable.seal(buffer.getvalue(), _FORMAT), mode=durable.SECRET)

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Return the checkpoint at ``path``, or raise `DataError`."""
        try:
            with np.load(io.BytesIO(_archive(path)), allow_pickle=False) as file:
                count = sum(name.startswith("memory_") for name in file)
                memory = tuple(file[f"memory_{i}"] for i in range(count))
                line, digest = int(file["ledger_line"]), str(file["ledger_digest"])
                return cls(
                    round=int(file["round"]),
                    state=ServerState(file["model"], memory, int(file["step"])),
                    run=file["run"].tobytes(),
                    fingerprint=str(file["fingerprint"]),
                    head=Head(line, digest) if line else None,
                    clip=_clip(file["clip"]) if "clip" in file else None,
                    earlier=file["earlier"].tobytes() if "earlier" in file else b"",
                    history=str(file["history"]),
                    record=str(file["record"]),
                )
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise DataError(
                f"cannot read the checkpoint {path}: {error}; restore it from a copy, or start "
                "the run in another folder"
            ) from error


def _archive(path: Path) -> bytes:
    """Return the archive in the file at ``path``, its digest checked."""
    octets = path.read_bytes()
    if (archive := durable.unseal(octets, _FORMAT)) is not None:
        return archive
    if _FORMAT not in octets[-200:] and zipfile.is_zipfile(path):
        raise DataError(
            f"the checkpoint {path} is of version 0.1, or lost its end: it cannot say which ledger "
            "it belongs to; finish the run with skellam 0.1, or start it in another folder"
        )
    raise DataError(
        f"the checkpoint {path} was changed: its digest does not match; restore it from a copy, "
        "or start the run in another folder"
    )


def _clip(numbers: NDArray[np.float64]) -> AdaptiveClip:
    clip, target, learning_rate = numbers.tolist()
    return AdaptiveClip(clip=clip, target=target, learning_rate=learning_rate)


if TYPE_CHECKING:
    from torch import nn

VERSION = 2
_MEASURES = ("test", "validation")


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
    test: Mapping[str, float | None] = field(default_factory=dict)
    """Measures on test data by name; ``None`` where one is not finite."""
    validation: Mapping[str, float | None] = field(default_factory=dict)
    epsilon_public: float | None = None
    """Of all that the ledger holds, against whoever sees the releases."""
    epsilon_server: float | None = None
    """Against the server, for every client."""
    epsilon_server_mean: float | None = None
    """Against the server, for a client with the mean number of participations."""
    wrap_k: float | None = None
    """Deviations of the released sum that half the modulus holds."""
    wrap_probability: float | None = None
    bytes_per_client: int | None = None
    clip: float | None = None
    """The clip of this round, if it adapts: it follows from what earlier rounds released."""
    clipped: float | None = None
    """Share of clients that the clip touched, with noise, where the plan spends on it."""

    @classmethod
    def of_skipped(cls, number: int, reason: str, clip: AdaptiveClip | None) -> Self:
        """Return what is shown of a round that released nothing."""
        return cls(round=number, skipped=reason, clip=None if clip is None else clip.clip)

    @classmethod
    def of_release(
        cls, number: int, result: RoundResult, plan: CalibratedPlan, clip: AdaptiveClip | None
    ) -> Self:
        """Return what is shown of a round that released ``result``."""
        record = cls(round=number, clip=None if clip is None else clip.clip)
        if result.wrap is not None:
            record = replace(
                record,
                wrap_k=_finite(result.wrap.k),
                wrap_probability=_finite(result.wrap.probability),
                bytes_per_client=plan.bytes_per_client,
            )
        if result.clip_count is None:
            return record
        return replace(record, clipped=1 - unclipped_fraction(result.clip_count, plan.cohort))

    def with_measures(self, test: Mapping[str, float], validation: Mapping[str, float]) -> Self:
        """Return the record of a round after which the model was measured."""
        return replace(self, test=_all_finite(test), validation=_all_finite(validation))

    @property
    def evaluated(self) -> bool:
        """Whether the model was measured after this round."""
        return bool(self.test or self.validation)

    def measured(self, name: str) -> float | None:
        """Return a measure such as ``"validation_loss"``; nothing if there is none."""
        split, _, measure = name.partition("_")
        if split not in _MEASURES or not measure:
            raise DomainError(f"name must begin with test_ or validation_, got {name!r}")
        found: Mapping[str, float | None] = getattr(self, split)
        return found.get(measure)

    @property
    def measures(self) -> set[str]:
        """The names of what was measured."""
        return {*self.test, *self.validation}

    @property
    def test_loss(self) -> float | None:
        """The loss on test data."""
        return self.test.get("loss")

    @property
    def test_accuracy(self) -> float | None:
        """The accuracy on test data."""
        return self.test.get("accuracy")

    @property
    def validation_loss(self) -> float | None:
        """The loss on validation data."""
        return self.validation.get("loss")

    @property
    def validation_accuracy(self) -> float | None:
        """The accuracy on validation data."""
        return self.validation.get("accuracy")

    def as_dict(self) -> dict[str, Any]:
        """Return all fields, each measure under its own name: ``test_loss``."""
        flat: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in _MEASURES:
                flat |= {f"{each.name}_{name}": number for name, number in value.items()}
            else:
                flat[each.name] = value
        return flat

    def to_line(self) -> str:
        """Return the record as a line of JSON; an infinite epsilon is written ``"inf"``."""
        written = {k: "inf" if v == inf else v for k, v in self.as_dict().items()}
        return json.dumps(written, allow_nan=False)

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Return the record that `to_line` wrote, or raise `DataError`."""
        try:
            read: dict[str, Any] = {
                k: inf if v == "inf" else v for k, v in json.loads(line).items()
            }
            for split in _MEASURES:
                named = [k for k in read if k.startswith(f"{split}_")]
                read[split] = {k.removeprefix(f"{split}_"): read.pop(k) for k in named}
            return cls(**read)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
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
    plan: CalibratedPlan
    clip: AdaptiveClip | None = None
    """The clip that the run began with, if it adapts."""

    def to_json(self) -> str:
        """Return the header as JSON."""
        record = {f.name: getattr(self, f.name) for f in fields(self)}
        record["plan"] = json.loads(self.plan.to_json())
        clip = record.pop("clip")
        if clip is not None:
            record["clip"] = asdict(clip)
        return json.dumps(durable.seal_record({"skellam-run": VERSION, **record}), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the header that `to_json` wrote, or raise `DataError`."""
        try:
            sealed = json.loads(text)
            if (found := sealed["skellam-run"]) != VERSION:
                raise DataError(
                    f"the run is of version {found} and version {VERSION} is needed; read it with "
                    "the skellam that wrote it"
                )
            record = durable.unseal_record(sealed)
            del record["skellam-run"]
            plan = CalibratedPlan.from_json(json.dumps(record.pop("plan")))
            clip = record.pop("clip", None)
            return cls(**record, plan=plan, clip=None if clip is None else AdaptiveClip(**clip))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
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
    """The trained weights as one vector."""
    stop: Stop
    guarantees: AnyGuarantees | None = None
    """What holds for all that was released; none without noise, or where it replays."""
    folder: Path | None = None
    module: Any = field(default=None, repr=False)

    def torch_model(self) -> nn.Module:
        """Return the trained module, a copy: its ``state_dict()`` is what ``model.pt`` has."""
        if self.module is None:
            raise DomainError("the task has no torch module; the weights are in history.model")
        made: nn.Module = copy.deepcopy(self.module)
        return made

    def last(self, rounds: int = 100) -> LastRounds:
        """Return the means over those of the last ``rounds`` rounds that were evaluated."""
        count = _checks.integer("rounds", rounds, 1)
        shown = [r for r in self.records[-count:] if r.evaluated]
        if not shown:
            raise DomainError("none of these rounds was evaluated; take more of them")
        return LastRounds(*(_mean(shown, name) for name in LastRounds._fields))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The records as dictionaries, as a data frame takes them."""
        return [record.as_dict() for record in self.records]


@dataclass(frozen=True, slots=True)
class Folder:
    """The files of one run.

    ``run.json``, ``history.jsonl`` with its digest, ``tensorboard``, ``model.pt``, ``ledger`` and
    its tail may be shown; ``checkpoint.npz``, ``participations.npz`` and ``operator.jsonl`` with
    its digest are the operator's, of mode 0600.
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
    def events(self) -> Path:
        """The same numbers for TensorBoard, where it is installed."""
        return self.path / "tensorboard"

    @contextmanager
    def prepared(self, *, resume: bool) -> Iterator[None]:
        """Make the folder and keep other processes out of it.

        One that holds a run already is refused unless the run is to go on and can.
        """
        durable.make_folder(self.path)
        with durable.locked(self.path):
            known = durable.exists(self._checkpoint)
            if known and not resume:
                raise DomainError(
                    f"{self.path} holds a run; pass resume=True to go on, or choose another folder"
                )
            if not known and self.records():
                raise DataError(
                    f"{self._checkpoint} is missing, and {self.history} has rounds of a run; "
                    "restore it from a copy, or choose another folder"
                )
            yield

    def start(self, header: Header, checkpoint: Checkpoint) -> Checkpoint:
        """Write a new run's header and first checkpoint, and return the latter."""
        durable.replace(self.path / "run.json", header.to_json().encode(), mode=durable.PUBLIC)
        _history(self.history).cut(0)
        return self._keep(checkpoint, [])

    def checkpoint(self) -> Checkpoint | None:
        """Return the last checkpoint, if there is one; the history must be the one it saw."""
        if not durable.exists(self._checkpoint):
            return None
        found = Checkpoint.load(self._checkpoint)
        lines = _history(self.history).lines()
        if len(lines) == found.round - 1:
            lines.append(found.record)
        if found.history != _digest(lines):
            raise DataError(f"{self.history} has lost or changed lines; restore it from a copy")
        return found

    def go_on(self, checkpoint: Checkpoint) -> None:
        """Complete the history, and raise `DataError` before anything is spent that is not kept."""
        log = _history(self.history)
        if len(log.lines()) < checkpoint.round:
            log.append(checkpoint.record)
        checkpoint.save(self._checkpoint)
        for each in (log, _operator(self.path)):
            each.require_writable()

    def keep(self, record: Record, checkpoint: Checkpoint) -> None:
        """Write the checkpoint after a round, then the round's record, which may then be shown."""
        log = _history(self.history)
        self._keep(checkpoint, [*log.lines(), record.to_line()])
        log.append(record.to_line())

    def _keep(self, checkpoint: Checkpoint, lines: list[str]) -> Checkpoint:
        kept = replace(checkpoint, history=_digest(lines), record=lines[-1] if lines else "")
        kept.save(self._checkpoint)
        return kept

    def keep_participations(self, counts: Participations) -> None:
        """Write down whose data the round that is about to be released has."""
        durable.replace(self._participations, counts.to_bytes(), mode=durable.SECRET)

    def participations(self) -> Participations | None:
        """Return what was last written down of participations, if anything was."""
        if not durable.exists(self._participations):
            return None
        with durable.explained(self._participations, "read"):
            return Participations.from_bytes(self._participations.read_bytes())

    def keep_model(self, octets: bytes) -> None:
        """Write ``model.pt``, the trained module's state as ``torch.save`` wrote it."""
        durable.replace(self.path / "model.pt", octets, mode=durable.PUBLIC)

    def log_operator(self, number: int, **entries: int | str) -> None:
        """Write down what nobody but the operator may see."""
        _operator(self.path).append(json.dumps({"round": number, **entries}))

    def records(self) -> list[Record]:
        """Return the records of all rounds so far."""
        return read_records(self.history)

    @property
    def _checkpoint(self) -> Path:
        return self.path / "checkpoint.npz"

    @property
    def _participations(self) -> Path:
        return self.path / "participations.npz"


def read_operator(folder: Path) -> list[dict[str, Any]]:
    """Return the operator's lines of a run: cohort, survivors, failures and skips by round."""
    log = _operator(folder)
    try:
        found = [json.loads(line) for line in log.lines()]
    except (ValueError, RecursionError) as error:
        raise DataError(f"{log.path} is damaged: {error}; move it away") from error
    counts = ("round", "invited", "survivors", "failures")
    for number, line in enumerate(found, start=1):
        if not isinstance(line, dict) or any(type(line.get(name)) is not int for name in counts):
            raise DataError(
                f"{log.path} is damaged: line {number} must have the integers {', '.join(counts)}; "
                "move it away"
            )
    return found


def read_records(path: Path) -> list[Record]:
    """Return the records in ``path``, or raise `DataError` if its lines were changed."""
    return [Record.from_line(line) for line in _history(path).lines()]


def _history(path: Path) -> durable.Log:
    return durable.Log(path, durable.PUBLIC)


def _operator(folder: Path) -> durable.Log:
    return durable.Log(folder / "operator.jsonl", durable.SECRET)


def _digest(lines: Sequence[str]) -> str:
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def _all_finite(measures: Mapping[str, float]) -> dict[str, float | None]:
    return {name: _finite(value) for name, value in measures.items()}


def _finite(x: float) -> float | None:
    return x if isfinite(x) else None


def _mean(records: Sequence[Record], name: str) -> float:
    values = [value for record in records if (value := getattr(record, name)) is not None]
    return float(np.mean(values)) if values else float("nan")
