"""The helper: it adds up masks and noise, once a round, for whoever may take part by its record.

A request is a pure step ``(state, message) -> (new state, reply)``. The caller writes the new state
durably, in one write, and then sends the reply; so a round never has two answers. The reply to the
latest request is part of the state, and a repeated request gets the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, TypeAlias, final

import numpy as np

from skellam import _checks
from skellam.entropy import Entropy
from skellam.errors import MessageError, PhaseError, TamperError, ThresholdError
from skellam.protocol.identity import Identity, Roster
from skellam.protocol.wire import Blob, Digest, Nested, Uint, split_signature
from skellam.twoserver import ring
from skellam.twoserver.chain import Chain, ChainHead, Links, answer_link, forget_link
from skellam.twoserver.constants import RunLimits
from skellam.twoserver.keys import ServerSecrets, key_id, require_signature
from skellam.twoserver.messages import (
    Answer,
    Constants,
    Forget,
    Forgotten,
    Grant,
    Job,
    Proposal,
    Refusal,
    Rejection,
    Secrets,
    from_server,
    helper_context,
    leader_context,
    message_digest,
    proposal_context,
    require_entry,
    seed_info,
)
from skellam.twoserver.state import Participations, Stored

Objections: TypeAlias = Callable[[tuple[int, ...]], Mapping[int, str]]
"""Given the clients of a job, return those that must not take part, each with the reason."""


@dataclass(frozen=True, slots=True, eq=False)
class HelperSetting:
    """What a helper has of its own: its identity, the leader's public key, roster and limits."""

    identity: Identity
    leader: bytes
    roster: Roster
    limits: RunLimits

    def __post_init__(self) -> None:
        _checks.octets("leader", self.leader, 32)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HelperState(Stored):
    """One run at the helper: its keys, its record, the last sums of masks, the last reply."""

    TAG = 96
    constants: Constants
    secrets: Secrets
    next_round: Annotated[int, Uint(4)]
    """The first round that may still be answered."""
    window: ring.Window
    participations: Annotated[Participations, Nested(Participations)]
    links: Links
    request: Digest
    reply: Annotated[bytes, Blob((1 << 32) - 1)]

    @property
    def chain(self) -> Chain:
        """The hash chain of everything that was answered."""
        return Chain.of(self.constants, self.links)

    def ended(self) -> HelperState:
        """Return the state after the run: no secrets, no masks, no round that may be answered.

        What was sealed in the run can never be opened again. Keep it: a run id is used once.
        """
        return replace(
            self,
            secrets=self.secrets.erased(),
            next_round=self.constants.rounds,
            window=(),
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Answered:
    """A new state and the reply that may be sent once the state is written."""

    state: HelperState
    reply: bytes
    round_: int | None = None
    """The round that was answered now; None where a reply is repeated or rounds are forgotten."""
    participants: tuple[int, ...] = ()
    """Who took part in it, for the caller's ledger."""


@dataclass(frozen=True, slots=True, eq=False)
class Refused:
    """The reply to a job with entries that fail; the state did not change."""

    reply: bytes
    rejections: tuple[Rejection, ...]


def grant(proposal: bytes, *, setting: HelperSetting, entropy: Entropy) -> HelperState:
    """Return the state of a new run, with the `Grant` as its reply; raise if a limit forbids it.

    The caller keeps one state for each run id for ever; to a run that is open it shows a repeated
    proposal by `handle`.
    """
    asked = from_server(Proposal, proposal, "leader", setting.leader, proposal_context())
    if asked.constants.helper_key != bytes(32):
        raise TamperError("a proposal must leave the helper's key to the helper")
    if key_id(asked.leader_public) != asked.constants.leader_key:
        raise TamperError("the leader's sealing key is not that of the constants")
    setting.limits.require(asked.constants)
    ring.sampler(asked.constants)
    secrets = ServerSecrets.generate(entropy=entropy)
    key = secrets.key
    constants = replace(asked.constants, helper_key=key.key_id)
    chain = Chain.of(constants)
    signature = chain.head.sign(setting.identity, constants)
    return HelperState(
        constants=constants,
        secrets=secrets,
        next_round=0,
        window=(),
        participations=Participations.empty(),
        links=b"",
        request=message_digest(proposal),
        reply=Grant(constants, asked.leader_public, key.public, signature).encode(),
    )


def handle(
    state: HelperState,
    message: bytes,
    *,
    setting: HelperSetting,
    objections: Objections | None = None,
) -> Answered | Refused:
    """Answer the leader's next message, a job or a `Forget`; repeat the reply to its latest one.

    ``objections`` is the helper's own ledger: whom it names does not take part.
    """
    if message_digest(message) == state.request:
        return Answered(state, state.reply)
    kind = message[1] if len(message) > 1 else None
    if kind == Job.TAG:
        return _answer(state, message, setting, objections)
    if kind == Forget.TAG:
        return _forget(state, message, setting)
    if kind == Proposal.TAG:
        raise TamperError("the run is open already, and its constants do not change")
    raise MessageError("a helper answers jobs and requests to forget rounds")


def _answer(
    state: HelperState, data: bytes, setting: HelperSetting, objections: Objections | None
) -> Answered | Refused:
    job = Job.decode(data)
    _require_leader(state, job.run, data, setting)
    constants, chain = state.constants, state.chain
    constants.require_round(job.round_)
    if job.round_ < state.next_round:
        raise PhaseError(
            f"round {job.round_} is closed, rounds from {state.next_round} on may be answered; "
            "only the latest request can be repeated, with the same bytes"
        )
    if job.head != chain.head:
        raise TamperError(_two_histories(job.head, chain.head))
    if len(job.entries) < constants.min_cohort:
        raise ThresholdError(
            f"the job has {len(job.entries)} clients, at least {constants.min_cohort} are agreed"
        )
    bound = constants.round_digest(job.round_, job.round_input)
    senders = job.entries["sender"].astype(np.uint64)
    keys, rejections = _mask_keys(state, job, bound, setting)
    participants = tuple(map(int, senders))
    if objections is not None and not rejections:
        named = objections(participants)
        rejections = [Rejection(each, named[each]) for each in participants if each in named]
    request = message_digest(data)
    if rejections:
        refusal = Refusal(constants.digest, job.round_, request, tuple(rejections))
        reply = refusal.signed(setting.identity, helper_context(constants))
        return Refused(reply, tuple(rejections))
    masks = ring.masked(ring.zeros(constants), keys, constants)
    hidden = ring.band_sum(masks, state.window, job.round_, constants)
    noise = ring.noise(state.secrets.noise, hidden, bound, constants)
    vector = ring.to_wire(ring.subtract(hidden, noise, constants), constants)
    following = chain.extended(answer_link(job.round_, request, vector, state.secrets.replayable))
    answer = Answer(
        constants.digest,
        job.round_,
        request,
        chain.head,
        state.secrets.replayable,
        vector,
        following.head.sign(setting.identity, constants),
    )
    new = replace(
        state,
        next_round=job.round_ + 1,
        window=ring.advanced(state.window, ring.to_slot(job.round_, masks), constants),
        participations=state.participations.added(senders, job.round_),
        links=following.links,
        request=request,
        reply=answer.encode(),
    )
    return Answered(new, new.reply, job.round_, participants)


def _mask_keys(
    state: HelperState, job: Job, bound: bytes, setting: HelperSetting
) -> tuple[list[bytes], list[Rejection]]:
    """Return the keys of all masks, and the entries that fail."""
    sealing = state.secrets.key
    keys, rejections, before = list[bytes](), list[Rejection](), -1
    for row in job.entries:
        sender = int(row["sender"])
        try:
            _require_turn(state, sender, before, job.round_)
            sealed, signature = row["sealed"].tobytes(), row["signature"].tobytes()
            require_entry(setting.roster, bound, sender, sealed, signature)
            seed = sealing.unseal(sealed, seed_info(bound, sender))
            keys.append(ring.mask_key(seed, bound, sender))
        except TamperError as error:
            rejections.append(Rejection(sender, str(error)))
        before = max(before, sender)
    return keys, rejections


def _require_turn(state: HelperState, sender: int, before: int, round_: int) -> None:
    if sender <= before:
        raise TamperError("is named twice, or out of order")
    objection = state.participations.objection(sender, round_, state.constants)
    if objection is not None:
        raise TamperError(objection)


def _forget(state: HelperState, data: bytes, setting: HelperSetting) -> Answered:
    asked = Forget.decode(data)
    _require_leader(state, asked.run, data, setting)
    constants, chain = state.constants, state.chain
    if chain.head_at(asked.head.count) != asked.head:
        raise TamperError(_two_histories(asked.head, chain.head))
    if asked.next_round > constants.rounds:
        raise TamperError(f"the run has {constants.rounds} rounds; none after them can be closed")
    request = message_digest(data)
    window = ring.restricted(state.window, asked.kept_rounds)
    next_round = max(state.next_round, asked.next_round)
    link = forget_link(next_round, ring.rounds(window), request)
    following = chain.extended(link)
    reply = Forgotten(
        constants.digest,
        next_round,
        ring.rounds(window),
        following.since(asked.head.count),
        following.head.sign(setting.identity, constants),
    ).encode()
    new = replace(
        state,
        next_round=next_round,
        window=window,
        links=following.links,
        request=request,
        reply=reply,
    )
    return Answered(new, reply)


def _require_leader(state: HelperState, run: bytes, data: bytes, setting: HelperSetting) -> None:
    if run != state.constants.digest:
        raise TamperError("the message is of another run, or the run's constants were changed")
    context = leader_context(state.constants)
    require_signature("leader", setting.leader, context, *split_signature(data))


def _two_histories(leader: ChainHead, helper: ChainHead) -> str:
    return (
        f"the leader knows a chain of {leader.count} links that is not this helper's, which has "
        f"{helper.count}: one of the two was set back to an older state, or an answer was lost; "
        "the leader repeats its latest request or forgets that round"
    )
