"""The training loop: rounds of federated averaging, each paid for before it is released.

A round is drawn, written into the ledger, run, applied to the model, measured on public data, and
kept: first its record, then the checkpoint. Killed anywhere, the run goes on from its last
checkpoint. Noise that replays gives the round that was cut off again and costs nothing more; secret
noise is drawn anew, and both releases count, for the first may have been seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from hashlib import sha256
from math import isfinite
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import numpy as np

from skellam import _checks
from skellam.accounting.ledger import Ledger
from skellam.engines.local import Sum
from skellam.entropy import Entropy, random_bytes
from skellam.errors import BudgetError, DataError, DomainError
from skellam.federated.aggregate import Aggregation
from skellam.federated.checkpoint import Checkpoint
from skellam.federated.cohort import Population
from skellam.federated.evaluation import Evaluation
from skellam.federated.events import events
from skellam.federated.folder import Folder
from skellam.federated.history import Header, History, Record, Stop
from skellam.federated.purse import Nothing, Payer, Purse, open_ledger, require_whole
from skellam.federated.rounds import Rounds, Skipped
from skellam.federated.server import ServerOptimiser, ServerState, fedavg
from skellam.federated.streams import Streams
from skellam.federated.tasks import Task
from skellam.plan import AdaptiveClip, Plan

Watch: TypeAlias = Callable[[Record], object]


def train(
    task: Task,
    plan: Plan,
    *,
    aggregate: Aggregation,
    entropy: Entropy,
    clip: AdaptiveClip | None = None,
    server: ServerOptimiser | None = None,
    folder: str | PathLike[str] | None = None,
    ledger: Ledger | None = None,
    resume: bool = False,
    every: int = 1,
    watch: Watch | None = None,
) -> History:
    """Train ``task`` by ``plan`` and return what may be shown of it, with the model.

    ``clip`` moves from round to round, where the plan has ``quantile_noise`` for that; released
    means and what the server remembers of them are then scaled by each move.
    Without a ``ledger`` the run keeps one of its own, with the plan's target as its budget. A run
    with a ``folder`` goes on after a kill with ``resume``. The model is measured ``every`` so many
    rounds and after the last; ``watch`` is told each record.
    """
    population = Population(plan, len(task.splits.train))
    chosen = server or fedavg(momentum=0.9)
    setup = _Setup(task, population, aggregate, Streams.of(entropy), chosen, clip)
    _checks.integer("every", every, 1)
    with ExitStack() as stack:
        place = Folder(Path(folder or stack.enter_context(TemporaryDirectory())))
        place.prepare(resume=resume)
        book = None
        if aggregate.private(plan):  # its lock keeps other processes out of the folder
            book = stack.enter_context(open_ledger(ledger, place.ledger, plan))
        checkpoint = place.restore() or setup.begin(place)
        setup.require_same(checkpoint)
        purse = Nothing() if book is None else setup.payer(book, checkpoint)
        loop = _Loop(setup, place, purse, setup.rounds(place, purse), Evaluation.of(task), every)
        records = place.records()
        tell = [] if watch is None else [watch]
        if folder is not None:
            tell.append(stack.enter_context(events(place.events, start=checkpoint.round)))
        state, stop = loop.run(checkpoint, records, tell)
        return History(
            header=setup.header,
            records=tuple(records),
            model=state.model,
            stop=stop,
            guarantees=purse.guarantees(),
            folder=None if folder is None else place.path,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Setup:
    """What does not change in the course of a run."""

    task: Task
    population: Population
    aggregate: Aggregation
    streams: Streams
    server: ServerOptimiser
    clip: AdaptiveClip | None

    def __post_init__(self) -> None:
        if self.task.dimension != self.plan.dimension:
            raise DomainError(
                f"the plan's dimension must be {self.task.dimension}, the model's number of "
                f"parameters, got {self.plan.dimension}"
            )
        self.aggregate.require(self.plan, self.clip)

    @property
    def plan(self) -> Plan:
        return self.population.plan

    @property
    def header(self) -> Header:
        return Header(
            task=self.task.name,
            training=repr(self.task.training),
            server=self.server.name,
            aggregate=self.aggregate.name,
            population=self.population.statement,
            private=self.aggregate.private(self.plan),
            replayable=self.streams.replayable,
            plan=self.plan,
            clip=self.clip,
        )

    @property
    def fingerprint(self) -> str:
        """Digest of what must be the same when a run goes on; the entropy's seed is among it."""
        return sha256((self.header.to_json() + self.streams.commitment).encode()).hexdigest()

    def begin(self, place: Folder) -> Checkpoint:
        state = self.server.init(self.task.initial(entropy=self.streams("model")))
        run = random_bytes(32, entropy=self.streams("name"))
        checkpoint = Checkpoint(0, state, run, self.fingerprint, spends=0, clip=self.clip)
        place.start(self.header, checkpoint)
        return checkpoint

    def require_same(self, checkpoint: Checkpoint) -> None:
        if checkpoint.fingerprint != self.fingerprint:
            raise DataError(
                "the checkpoint is of a run with another task, plan, aggregation, clip or seed; "
                "resume with what the run began with"
            )

    def payer(self, ledger: Ledger, start: Checkpoint) -> Payer:
        require_whole(ledger, start.spends)
        return Payer(ledger, self.population, run=start.run, replayable=self.streams.replayable)

    def rounds(self, place: Folder, purse: Purse) -> Rounds:
        return Rounds(
            self.task,
            self.population,
            self.aggregate,
            self.streams,
            purse,
            place,
            self.task.learner(),
            tuple(self.task.splits.train),
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Loop:
    setup: _Setup
    folder: Folder
    purse: Purse
    rounds: Rounds
    evaluation: Evaluation
    every: int

    def run(
        self, start: Checkpoint, records: list[Record], tell: Sequence[Watch]
    ) -> tuple[ServerState, Stop]:
        """Return the last state, and why it is the last; ``records`` grows by every round's."""
        checkpoint = start
        for number in range(start.round, self.setup.plan.rounds):
            try:
                outcome, clip = self.rounds.run(number, checkpoint.state.model, checkpoint.clip)
            except BudgetError:
                return checkpoint.state, Stop.BUDGET
            state = self._applied(checkpoint, outcome, clip)
            record = self._record(number, state, outcome, checkpoint.clip)
            checkpoint = replace(
                checkpoint, round=number + 1, state=state, spends=self.purse.spends, clip=clip
            )
            self.folder.keep(record, checkpoint)
            records.append(record)
            for watch in tell:
                watch(record)
        return checkpoint.state, Stop.FINISHED

    def _applied(
        self, before: Checkpoint, outcome: Sum | Skipped, clip: AdaptiveClip | None
    ) -> ServerState:
        """Return the state after ``outcome``; all that moves the model is in units of the clip.

        So the noise of rounds that clipped far too high does not stay in the momentum, and a round
        that found its clip too high counts for less.
        """
        state, server, cohort = before.state, self.setup.server, float(self.setup.plan.cohort)
        if isinstance(outcome, Skipped):
            return state
        if clip is not None and before.clip is not None:
            ratio = clip.clip / before.clip.clip
            state, cohort = server.rescaled(state, ratio), cohort / ratio
        return server.apply(state, (outcome.total / cohort).values.astype(np.float32))

    def _record(
        self, number: int, state: ServerState, outcome: Sum | Skipped, clip: AdaptiveClip | None
    ) -> Record:
        record = Record(round=number, clip=None if clip is None else clip.clip)
        if isinstance(outcome, Skipped):
            record = replace(record, skipped=outcome.reason)
        elif outcome.wrap is not None:
            record = replace(
                record,
                wrap_k=_finite(outcome.wrap.k),
                wrap_probability=_finite(outcome.wrap.probability),
                bytes_per_client=self.setup.plan.bytes_per_client,
            )
        if (number + 1) % self.every and number + 1 < self.setup.plan.rounds:
            return record
        test, validation = self.evaluation.measure(state.model)
        measured = replace(
            record,
            test_loss=_finite(test.loss),
            test_accuracy=test.accuracy,
            validation_loss=_finite(validation.loss),
            validation_accuracy=validation.accuracy,
        )
        if (held := self.purse.guarantees()) is None:
            return measured
        return replace(
            measured,
            epsilon_public=held.public.epsilon,
            epsilon_server=held.server_mean.epsilon,
            epsilon_server_worst=held.server_worst.epsilon,
        )


def _finite(x: float) -> float | None:
    return x if isfinite(x) else None
