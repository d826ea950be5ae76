"""The client: it checks a run against limits of its own, and sends one message a round.

::

    joined = client.join(state, offer, start, party=party, inputs=inputs)     # or it refuses
    state = joined.report(vector, entropy=entropy)    # the participation is in the new state
    ...                                               # write state.to_bytes() durably
    send(state.message)                               # and the same bytes at every retry

The message can be had from the new state alone, so that a participation is recorded before anything
is sent. A retry never encodes again: two roundings of one vector under one mask would show their
difference.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, final

from skellam import _checks
from skellam.entropy import Entropy, random_bytes
from skellam.errors import PhaseError, ProtocolError, TamperError
from skellam.protocol.identity import Identity
from skellam.protocol.wire import Blob, Digest, Many, Nested, Uint
from skellam.twoserver import ring
from skellam.twoserver.chain import ChainHead, require_extension
from skellam.twoserver.constants import MAX_ROUNDS, RunConstants, RunLimits
from skellam.twoserver.keys import key_id, seal
from skellam.twoserver.messages import (
    SEED_BYTES,
    Contribution,
    Grant,
    Report,
    RoundStart,
    RunOffer,
    contribution_context,
    from_server,
    leader_context,
    report_info,
    seed_info,
    sign_entry,
)
from skellam.twoserver.state import Stored, objection
from skellam.vectors import Residues


@dataclass(frozen=True, slots=True)
class Party:
    """What a client has of its own: identity, both servers' public keys, and its limits.

    The keys come from the client's own configuration, never from one of the servers.
    ``max_participations`` counts the rounds of all runs together.
    """

    identity: Identity
    leader: bytes
    helper: bytes
    limits: RunLimits
    max_participations: int

    def __post_init__(self) -> None:
        _checks.octets("leader", self.leader, 32)
        _checks.octets("helper", self.helper, 32)
        _checks.integer("max_participations", self.max_participations, 1)
        if self.leader == self.helper:
            raise TamperError("leader and helper have the same key; they must not be one party")


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a client computed itself, for comparison with what the servers say.

    ``plan`` is the digest of the plan that its codec follows, ``round_input`` that of all it was
    told to compute on, and ``norm_bound`` the bound that its codec keeps.
    """

    plan: bytes
    round_input: bytes
    norm_bound: float

    def __post_init__(self) -> None:
        _checks.octets("plan", self.plan, 32)
        _checks.octets("round_input", self.round_input, 32)
        _checks.non_negative("norm_bound", self.norm_bound)

    def require(self, constants: RunConstants, round_input: bytes) -> None:
        """Raise `TamperError` unless run and round are about these inputs."""
        if constants.plan != self.plan:
            raise TamperError("the run is for another plan than this client was given")
        if round_input != self.round_input:
            raise TamperError("the round is for another input than this client was given")
        if self.norm_bound > constants.norm_bound:
            raise TamperError(
                f"the run's noise is for vectors of norm {constants.norm_bound}, this client's "
                f"reach {self.norm_bound}"
            )


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What a client remembers of one run: its constants, its rounds, the helper's chain."""

    run_id: Digest
    run: Digest
    head: Annotated[ChainHead, Nested(ChainHead)]
    rounds: Annotated[tuple[int, ...], Many(Uint(4), MAX_ROUNDS)] = ()


@final
@dataclass(frozen=True, slots=True, repr=False)
class ClientState(Stored):
    """All that a client ever took part in, and its latest message; keep it with the identity."""

    TAG = 80
    runs: Annotated[tuple[RunRecord, ...], Many(Nested(RunRecord), 1 << 20)] = ()
    message: Annotated[bytes, Blob((1 << 32) - 1)] = b""
    """The latest report; empty before the first, and after `sent`."""

    def sent(self) -> ClientState:
        """Return the state without the message: the leader has it."""
        return replace(self, message=b"")

    @property
    def participations(self) -> int:
        """How many rounds this client took part in, over all runs."""
        return sum(len(run.rounds) for run in self.runs)

    def run(self, run_id: bytes) -> RunRecord | None:
        """Return what is remembered of a run."""
        return next((run for run in self.runs if run.run_id == run_id), None)

    def message_in(self, run_id: bytes, round_: int) -> bytes:
        """Return the latest message if it was sent in this very round, or nothing."""
        latest = self.runs[-1] if self.runs else None
        sent = latest is not None and latest.run_id == run_id and latest.rounds[-1:] == (round_,)
        return self.message if sent else b""

    def entered(self, record: RunRecord, message: bytes) -> ClientState:
        """Return the state with ``record`` in place of what was remembered of its run."""
        others = tuple(run for run in self.runs if run.run_id != record.run_id)
        return ClientState((*others, record), message)


def read_offer(offer: bytes, *, party: Party) -> Grant:
    """Return the run that both servers signed; raise if a limit of this client forbids it."""
    grant = Grant.decode(RunOffer.decode(offer).grant)
    constants = grant.constants
    context = leader_context(constants)
    from_server(RunOffer, offer, "leader", party.leader, context)
    ChainHead.of(constants).require_signed(party.helper, constants, grant.signature)
    keys = (key_id(grant.leader_public), key_id(grant.helper_public))
    if keys != (constants.leader_key, constants.helper_key):
        raise TamperError("the sealing keys are not those of the run's constants")
    party.limits.require(constants)
    return grant


def join(state: ClientState, offer: bytes, start: bytes, *, party: Party, inputs: Inputs) -> Joined:
    """Return the round that a client may take part in; raise if it must not."""
    grant = read_offer(offer, party=party)
    constants = grant.constants
    context = leader_context(constants)
    begun = from_server(RoundStart, start, "leader", party.leader, context)
    if begun.run != constants.digest:
        raise TamperError("the round belongs to another run than was offered")
    constants.require_round(begun.round_)
    inputs.require(constants, begun.round_input)
    record = state.run(constants.run_id)
    if record is not None and record.run != constants.digest:
        raise TamperError("the constants of this run have changed since this client first saw them")
    head = require_extension(begun.base, begun.links, record.head if record else None)
    head.require_signed(party.helper, constants, begun.head_signature)
    record = record or RunRecord(constants.run_id, constants.digest, head)
    _require_turn(record, begun.round_, constants)
    if state.participations >= party.max_participations:
        raise ProtocolError(
            f"this client took part in {state.participations} rounds, its limit max_participations "
            f"is {party.max_participations}"
        )
    return Joined(party, state, grant, begun, replace(record, head=head))


def _require_turn(record: RunRecord, round_: int, constants: RunConstants) -> None:
    if round_ in record.rounds:
        raise TamperError(
            f"this client took part in round {round_} already; send the stored message again"
        )
    if record.rounds:
        text = objection(len(record.rounds), max(record.rounds), round_, constants)
        if text is not None:
            raise ProtocolError(f"this client {text}")


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Joined:
    """A round that was checked; waits for this client's vector. Its step can be taken once."""

    party: Party
    state: ClientState
    grant: Grant
    start: RoundStart
    record: RunRecord
    _spent: list[bool] = field(default_factory=list, init=False, repr=False)

    @property
    def constants(self) -> RunConstants:
        """The constants of the run."""
        return self.grant.constants

    def report(self, vector: Residues, *, entropy: Entropy) -> ClientState:
        """Return the new state with the message in it; write it durably before sending."""
        if self._spent:
            raise PhaseError("this round was reported already; send the state's message")
        constants, start, me = self.constants, self.start, self.party.identity
        constants.require_vector(vector)
        if vector.label != start.label:
            raise TamperError("the vector was encoded for another plan or round")
        self._spent.append(True)
        bound = constants.round_digest(start.round_, start.round_input)
        seed = random_bytes(SEED_BYTES, entropy=entropy)
        masked = ring.masked(vector.values, [ring.mask_key(seed, bound, me.number)], constants)
        sealed = seal(self.grant.helper_public, seed_info(bound, me.number), seed)
        contribution = Contribution(
            me.number,
            sealed,
            sign_entry(me, bound, sealed),
            vector.replayable or entropy.replayable,
            ring.to_wire(masked, constants),
        ).signed(me, contribution_context(bound))
        info = report_info(bound, me.number)
        message = Report(me.number, seal(self.grant.leader_public, info, contribution)).encode()
        rounds = (*self.record.rounds, start.round_)
        return self.state.entered(replace(self.record, rounds=rounds), message)
