"""The leader: it collects reports, asks the helper for the masks, and opens noisy sums.

::

    proposed = leader.propose(constants, setting=setting, entropy=entropy)
    idle = proposed.granted(helper_reply, setting=setting)
    collecting = idle.begin(round_, round_input, label=label)      # send collecting.start_message()
    collecting = collecting.add(reports, setting=setting)
    waiting = collecting.close()                                   # send waiting.job()
    idle = waiting.open(helper_reply, setting=setting)             # write it durably, then apply
    idle.release

Each phase is a value with bytes of its own (``to_bytes``, ``from_bytes``). What a round opens can
be had from the phase after it alone, so that it is written, with the caller's spend, before
anything is applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, final

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.entropy import Entropy
from skellam.errors import (
    DomainError,
    PhaseError,
    TamperError,
    ThresholdError,
)
from skellam.protocol.identity import Identity, Roster
from skellam.protocol.wire import MAX_LENGTH, Blob, Maybe, Nested, Numbers, Signature
from skellam.twoserver import ring
from skellam.twoserver.chain import Chain, Links, answer_link, forget_link
from skellam.twoserver.constants import RunConstants
from skellam.twoserver.keys import ServerSecrets, key_id
from skellam.twoserver.messages import (
    MAX_LABEL,
    Answer,
    Constants,
    Forget,
    Forgotten,
    Grant,
    Job,
    Label,
    Proposal,
    Refusal,
    Rejection,
    Rejections,
    Replayable,
    RoundNumber,
    RoundStart,
    RunOffer,
    Secrets,
    from_server,
    helper_context,
    leader_context,
    message_digest,
    proposal_context,
)
from skellam.twoserver.reports import Gathered, Opener
from skellam.twoserver.state import Participations, Stored
from skellam.vectors import Reals, Residues, residue_dtype

_Vector = Annotated[bytes, Blob(8 * MAX_LENGTH)]


@dataclass(frozen=True, slots=True, eq=False)
class LeaderSetting:
    """What a leader has of its own: its identity, the helper's public key, and the roster."""

    identity: Identity
    helper: bytes
    roster: Roster

    def __post_init__(self) -> None:
        _checks.octets("helper", self.helper, 32)


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """What a round opened.

    ``total`` is ``sum_j c_j X_{t-j}`` with the noise, modulo ``2**bits``; ``estimate`` is that of
    ``X_t``, in integers of the ring (the same numbers, centred, where the band is (1,)).
    """

    round_: int
    total: Residues
    estimate: Reals
    participants: NDArray[np.uint64]
    rejections: tuple[Rejection, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Released:
    """A `Release` in bytes."""

    round_: RoundNumber
    label: Label
    replayable: Replayable
    total: _Vector
    estimate: _Vector
    participants: Annotated[NDArray[np.uint64], Numbers("<u8")]
    rejections: Rejections


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Run:
    """What the leader carries from round to round."""

    constants: Constants
    secrets: Secrets
    offer: Annotated[bytes, Blob(1 << 17)]
    next_round: RoundNumber
    sums: ring.Window
    """Sums of masked vectors of the last rounds."""
    estimates: ring.Window
    participations: Annotated[Participations, Nested(Participations)]
    links: Links
    head_signature: Signature

    @property
    def chain(self) -> Chain:
        """The helper's chain, as far as the leader has seen it."""
        return Chain.of(self.constants, self.links)

    def opener(self, setting: LeaderSetting) -> Opener:
        """Return who reads reports."""
        return Opener(self.constants, self.secrets.key, self.participations, setting.roster)

    def closed(self, round_: int, senders: NDArray[np.uint64]) -> _Run:
        """Return the run after ``senders`` reported in ``round_``, whatever became of it."""
        return replace(
            self,
            next_round=round_ + 1,
            participations=self.participations.added(senders, round_),
        )


_Carried = Annotated[_Run, Nested(_Run)]


def propose(constants: RunConstants, *, setting: LeaderSetting, entropy: Entropy) -> Proposed:
    """Return the first phase of a run; its message asks the helper to open it."""
    if constants.leader_key != bytes(32) or constants.helper_key != bytes(32):
        raise DomainError("constants must leave both sealing keys open; a proposal sets them")
    ring.sampler(constants)
    secrets = ServerSecrets.generate(entropy=entropy)
    constants = replace(constants, leader_key=secrets.key.key_id)
    message = Proposal(constants, secrets.key.public).signed(setting.identity, proposal_context())
    return Proposed(constants, secrets, message)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Proposed(Stored):
    """A run that the helper was asked to open."""

    TAG = 112
    constants: Constants
    secrets: Secrets
    message: Annotated[bytes, Blob(1 << 16)]

    def granted(self, reply: bytes, *, setting: LeaderSetting) -> Idle:
        """Return the open run."""
        grant = Grant.decode(reply)
        constants = replace(self.constants, helper_key=key_id(grant.helper_public))
        public = self.secrets.key.public
        if (grant.constants, grant.leader_public) != (constants, public):
            raise TamperError("the helper granted another run than was proposed")
        chain = Chain.of(constants)
        chain.head.require_signed(setting.helper, constants, grant.signature)
        offer = RunOffer(reply).signed(setting.identity, leader_context(constants))
        run = _Run(
            constants=constants,
            secrets=self.secrets,
            offer=offer,
            next_round=0,
            sums=(),
            estimates=(),
            participations=Participations.empty(),
            links=b"",
            head_signature=grant.signature,
        )
        return Idle(run)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Idle(Stored):
    """Between two rounds; holds what the latest round opened."""

    TAG = 113
    run: _Carried
    released: Annotated[_Released | None, Maybe(Nested(_Released))] = None

    @property
    def constants(self) -> RunConstants:
        """The constants of the run, with both keys."""
        return self.run.constants

    @property
    def offer(self) -> bytes:
        """The `RunOffer` for clients."""
        return self.run.offer

    @property
    def next_round(self) -> int:
        """The first round that may still begin; rounds before it that did not are empty."""
        return self.run.next_round

    @property
    def release(self) -> Release | None:
        """What the latest round opened; apply it only after these bytes and the spend are written.

        None before the first round, and where the latest one was given up or forgotten.
        """
        found, constants = self.released, self.constants
        if found is None:
            return None
        kind = residue_dtype(constants.bits)
        total = np.frombuffer(found.total, dtype=kind.newbyteorder("<")).astype(kind)
        estimate = np.frombuffer(found.estimate, dtype="<f8").astype(float)
        return Release(
            found.round_,
            Residues(total, constants.bits, label=found.label, replayable=found.replayable),
            Reals(estimate, replayable=found.replayable),
            found.participants,
            found.rejections,
        )

    def ended(self) -> Idle:
        """Return the state after the run: what it released, no secrets, no round to begin."""
        run = self.run
        return replace(
            self,
            run=replace(
                run, secrets=run.secrets.erased(), next_round=run.constants.rounds, sums=()
            ),
        )

    def end(self) -> Forgetting:
        """End the run before its last round: the helper closes all rounds and erases its keys."""
        closed = replace(self.run, next_round=self.constants.rounds, sums=(), estimates=())
        return Forgetting(closed)

    def begin(self, round_: int, round_input: bytes, *, label: bytes = b"") -> Collecting:
        """Begin ``round_``, in which clients compute on what has the digest ``round_input``.

        Vectors carry ``label``. Rounds that are left out stay empty, at no cost.
        """
        self.constants.round_digest(round_, round_input)
        if round_ < self.next_round:
            raise PhaseError(
                f"round {round_} is closed; rounds from {self.next_round} on may begin"
            )
        if len(label) > MAX_LABEL:
            raise DomainError(f"label must have at most {MAX_LABEL} bytes, got {len(label)}")
        return Collecting(self.run, Gathered.empty(round_, round_input, label, self.constants))

    def forget(self, *rounds: int) -> Forgetting:
        """Take spoiled rounds out of the band; without any, agree with the helper on the window."""
        kept = [at for at in ring.rounds(self.run.sums) if at not in rounds]
        return Forgetting(
            replace(
                self.run,
                sums=ring.restricted(self.run.sums, kept),
                estimates=ring.restricted(self.run.estimates, kept),
            )
        )


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Collecting(Stored):
    """A round that waits for reports; the job was not sent yet."""

    TAG = 114
    run: _Carried
    gathered: Annotated[Gathered, Nested(Gathered)]

    @property
    def participants(self) -> NDArray[np.uint64]:
        """Whose reports count so far."""
        return self.gathered.senders

    @property
    def rejections(self) -> tuple[Rejection, ...]:
        """Whose reports do not count, and why."""
        return self.gathered.rejections

    def start_message(self, *, setting: LeaderSetting, since: int = 0) -> bytes:
        """Return the `RoundStart` for clients that have seen ``since`` links of the chain."""
        run, chain, g = self.run, self.run.chain, self.gathered
        base = chain.head_at(since)
        if base is None:
            raise DomainError(f"since must be at most {chain.head.count}, got {since}")
        return RoundStart(
            run.constants.digest,
            g.round_,
            g.round_input,
            g.label,
            base,
            chain.since(since),
            run.head_signature,
        ).signed(setting.identity, leader_context(run.constants))

    def add(self, reports: Iterable[bytes], *, setting: LeaderSetting) -> Collecting:
        """Return the phase with ``reports``; those that do not verify are named and dropped."""
        return replace(self, gathered=self.gathered.added(reports, self.run.opener(setting)))

    def close(self) -> Waiting:
        """Take no more reports; raise `ThresholdError` if too few came."""
        return _waiting(self.run, self.gathered)

    def skip(self) -> Idle:
        """Give the round up before a job was sent: it stays empty on both sides."""
        return Idle(self.run.closed(self.gathered.round_, self.gathered.senders))


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Waiting(Stored):
    """A round whose job the helper may have seen."""

    TAG = 115
    run: _Carried
    gathered: Annotated[Gathered, Nested(Gathered)]

    @property
    def participants(self) -> NDArray[np.uint64]:
        """Who is in the job."""
        return self.gathered.senders

    def job(self, *, setting: LeaderSetting) -> bytes:
        """Return the message for the helper: the same bytes whenever it is asked for."""
        constants, g = self.run.constants, self.gathered
        job = Job(constants.digest, g.round_, g.round_input, self.run.chain.head, g.entries)
        return job.signed(setting.identity, leader_context(constants))

    def refused(
        self, reply: bytes, reports: Mapping[int, bytes], *, setting: LeaderSetting
    ) -> Waiting:
        """Return the phase without the entries that the helper refused.

        ``reports`` must hold the reports of these clients, whose vectors are taken out of the sum.
        """
        run, g = self.run, self.gathered
        context = helper_context(run.constants)
        refusal = from_server(Refusal, reply, "helper", setting.helper, context)
        self._require_own(refusal, setting)
        return _waiting(run, g.without(refusal.rejections, reports, run.opener(setting)))

    def open(self, reply: bytes, *, setting: LeaderSetting) -> Idle:
        """Return the phase after the round, with what it opened."""
        run, g, constants = self.run, self.gathered, self.run.constants
        answer = Answer.decode(reply)
        chain = run.chain
        if answer.previous != chain.head:
            raise TamperError(
                f"the helper answers after {answer.previous.count} links of a chain of which "
                f"{chain.head.count} were seen: it was set back to an older state, or shows two "
                "histories"
            )
        request = self._require_own(answer, setting)
        link = answer_link(g.round_, request, answer.vector, answer.replayable)
        chain = chain.extended(link)
        chain.head.require_signed(setting.helper, constants, answer.signature)
        masked = g.values(constants)
        hidden = ring.band_sum(masked, run.sums, g.round_, constants)
        opened = ring.subtract(hidden, ring.from_wire(answer.vector, constants), constants)
        replayable = g.replayable or answer.replayable
        if constants.noise_by == "both":
            bound = constants.round_digest(g.round_, g.round_input)
            noise = ring.noise(run.secrets.noise, opened, bound, constants)
            opened = ring.add(opened, noise, constants)
            replayable = replayable or run.secrets.replayable
        estimate = ring.estimate(opened, run.estimates, g.round_, constants)
        stored = ring.to_slot(g.round_, estimate)
        run = replace(
            run.closed(g.round_, g.senders),
            sums=ring.advanced(run.sums, ring.to_slot(g.round_, masked), constants),
            estimates=ring.advanced(run.estimates, stored, constants),
            links=chain.links,
            head_signature=answer.signature,
        )
        total = ring.to_slot(g.round_, opened).values
        return Idle(
            run,
            _Released(g.round_, g.label, replayable, total, stored.values, g.senders, g.rejections),
        )

    def abandon(self) -> Forgetting:
        """Give the round up: the helper is told to forget it, if it has answered."""
        return Forgetting(self.run.closed(self.gathered.round_, self.gathered.senders))

    def _require_own(self, message: Answer | Refusal, setting: LeaderSetting) -> bytes:
        """Return the digest of the job; raise unless ``message`` is about it."""
        request = message_digest(self.job(setting=setting))
        expected = (self.run.constants.digest, self.gathered.round_, request)
        if (message.run, message.round_, message.job) != expected:
            raise TamperError("the helper's reply is about another job")
        return request


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Forgetting(Stored):
    """A request that the helper's window be this leader's; no round runs meanwhile."""

    TAG = 116
    run: _Carried

    def message(self, *, setting: LeaderSetting) -> bytes:
        """Return the message for the helper: the same bytes whenever it is asked for."""
        run = self.run
        kept = ring.rounds(run.sums)
        forget = Forget(run.constants.digest, run.next_round, kept, run.chain.head)
        return forget.signed(setting.identity, leader_context(run.constants))

    def done(self, reply: bytes, *, setting: LeaderSetting) -> Idle:
        """Return the phase after the helper's reply; both servers have the same window."""
        run = self.run
        answer = Forgotten.decode(reply)
        if answer.run != run.constants.digest:
            raise TamperError("the helper's reply is of another run")
        if not set(answer.kept_rounds) <= set(ring.rounds(run.sums)):
            raise TamperError("the helper kept a round that it was told to forget")
        request = message_digest(self.message(setting=setting))
        if answer.links[-32:] != forget_link(answer.next_round, answer.kept_rounds, request):
            raise TamperError("the helper's reply is about another request")
        chain = run.chain.extended(answer.links)
        chain.head.require_signed(setting.helper, run.constants, answer.signature)
        return Idle(
            replace(
                run,
                next_round=max(run.next_round, answer.next_round),
                sums=ring.restricted(run.sums, answer.kept_rounds),
                estimates=ring.restricted(run.estimates, answer.kept_rounds),
                links=chain.links,
                head_signature=answer.signature,
            )
        )


def _waiting(run: _Run, gathered: Gathered) -> Waiting:
    if len(gathered.rows) < run.constants.min_cohort:
        raise ThresholdError(
            f"{len(gathered.rows)} clients are in the round, at least {run.constants.min_cohort} "
            "are agreed; wait for more, or give the round up"
        )
    return Waiting(run, gathered)
