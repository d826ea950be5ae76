"""The helper between two requests: one durable write a round, its ledger, and its own record.

A request is answered in this order: the ledger is spent (again at no cost after a kill), the new
state with the answer in it replaces the old one, and only then the answer is sent. Killed anywhere,
the helper goes on; the same request gets the same bytes, and another one for an answered round
none.

**The ledger.** A run is spent once for each *level*: the l-th participation of its busiest client.
A client with l participations has lost what the first l levels cost, so what is spent over all runs
bounds the loss of every client. With sensitivity ``R ||c||`` a participation and at most
``q = ceil(w / separation)`` that overlap in the band, a level costs as much as Gaussian noise of
deviation ``1 / eta(V)`` (Result A; about ``sqrt(V)``) on a vector of norm ``R ||c|| sqrt(q)``: l of
them make up the ``R ||c|| sqrt(q l)`` of `RunConstants.sensitivity`. What a plan sets aside as rare
(ends of certificates, the sampler) is not in the constants: clients, who have the plan, charge it.
"""

from __future__ import annotations

import fcntl
import math
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from skellam import accounting
from skellam.accounting.gdp import eta_skellam
from skellam.accounting.ledger import Account, Ledger
from skellam.engines import durable
from skellam.engines.helper.config import HelperConfig
from skellam.entropy import Entropy
from skellam.errors import (
    BudgetError,
    DataError,
    LedgerError,
    MessageError,
    ProtocolError,
    TamperError,
)
from skellam.twoserver import ChainHead, RunConstants, helper
from skellam.twoserver.helper import HelperState, Refused
from skellam.twoserver.messages import (
    Answer,
    Forget,
    Forgotten,
    Grant,
    Job,
    Proposal,
    from_server,
    proposal_context,
)

_RUNS: Final = "runs"
LEDGER: Final = "ledger.jsonl"
_SUFFIX: Final = ".run"


@dataclass(frozen=True, slots=True)
class RunStatus:
    """One run at the helper, as its operator may see it."""

    run_id: bytes
    constants: RunConstants
    next_round: int
    clients: int
    max_participations: int
    """Of the busiest client."""
    head: ChainHead

    @property
    def ended(self) -> bool:
        """Whether no round can be answered any more."""
        return self.next_round >= self.constants.rounds


class HelperService:
    """Answers a leader's messages; its folder belongs to one process at a time."""

    def __init__(self, config: HelperConfig, *, entropy: Entropy) -> None:
        self._config, self._entropy = config, entropy
        self._mutex = threading.Lock()
        self._runs = config.state / _RUNS
        durable.make_folder(self._runs, mode=durable.SECRET_FOLDER)
        config.state.chmod(0o700)
        self._lock = _locked(config.state / "lock")
        try:
            self._ledger = _ledger(config)
            self._states = {s.constants.run_id: s for s in _states(self._runs)}
            for state in self._states.values():
                _require_spent(state, self._ledger.account)
                _require_latest(state, self._ledger.account)
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def public(self) -> bytes:
        """The helper's public key."""
        return self._config.setting.identity.public

    @property
    def max_request(self) -> int:
        """The longest message that can be meant for this helper, in bytes."""
        return (1 << 16) + (1 << 11) * len(self._config.setting.roster.keys)

    def handle(self, message: bytes) -> bytes:
        """Return the reply to the leader's ``message``; raise if it is refused.

        A `Refusal`, which names entries, is a reply.
        """
        with self._mutex:
            kind = message[1] if len(message) > 1 else None
            if kind == Proposal.TAG:
                return self._grant(message)
            state = self._state_of(message)
            constants = state.constants
            answered = helper.handle(
                state,
                message,
                setting=self._config.setting,
                objections=lambda clients: self._objections(state, clients),
            )
            if isinstance(answered, Refused):
                return answered.reply
            if answered.state is state:
                return answered.reply
            new = answered.state
            if answered.round_ is not None:
                self._spend(constants, int(new.participations.counts.max()))
            if new.next_round >= constants.rounds:
                new = new.ended()
            self._keep(new)
            return answered.reply

    def status(self) -> tuple[RunStatus, ...]:
        """Return all runs, in the order of their ids."""
        with self._mutex:
            return tuple(_status(self._states[run_id]) for run_id in sorted(self._states))

    def end(self, run_id: bytes) -> None:
        """End a run that its leader left open: its keys are erased, its record is kept."""
        with self._mutex:
            if run_id not in self._states:
                raise DataError(f"this helper has no run {run_id.hex()}")
            self._keep(self._states[run_id].ended())

    @property
    def spent(self) -> float:
        """Epsilon of the client that lost most, at most."""
        return self._config.limits.total_epsilon - self._ledger.remaining()

    def close(self) -> None:
        """Let another process use the folder."""
        self._ledger.close()
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # One request.

    def _grant(self, message: bytes) -> bytes:
        setting = self._config.setting
        asked = from_server(Proposal, message, "leader", setting.leader, proposal_context())
        known = self._states.get(asked.constants.run_id)
        if known is not None:
            answered = helper.handle(known, message, setting=setting)
            return answered.reply
        state = helper.grant(message, setting=setting, entropy=self._entropy)
        if not self._ledger.fits(level_price(state.constants)):
            raise BudgetError(
                f"limit total_epsilon: not one participation fits {self._config.limits.budget}"
            )
        self._keep(state)
        return state.reply

    def _state_of(self, message: bytes) -> HelperState:
        kind = message[1] if len(message) > 1 else None
        if kind == Job.TAG:
            run = Job.decode(message).run
        elif kind == Forget.TAG:
            run = Forget.decode(message).run
        else:
            raise MessageError("a helper answers proposals, jobs and requests to forget rounds")
        for state in self._states.values():
            if state.constants.digest == run:
                return state
        raise TamperError("the message is of no run that this helper knows")

    def _objections(self, state: HelperState, clients: tuple[int, ...]) -> Mapping[int, str]:
        """Return whom the ledger allows no further participation."""
        counts = dict(
            zip(
                state.participations.senders.tolist(),
                state.participations.counts.tolist(),
                strict=True,
            )
        )
        price = level_price(state.constants)
        wanted = {client: counts.get(client, 0) + 1 for client in clients}
        new = {level for level in set(wanted.values()) if not self._is_spent(state, level)}
        broke = {level for i, level in enumerate(sorted(new)) if not self._fits(price, i + 1)}
        return {
            client: f"limit total_epsilon: participation {level} does not fit the budget"
            for client, level in wanted.items()
            if level in broke
        }

    def _fits(self, price: accounting.Gaussian, rounds: int) -> bool:
        return self._ledger.fits(price, rounds=rounds)

    def _is_spent(self, state: HelperState, level: int) -> bool:
        return self._ledger.account.find(level_key(state.constants, level)) is not None

    def _spend(self, constants: RunConstants, level: int) -> None:
        """Spend ``level``; those below it were spent in earlier rounds."""
        key = level_key(constants, level)
        if self._ledger.account.find(key) is None:
            self._ledger.spend(
                level_price(constants),
                adaptive=True,
                key=key,
                note=f"run {constants.run_id.hex()}, participation {level}",
            )

    def _keep(self, state: HelperState) -> None:
        run_id = state.constants.run_id
        path = self._runs / (run_id.hex() + _SUFFIX)
        durable.replace(path, state.to_bytes(), mode=durable.SECRET)
        self._states[run_id] = state


def level_price(constants: RunConstants) -> accounting.Gaussian:
    """Return what one more participation of the busiest client costs, against the leader."""
    if not constants.variance > 0:
        raise BudgetError("limit total_epsilon: the run has no noise; no budget allows it")
    overlap = -(-len(constants.band) // constants.separation)
    norm = constants.norm_bound * math.hypot(*constants.band) * math.sqrt(overlap)
    return accounting.Gaussian(sigma=1 / eta_skellam(constants.variance), l2=max(norm, 1e-300))


def level_key(constants: RunConstants, level: int) -> bytes:
    """Return the key under which a ledger has a run's level."""
    return sha256(b"skellam/helper/level" + constants.run_id + level.to_bytes(8, "big")).digest()


def verify(config: HelperConfig, known: Mapping[bytes, ChainHead] | None = None) -> list[RunStatus]:
    """Return all runs of a helper's folder, or raise at the first thing that is not as it was left.

    ``known`` is what somebody kept of runs, a leader or a client: a folder that was restored
    from an older copy does not have them.
    """
    found = {s.constants.run_id: s for s in _states(config.state / _RUNS)}
    account = Ledger.verify(config.state / LEDGER)  # after the runs: a helper spends first
    for state in found.values():
        _require_signed(state, config)
        _require_spent(state, account)
    for run_id, head in (known or {}).items():
        state_now = found.get(run_id)
        if state_now is None or state_now.chain.head_at(head.count) != head:
            raise TamperError(
                f"run {run_id.hex()}: the chain does not have the head that was kept after "
                f"{head.count} links: the folder is an older copy, or of another history"
            )
    return [_status(found[run_id]) for run_id in sorted(found)]


def _require_spent(state: HelperState, account: Account) -> None:
    """Raise unless the ledger has all participations of a run."""
    levels = int(state.participations.counts.max(initial=0))
    for level in range(1, levels + 1):
        if account.find(level_key(state.constants, level)) is None:
            raise LedgerError(
                f"run {state.constants.run_id.hex()}: a client took part {levels} times, and the "
                f"ledger lacks participation {level}: it is an old copy"
            )


def _require_latest(state: HelperState, account: Account) -> None:
    """Raise if the ledger has two participations more than the run: a kill leaves one more."""
    levels = int(state.participations.counts.max(initial=0))
    if account.find(level_key(state.constants, levels + 2)) is not None:
        raise LedgerError(
            f"run {state.constants.run_id.hex()}: the ledger has participation {levels + 2}, the "
            f"run's file {levels}: the file is an old copy"
        )


def _require_signed(state: HelperState, config: HelperConfig) -> None:
    """Raise unless the latest reply is this helper's, under the head of its chain."""
    kinds = {kind.TAG: kind for kind in (Grant, Answer, Forgotten)}
    try:
        reply = kinds[state.reply[1]].decode(state.reply)
        public = config.setting.identity.public
        state.chain.head.require_signed(public, state.constants, reply.signature)
    except (IndexError, KeyError, ProtocolError) as error:
        run_id = state.constants.run_id.hex()
        raise TamperError(f"run {run_id}: the last reply is not signed under its chain") from error


def _status(state: HelperState) -> RunStatus:
    counts = state.participations.counts
    return RunStatus(
        run_id=state.constants.run_id,
        constants=state.constants,
        next_round=state.next_round,
        clients=len(counts),
        max_participations=int(counts.max(initial=0)),
        head=state.chain.head,
    )


def _states(folder: Path) -> list[HelperState]:
    found = []
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        try:
            state = HelperState.from_bytes(path.read_bytes())
        except (OSError, ProtocolError) as error:
            raise DataError(f"cannot read {path}: {error}; restore the whole folder") from error
        if state.constants.run_id.hex() != path.name.removesuffix(_SUFFIX):
            raise DataError(f"{path} is the state of another run; restore the whole folder")
        found.append(state)
    return found


def _ledger(config: HelperConfig) -> Ledger:
    budget = config.limits.budget
    before = os.umask(0o077)
    try:
        return Ledger.open_or_create(
            config.state / LEDGER,
            epsilon=budget.epsilon,
            delta=budget.delta,
            filter=budget.filter,
        )
    finally:
        os.umask(before)


def _locked(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, durable.SECRET)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise DataError(f"{path.parent} is in use: another helper runs there") from error
    return descriptor
