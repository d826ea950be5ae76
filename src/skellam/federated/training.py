"""The training loop: rounds of federated averaging, each written into a ledger before it opens.

Before the first round one client trains on one batch, so that what cannot work fails as it is and
costs nothing. A round is drawn and run; when its messages are in, its release is spent, and only
then the sum is opened, applied to the model, measured on public data, and kept: first its record,
then the checkpoint. Killed anywhere, the run goes on from its last checkpoint. Noise that replays
gives the round that was cut off again and costs nothing more; secret noise is drawn anew, and both
releases count if the first was spent, for it may have been seen. Where noise cancels over rounds
such a round is left out instead: opened again, it would show clients of earlier rounds twice.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from hashlib import sha256
from math import floor
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import numpy as np

from skellam import _checks
from skellam.accounting.ledger import Head, Ledger
from skellam.engines.correlated import CorrelatedAggregate
from skellam.engines.local import Round, RoundResult, adaptive, require_cohort
from skellam.entropy import Entropy, random_bytes
from skellam.errors import (
    BudgetError,
    DataError,
    DomainError,
    KindError,
    ThresholdError,
    TrainingError,
)
from skellam.federated.aggregation import (
    Aggregation,
    ServerOptimiser,
    ServerState,
    Vector,
    fedavg,
    require_server,
)
from skellam.federated.history import Checkpoint, Folder, Header, History, Record, Stop
from skellam.federated.modules import state_octets
from skellam.federated.monitoring import Watch, events
from skellam.federated.sampling import ParticipationCount, Population, Streams
from skellam.federated.spending import (
    LedgerSpender,
    NoSpending,
    Spender,
    open_ledger,
    require_same_ledger,
)
from skellam.federated.task import GroupWorker, Trainable, Worker
from skellam.plan import AdaptiveClip, CalibratedPlan

log = logging.getLogger(__name__)
_EXAMPLES = {
    "task": "fl.Task(model, clients)",
    "plan": "plan.calibrated(epsilon=4, delta=1e-6)",
    "aggregate": "fl.secure()",
    "entropy": "sk.SystemEntropy()",
    "server": "fl.fedavg() or fl.adam(learning_rate=0.01)",
}


def train(
    task: Trainable,
    plan: CalibratedPlan,
    *,
    aggregate: Aggregation,
    entropy: Entropy,
    clip: AdaptiveClip | None = None,
    server: ServerOptimiser | None = None,
    folder: str | PathLike[str] | None = None,
    ledger: Ledger | None = None,
    resume: bool = False,
    every: int = 1,
    max_failures: float = 0.2,
    watch: Watch | None = None,
) -> History:
    """Train ``task`` by ``plan`` and return what may be shown of it, with the model.

    ``clip`` moves from round to round, where the plan has ``quantile_noise`` for that; released
    means and the server's moments of them are then scaled by each move.
    Without a ``ledger`` the run keeps one of its own, with the plan's target as its budget. A run
    with a ``folder`` goes on after a kill with ``resume``. The model is measured ``every`` so many
    rounds and after the last; ``watch`` is given each record.

    A client whose training fails sends zeros with its noise, and the operator's log says so. Where
    more than ``max_failures`` of a cohort fail, the run stops with the first failure, before that
    round is spent.
    """
    _require_kinds(task=task, plan=plan, aggregate=aggregate, entropy=entropy, server=server)
    population = Population(plan, len(task.clients))
    chosen = server or fedavg(momentum=0.9)
    setup = _Setup(task, population, aggregate, Streams.of(entropy), chosen, clip)
    _checks.integer("every", every, 1)
    _checks.between("max_failures", max_failures, 0, 1)
    with ExitStack() as stack:
        files = Folder(Path(folder or stack.enter_context(TemporaryDirectory())))
        stack.enter_context(files.prepared(resume=resume))
        worker = task.worker()
        worker.rehearse(
            task.initial(entropy=setup.streams("model")), entropy=setup.streams("rehearsal")
        )
        known, opened = files.checkpoint(), None
        if known is not None:
            setup.require_same(known)
        if aggregate.private(plan):
            opened = stack.enter_context(open_ledger(ledger, files.ledger, plan, new=known is None))
        checkpoint = known or setup.begin(files, opened and opened.head)
        spender = NoSpending() if opened is None else setup.spender(opened, checkpoint)
        files.go_on(checkpoint)
        rounds = _Rounds(
            setup, spender, files, worker, max_failures=max_failures, start=checkpoint.round
        )
        spender.require_latest(checkpoint.round, rounds.count.max)
        watchers = [] if watch is None else [watch]
        if folder is not None:
            watchers.append(stack.enter_context(events(files.events, start=checkpoint.round)))
        records = files.records()
        loop = _Loop(setup, files, spender, rounds, worker, every, watchers)
        state, stop = loop.run(checkpoint, records)
        _require_release(records, spender, stop)
        module = task.torch_model(state.model)
        if module is not None:
            files.keep_model(state_octets(module))
        return History(
            header=setup.header,
            records=tuple(records),
            model=state.model,
            stop=stop,
            guarantees=spender.guarantees(),
            folder=None if folder is None else files.path,
            module=module,
        )


def _require_kinds(**given: Any) -> None:  # noqa: ANN401
    """Raise `KindError` for what people pass by mistake."""
    fits = {
        "task": hasattr(given["task"], "worker"),
        "plan": isinstance(given["plan"], CalibratedPlan),
        "aggregate": isinstance(given["aggregate"], Aggregation),
        "entropy": hasattr(given["entropy"], "fill"),
        "server": isinstance(given["server"], ServerOptimiser | None),
    }
    if wrong := next((name for name, fit in fits.items() if not fit), None):
        value = given[wrong]
        found = getattr(value, "__name__", type(value).__name__)
        raise KindError(f"{wrong} cannot be {found}; use {_EXAMPLES[wrong]}")


def _require_release(records: Sequence[Record], spender: Spender, stop: Stop) -> None:
    if any(record.skipped is None for record in records):
        return
    cost = f"{spender.spends} spends are in the ledger" if spender.spends else "nothing was spent"
    if stop is Stop.BUDGET:
        raise BudgetError(f"the budget allows no release, so nothing was trained; {cost}")
    raise TrainingError(
        f"none of {len(records)} rounds released anything, all were skipped "
        f"({records[-1].skipped}); {cost}; plan a larger cohort, or tolerate more dropouts"
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Setup:
    """What does not change in the course of a run."""

    task: Trainable
    population: Population
    aggregate: Aggregation
    streams: Streams
    server: ServerOptimiser
    clip: AdaptiveClip | None

    def __post_init__(self) -> None:
        if self.task.dimension != self.plan.dimension:
            raise DomainError(
                f"the plan's dimension must be {self.task.dimension}, the model's number of "
                f"trained parameters, got {self.plan.dimension}; use dimension=task.dimension"
            )
        self.aggregate.require(self.plan, self.clip)
        require_server(self.plan, self.server)

    @property
    def plan(self) -> CalibratedPlan:
        return self.population.plan

    @property
    def correlated(self) -> CorrelatedAggregate | None:
        """How rounds are run, if their noise cancels over rounds."""
        return self.aggregate.run_correlated if self.plan.correlated else None

    @property
    def header(self) -> Header:
        return Header(
            task=self.task.name,
            training=self.task.training,
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
        """Digest of what must be the same when a run goes on; the entropy's seed is among it.

        So are the clients in their order, by which they are counted and dealt into groups.
        """
        names = json.dumps([str(name) for name in self.task.clients])
        parts = self.header.to_json(), self.task.fixed, self.streams.commitment, names
        return sha256("".join(parts).encode()).hexdigest()

    def begin(self, files: Folder, head: Head | None) -> Checkpoint:
        state = self.server.init(self.task.initial(entropy=self.streams("model")))
        run = random_bytes(32, entropy=self.streams("name"))
        checkpoint = Checkpoint(0, state, run, self.fingerprint, head, clip=self.clip)
        return files.start(self.header, checkpoint)

    def require_same(self, checkpoint: Checkpoint) -> None:
        if checkpoint.fingerprint != self.fingerprint:
            raise DataError(
                "the checkpoint is of a run with another task, frozen weight, plan, aggregation, "
                "clip or seed, or other clients or their order; resume with what the run began with"
            )

    def spender(self, ledger: Ledger, start: Checkpoint) -> LedgerSpender:
        require_same_ledger(ledger, start.head)
        population, replayable = self.population, self.streams.replayable
        return LedgerSpender(ledger, population, run=start.run, replayable=replayable)


@dataclass(frozen=True, slots=True)
class _Skipped:
    """A round that released nothing, and why."""

    reason: str


_Outcome: TypeAlias = tuple[RoundResult | _Skipped, AdaptiveClip | None]


class _Rounds:
    """Runs the rounds of one run."""

    def __init__(
        self,
        setup: _Setup,
        spender: Spender,
        files: Folder,
        worker: Worker,
        *,
        max_failures: float,
        start: int,
    ) -> None:
        self._setup, self._spender, self._files, self._worker = setup, spender, files, worker
        self._max_failures = max_failures
        self._names = tuple(setup.task.clients)
        self.population = setup.population
        released = [record.round for record in files.records() if record.skipped is None]
        self.count = ParticipationCount(
            setup.population,
            files.participations(),
            start,
            last_release=released[-1] if released else None,
            replayable=setup.streams.replayable,
        )
        self._cut_off = start if self.count.cut_off else None
        """A round that may have been opened before a kill. With a band it is not opened again, with
        other noise: the sums of all rounds of the band are in it."""

    def run(self, before: Checkpoint) -> _Outcome:
        """Return what the round after ``before`` releases, and the clip of the next one.

        It is spent before its sum opens, or `BudgetError` stops it. A round with too few clients
        releases nothing, costs nothing and leaves the clip.
        """
        number, model = before.round, before.state.model
        entropy = self._setup.streams.scope(f"round/{number}")
        round_ = self._invite(number, model, entropy)
        allowed = floor(self._max_failures * len(round_.members))
        clients = _Clients(self, model, round_, entropy, allowed)
        skipped: dict[str, str] = {}
        try:
            outcome = self._released(round_, clients, before, entropy)
            if isinstance(outcome[0], _Skipped):
                skipped = {"skipped": outcome[0].reason}
                log.warning("round %d was skipped: %s", number, outcome[0].reason)
            elif (wrap := outcome[0].wrap) and (wide := self._setup.plan.signal_warning(wrap)):
                log.warning("round %d: %s", number, wide)
        finally:
            if clients.first_failure:
                log.warning("round %d: %s", number, clients.report)
                skipped |= {"first_failure": clients.first_failure}
            self._files.log_operator(
                number,
                invited=len(round_.members),
                survivors=len(round_.survivors),
                failures=clients.failures,
                **skipped,
            )
        return outcome

    def _released(
        self, round_: Round, clients: _Clients, before: Checkpoint, entropy: Streams
    ) -> _Outcome:
        plan, run, clip = self._setup.plan, self._setup.aggregate.run, before.clip
        correlated = self._setup.correlated
        if correlated and round_.number == self._cut_off:
            return _Skipped("cut off before it was kept"), clip

        def spend() -> None:
            if (entered := self.count.enter(round_.number, clients.entered)) is not None:
                self._files.keep_participations(entered)
            self._spender.spend(round_.number, self.count.max)

        try:
            require_cohort(plan, round_)
            if correlated is not None:
                update, earlier = clients.update, before.earlier
                return correlated(plan, round_, update, earlier, entropy=entropy, spend=spend), None
            if clip is None:
                return run(plan, round_, clients.update, entropy=entropy, spend=spend), None
            return adaptive(run, plan, round_, clients.update, clip, entropy=entropy, spend=spend)
        except ThresholdError:
            return _Skipped("too few clients"), clip

    def _invite(self, number: int, model: Vector, entropy: Streams) -> Round:
        members = self._setup.population.draw(number, entropy=entropy("cohort"))
        dropouts = self._setup.aggregate.dropouts(number, members, entropy=entropy("dropout"))
        return Round(number, sha256(model.tobytes()).digest(), members, dropouts)

    # Local training.

    @property
    def at_once(self) -> int:
        """How many clients are trained together."""
        return self._worker.at_once if isinstance(self._worker, GroupWorker) else 1

    def local_updates(
        self, clients: Sequence[int], model: Vector, number: int, entropy: Streams
    ) -> list[Vector | Exception]:
        """Return for each client its update, or what its training raised."""
        bits = [entropy(f"training/{client}") for client in clients]
        names = [self._names[client] for client in clients]
        if self.at_once > 1 and isinstance(self._worker, GroupWorker):
            return self._worker.updates(model, names, number, entropy=bits)
        return [self._alone(model, *each, number) for each in zip(names, bits, strict=True)]

    def _alone(self, model: Vector, name: str, entropy: Entropy, number: int) -> Vector | Exception:
        try:
            return self._worker.update(model, name, number, entropy=entropy)
        except Exception as error:  # noqa: BLE001  (whatever a client's data does to its training)
            return error


class _Clients:
    """The clients of one round."""

    def __init__(
        self, rounds: _Rounds, model: Vector, round_: Round, entropy: Streams, allowed: int
    ) -> None:
        self._rounds, self._model, self._number = rounds, model, round_.number
        self._entropy, self._allowed = entropy, allowed
        self._survivors = round_.survivors
        self._trained: dict[int, Vector | Exception | None] = {}
        self.failures = 0
        self.first_failure = ""
        self.entered: set[int] = set()

    @property
    def report(self) -> str:
        """The failures in words, for the operator alone."""
        return (
            f"the training of {self.failures} of its clients failed, and they count as zeros; "
            f"the first failure: {self.first_failure}"
        )

    def update(self, client: int) -> Vector | None:
        """Return a client's update; none counts as zeros: by its coin, its limit, or a failure.

        Dropping out instead would tell that the client has such data, and lose its share of noise.
        """
        if client not in self._trained:
            self._train(self._group(client))
        found = self._trained.pop(client)
        if isinstance(found, Exception):
            self._failed(found)
            return None
        return found

    def _group(self, client: int) -> Sequence[int]:
        """Return the clients that are trained with ``client``: the same ones in every order."""
        at_once = self._rounds.at_once
        first = self._survivors.index(client) // at_once * at_once
        return self._survivors[first : first + at_once]

    def _train(self, group: Sequence[int]) -> None:
        rounds, population = self._rounds, self._rounds.population
        # Who sits out by its own coin was asked all the same: the server's epsilon counts that.
        asked = [client for client in group if not rounds.count.exhausted(client)]
        self.entered.update(asked)
        sending = [client for client in asked if population.takes_part(client, self._entropy)]
        found = rounds.local_updates(sending, self._model, self._number, self._entropy)
        self._trained |= dict.fromkeys(group)
        self._trained |= zip(sending, map(_finite_or_error, found), strict=True)

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        self.first_failure = self.first_failure or f"{type(error).__name__}: {error}"
        if self.failures > self._allowed:
            raise TrainingError(
                f"round {self._number} was stopped before it was spent: more than "
                f"{self._allowed} of its clients failed (max_failures); the first failure: "
                f"{self.first_failure}"
            ) from error


@dataclass(frozen=True, slots=True, eq=False)
class _Loop:
    setup: _Setup
    files: Folder
    spender: Spender
    rounds: _Rounds
    worker: Worker
    every: int
    watchers: Sequence[Watch]

    def run(self, start: Checkpoint, records: list[Record]) -> tuple[ServerState, Stop]:
        """Return the last state, and why it is the last; ``records`` grows by every round's."""
        checkpoint = start
        for record in records:
            self.worker.observe(record)
        for number in range(start.round, self.setup.plan.rounds):
            try:
                outcome, clip = self.rounds.run(checkpoint)
            except BudgetError:
                return checkpoint.state, Stop.BUDGET
            state = self._applied(checkpoint, outcome, clip)
            if isinstance(outcome, _Skipped):
                record = Record.of_skipped(number, outcome.reason, checkpoint.clip)
            else:
                record = Record.of_release(number, outcome, self.setup.plan, checkpoint.clip)
            later = outcome.later if isinstance(outcome, RoundResult) else checkpoint.earlier
            checkpoint = replace(
                checkpoint,
                round=number + 1,
                state=state,
                head=self.spender.head,
                clip=clip,
                earlier=later,
            )
            try:
                record = self._measured(record, state)
            finally:  # what is spent is kept, also where a measure fails
                self.files.keep(record, checkpoint)
            records.append(record)
            self.worker.observe(record)
            for watch in self.watchers:
                watch(record)
        return checkpoint.state, Stop.FINISHED

    def _applied(
        self, before: Checkpoint, outcome: RoundResult | _Skipped, clip: AdaptiveClip | None
    ) -> ServerState:
        """Return the state after ``outcome``; all that moves the model is in units of the clip.

        So the noise of rounds that clipped far too high does not stay in the momentum, and a round
        that found its clip too high counts for less.
        """
        state, server, cohort = before.state, self.setup.server, float(self.setup.plan.cohort)
        if isinstance(outcome, _Skipped):
            return state
        if clip is not None and before.clip is not None:
            ratio = clip.clip / before.clip.clip
            state, cohort = server.rescaled(state, ratio), cohort / ratio
        return server.apply(state, (outcome.total / cohort).values.astype(np.float32))

    def _measured(self, record: Record, state: ServerState) -> Record:
        done = record.round + 1
        if done % self.every and done < self.setup.plan.rounds:
            return record
        measured = record.with_measures(*self.worker.measure(state.model))
        if (held := self.spender.guarantees()) is None:
            return measured
        return replace(
            measured,
            epsilon_public=held.public.epsilon,
            epsilon_server=held.server.epsilon,
            epsilon_server_mean=held.server_mean.epsilon,
        )


def _finite_or_error(found: Vector | Exception) -> Vector | Exception:
    if isinstance(found, Exception) or np.isfinite(found).all():
        return found
    return TrainingError("the trained weights are not finite; lower the learning rate")
