"""The client's part: the user's training function, and the protocol's stages around it.

The first stage trains and advertises, so that who fails in training is never counted. The others
are queries. Whatever a handler raises travels to the server as text; so only errors of skellam's
own, which hold no data, leave this file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from logging import getLogger
from typing import Any, TypeAlias

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from skellam.codec.layout import Layout
from skellam.engines.flower import journal
from skellam.engines.flower.cohort import heads
from skellam.engines.flower.invitation import RECORD, Invitation, Update, model_digest
from skellam.engines.flower.letters import letter, masked_letter, model_of, opened
from skellam.engines.flower.limits import Limits
from skellam.engines.flower.memory import Memory, wipe
from skellam.engines.flower.node import Node
from skellam.engines.flower.virtual import node_of
from skellam.engines.local import EntropySource
from skellam.entropy import Entropy
from skellam.errors import (
    DataError,
    DomainError,
    LedgerError,
    MessageError,
    ProtocolError,
    ShapeError,
    SkellamError,
)
from skellam.secagg import History, client
from skellam.vectors import Residues

Train: TypeAlias = Callable[[Message, Context], Message]
STAGES = ("share", "mask", "agree", "unmask")
_WEIGHT = "num-examples"
_log = getLogger("skellam.flower")


def protect(
    app: ClientApp,
    *,
    entropy: Entropy | EntropySource,
    update: Update | str = Update.DIFFERENCE,
    withhold: Collection[str] = (),
    simulated: Limits | None = None,
) -> Callable[[Train], Train]:
    """Register a training function, in place of ``@app.train()``, so that only sums leave the node.

    ``update`` says what is summed: the reply's arrays minus those that were received, or the
    reply's arrays themselves. Metrics of the reply stay on the node: ``num-examples`` as a matter
    of course, any other must be named in ``withhold``, or the reply is refused. ``simulated`` are
    the limits of nodes under Flower's simulation; others take theirs from their own file.
    """
    kind = Update(update)
    source = _source(entropy)

    def register(train: Train) -> Train:
        stages = _Client(train, source, kind, frozenset(withhold), simulated)
        app.train()(stages.train)
        app.evaluate()(_refuse_evaluation)
        for stage in STAGES:
            app.query(f"skellam_{stage}")(getattr(stages, stage))
        return train

    return register


@dataclass(frozen=True, slots=True)
class _Client:
    """The handlers of one app; whatever they remember is in the context and the node's files."""

    function: Train
    entropy: EntropySource
    kind: Update
    withhold: frozenset[str]
    simulated: Limits | None

    def train(self, message: Message, context: Context) -> Message:
        """Check the invitation, train, and advertise."""
        with _only_our_errors("train", context):
            return self._train(message, context)

    def _train(self, message: Message, context: Context) -> Message:
        wipe(context)
        node, invitation = self._node(context), _invitation(message)
        if invitation.update is not self.kind:
            raise DomainError(f"this app's update is {self.kind!s}; the server asks for another")
        limits = node.limits
        limits.require_company(invitation.invited)
        journal.require_room(node.spend, limits, limits.price(invitation.plan))
        node.enter(invitation.round_id, "train")
        model, update = self._update(message, context, invitation, limits)
        this = invitation.protocol(model)
        phase, sent, _ = client.Advertise(node.party(this)).step(
            history=History(), entropy=self._protocol_entropy(node)
        )
        Memory(invitation, model, phase.to_bytes(), update).store(context)
        return Message(letter(sent, this), reply_to=message)

    def share(self, message: Message, context: Context) -> Message:
        """Verify who takes part, and deal shares to them."""
        with _only_our_errors("share", context):
            memory, node, data = self._resume("share", message, context)
            phase = client.Share.from_bytes(memory.phase, node.party(memory.protocol))
            following, sent = phase.step(data, entropy=self._protocol_entropy(node))
            node.limits.require_company(following.participants)
            memory.then(following.to_bytes(), keep_update=True).store(context)
            return Message(letter(sent, memory.protocol), reply_to=message)

    def mask(self, message: Message, context: Context) -> Message:
        """Encode with the noise of those who were counted, mask, pay, and only then send."""
        with _only_our_errors("mask", context):
            memory, node, data = self._resume("mask", message, context)
            this, invitation = memory.protocol, memory.invitation
            phase = client.Mask.from_bytes(memory.phase, node.party(this))
            vector = self._encode(memory, phase, node)
            following, sent = phase.step(data, replace(vector, label=b""))
            content = masked_letter(sent, this)
            journal.spend(
                node.spend,
                node.limits,
                node.limits.price(invitation.plan),
                key=invitation.round_id,
                replayable=vector.replayable,
            )
            memory.then(following.to_bytes()).store(context)
            return Message(content, reply_to=message)

    def agree(self, message: Message, context: Context) -> Message:
        """Check who survived, and sign it."""
        with _only_our_errors("agree", context):
            memory, node, data = self._resume("agree", message, context)
            phase = client.Agree.from_bytes(memory.phase, node.party(memory.protocol))
            following, sent = phase.step(data)
            memory.then(following.to_bytes()).store(context)
            return Message(letter(sent, memory.protocol), reply_to=message)

    def unmask(self, message: Message, context: Context) -> Message:
        """Open the shares that the survivors' sum needs; nothing is left in the state."""
        with _only_our_errors("unmask", context):
            memory, node, data = self._resume("unmask", message, context)
            phase = client.Unmask.from_bytes(memory.phase, node.party(memory.protocol))
            _, sent = phase.step(data, entropy=self._protocol_entropy(node))
            return Message(letter(sent, memory.protocol), reply_to=message)

    def _node(self, context: Context) -> Node:
        return node_of(context, self.simulated)

    def _resume(self, stage: str, message: Message, context: Context) -> tuple[Memory, Node, bytes]:
        memory, node = Memory.take(context), self._node(context)
        data = opened(message.content, memory.protocol)
        node.enter(memory.invitation.round_id, stage)
        return memory, node, data

    def _protocol_entropy(self, node: Node) -> Entropy:
        return self.entropy(f"protocol/{node.identity.number}")

    def _encode(self, memory: Memory, phase: client.Mask, node: Node) -> Residues:
        plan, update = memory.invitation.plan, memory.update
        mine = self.entropy(f"client/{node.identity.number}")
        codec = memory.invitation.codec(memory.model, phase.ids)
        joins = plan.coin is None or heads(plan.coin, entropy=mine)
        if update is None or not joins:
            return codec.encode_zeros(entropy=mine, removable=phase.noise_seeds)
        if memory.invitation.clip is not None:
            update = memory.invitation.clip.scaled(update, plan)
        return codec.encode_or_zeros(update, entropy=mine, removable=phase.noise_seeds)

    def _update(
        self, message: Message, context: Context, invitation: Invitation, limits: Limits
    ) -> tuple[bytes, NDArray[np.floating[Any]]]:
        """Return the digest of the model that was really given, and the update."""
        message.content = RecordDict({k: v for k, v in message.content.items() if k != RECORD})
        _, model = model_of(message.content)
        layout = Layout.of(model)
        if layout.dimension != invitation.plan.dimension:
            raise ShapeError(
                f"the plan is for {invitation.plan.dimension} parameters; "
                f"the model has {layout.dimension}"
            )
        before, digest = layout.flatten(model).copy(), model_digest(model)
        limits.require_model(digest)
        reply = self._call(message, context)
        if reply is None:
            return digest, np.zeros_like(before)
        self._require_no_metrics(reply)
        _, arrays = model_of(reply.content)
        after = layout.flatten(arrays)
        return digest, after - before if self.kind is Update.DIFFERENCE else after

    def _call(self, message: Message, context: Context) -> Message | None:
        """Return the reply, or None if training failed: then zeros are sent, with their noise.

        Whether it fails may depend on the data, so a client that dropped out for it would tell.
        """
        try:
            return self.function(message, context)
        except Exception as error:  # noqa: BLE001  (its text may hold data)
            _log.debug("the training function failed", exc_info=True)
            _log.warning("the training function raised %s; zeros are sent", type(error).__name__)
            return None

    def _require_no_metrics(self, reply: Message) -> None:
        named = {name for record in reply.content.metric_records.values() for name in record}
        shown = named - {_WEIGHT} - self.withhold
        if shown:
            raise DomainError(
                f"the metrics {sorted(shown)} would leave the node in the clear; "
                "name them in withhold=, and they stay on it"
            )


def _source(entropy: Entropy | EntropySource) -> EntropySource:
    if callable(entropy):
        return entropy
    return lambda _: entropy


def _invitation(message: Message) -> Invitation:
    if RECORD not in message.content:
        raise MessageError("a train message without an invitation; the server needs SecureGrid")
    return Invitation.from_record(message.content.config_records[RECORD])


def _refuse_evaluation(message: Message, context: Context) -> Message:
    del message, context
    raise DomainError("this app reports no metrics of single clients; evaluate on the server")


@contextmanager
def _only_our_errors(stage: str, context: Context) -> Iterator[None]:
    """Let skellam's errors through, replace all others, and leave no state behind either."""
    try:
        yield
    except (DataError, LedgerError, OSError) as error:
        wipe(context)
        _log.error("stage %s: %s", stage, error)
        raise DataError("this node's own files cannot be used; its log says why") from None
    except SkellamError as error:
        wipe(context)
        raise type(error)(str(error)) from None
    except Exception as error:  # noqa: BLE001  (its text may hold data)
        wipe(context)
        _log.debug("stage %s failed", stage, exc_info=True)
        raise ProtocolError(f"stage {stage} failed with {type(error).__name__}") from None
