"""The client's part: the user's training function, and the protocol's stages around it.

The first stage trains and advertises, so that who fails before it is never counted. The others are
queries. Whatever a handler raises travels to the server as text; so only errors of skellam's own
leave this file, none of them after the training function was called, and none with data in it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from logging import getLogger
from typing import Any, TypeAlias

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from skellam.engines import durable, two_servers
from skellam.engines.flower.messages import (
    content_digest,
    content_of,
    masked_vector_content,
    metrics_of,
    model_digest,
    model_of,
    payload,
    read_config,
    read_content,
    read_start,
    report_content,
)
from skellam.engines.flower.node import Limits, Node, RoundInProgress, wipe
from skellam.engines.flower.round_config import (
    MetricRanges,
    Ranges,
    RoundConfig,
    UpdateKind,
    ranges_of,
    run_config_digest,
)
from skellam.engines.flower.simulation import node_of
from skellam.engines.local import AnyEntropy, EntropySource, by_purpose
from skellam.engines.sampling import bernoulli
from skellam.entropy import SEED_BYTES, Entropy, random_bytes
from skellam.errors import (
    BudgetError,
    DataError,
    DomainError,
    LedgerError,
    MessageError,
    ProtocolError,
    ShapeError,
    SkellamError,
    TamperError,
)
from skellam.plan import Servers
from skellam.secagg import SeenRounds, client
from skellam.twoserver import RunConstants
from skellam.twoserver import client as twoserver
from skellam.twoserver.messages import RoundStart, from_server, leader_context
from skellam.vectors import Layout, Residues

Handler: TypeAlias = Callable[[Message, Context], Message]
_ADVERTISED = 3 * SEED_BYTES
"""What the first stage draws: two keys and a nonce."""
STAGES = ("share_keys", "masked_input", "consistency_check", "unmask")
_log = getLogger("skellam.flower")


def protect(
    app: ClientApp,
    *,
    entropy: AnyEntropy,
    update: UpdateKind | str = UpdateKind.DIFFERENCE,
    metrics: Ranges = None,
    evaluate_metrics: Ranges = None,
    simulated: Limits | None = None,
) -> Callable[[Handler], Handler]:
    """Register a training function, in place of ``@app.train()``, so that only sums leave the node.

    ``update`` says what is summed: the reply's arrays minus those that were received, or the
    reply's arrays themselves. Metrics of the reply stay on the node, but for those that
    ``metrics`` names with their ranges, ``{"loss": (0, 10)}``, which are summed with noise if the
    server's plan pays for them. An evaluation function that is registered *afterwards*, with
    ``@app.evaluate()`` as always, is protected the same way, by ``evaluate_metrics``.
    ``simulated`` are the limits of nodes under Flower's simulation; others take theirs from their
    own file.
    """
    summed = {
        UpdateKind(update): ranges_of(metrics),
        UpdateKind.METRICS: ranges_of(evaluate_metrics),
    }

    def register(train: Handler) -> Handler:
        stages = _Client(train, by_purpose(entropy), UpdateKind(update), summed, simulated)
        app.train()(stages.train)
        _take_evaluation(app, stages)
        for stage in STAGES:
            app.query(f"skellam_{stage}")(getattr(stages, stage))
        return train

    return register


def _take_evaluation(app: ClientApp, stages: _Client) -> None:
    """Make ``@app.evaluate()`` register a function whose metrics leave the node in sums alone."""
    try:
        app.evaluate()(stages.evaluate)
    except ValueError as error:
        raise DomainError(
            "this app has an evaluation function already, which would send its metrics to the "
            "server as they are; move @app.evaluate() below skellam's protect(), which sums them"
        ) from error

    def evaluate(action: str = "default", *, mods: object = None) -> Callable[[Handler], Handler]:
        if action != "default" or mods:
            raise DomainError(
                "skellam's protect() takes one evaluation function, without an action or mods"
            )

        def register(function: Handler) -> Handler:
            stages.evaluation.append(function)
            return function

        return register

    app.evaluate = evaluate  # type: ignore[method-assign]


@dataclass(frozen=True, slots=True)
class _Client:
    """The handlers of one app; whatever they remember is in the node's own files."""

    training: Handler
    entropy: EntropySource
    kind: UpdateKind
    metrics: Mapping[UpdateKind, MetricRanges | None]
    simulated: Limits | None
    evaluation: list[Handler] = field(default_factory=list)

    def train(self, message: Message, context: Context) -> Message:
        """Check the round, train, and advertise; or report, to two servers."""
        with self._stage("advertise_keys", context) as node:
            return self._begin(node, message, context, self.training, self.kind)

    def evaluate(self, message: Message, context: Context) -> Message:
        """Check the round, evaluate, and advertise."""
        with self._stage("advertise_keys", context) as node:
            if not self.evaluation:
                raise DomainError("this app evaluates nothing; evaluate on the server")
            return self._begin(node, message, context, self.evaluation[-1], UpdateKind.METRICS)

    def _begin(
        self, node: Node, message: Message, context: Context, function: Handler, kind: UpdateKind
    ) -> Message:
        wipe(node.state)
        config = read_config(message.content)
        self._require_agreed(config, kind, message, context)
        plan, limits = config.plan, node.limits
        mechanism = limits.price(plan)
        if plan.aggregation is Servers.TWO:
            return self._report(node, config, message, context, function)
        limits.require_cohort(
            survivors=config.survivors(config.invited), colluders=config.colluders(config.invited)
        )
        message.content = payload(message.content)
        content = content_digest(message.content)
        round_ = config.protocol(content)
        vectors = _Vectors.of(message.content, config)
        limits.require_model(vectors.model)
        joins = node.spending.participations(plan.digest) < plan.participations
        if joins:
            node.spending.require_spendable(mechanism)
        node.stages.enter(config.round_id, "advertise_keys")
        update = None
        if joins:
            node.stages.enter(config.round_id, "train", limits=limits)
            update = _called(function, message, context, vectors)
        phase, sent, _ = client.AdvertiseKeys(node.party(round_)).step(
            seen=SeenRounds(), entropy=self._protocol_entropy(node)
        )
        RoundInProgress(config, content, phase.to_bytes(), update).store(node.state)
        return Message(content_of(sent, round_), reply_to=message)

    def _report(
        self,
        node: Node,
        config: RoundConfig,
        message: Message,
        context: Context,
        function: Handler,
    ) -> Message:
        """Check the round, train, and send the only message of a client of two servers.

        What was sent in a round is sent again, with the same bytes, whenever it is asked for.
        """
        offer, start = read_start(message.content)
        message.content = payload(message.content)
        content = content_digest(message.content)
        joined = _join(node, config, content, offer, start)
        if isinstance(joined, bytes):
            return Message(report_content(joined), reply_to=message)
        _require_planned_turn(node, config)
        vectors = _Vectors.of(message.content, config)
        node.limits.require_model(vectors.model)
        mechanism = node.limits.price(config.plan)
        node.spending.require_spendable(mechanism)
        node.stages.enter(config.round_id, "train", limits=node.limits)
        update = _called(function, message, context, vectors)
        mine = self.entropy(f"client/{node.identity.number}")
        vector = _encoded(config, content, config.invited, update, None, entropy=mine)
        node.spending.spend(
            mechanism,
            key=config.round_id,
            plan=config.plan.digest,
            replayable=vector.replayable,
        )
        sent = _send(node, joined, vector, entropy=self._protocol_entropy(node))
        return Message(report_content(sent), reply_to=message)

    def _require_agreed(
        self, config: RoundConfig, kind: UpdateKind, message: Message, context: Context
    ) -> None:
        """Raise unless the server asks for what this app does, in the run that it is in."""
        if config.update is not kind:
            raise DomainError(
                f"the server asks for update={str(config.update)!r}, this app sends {str(kind)!r}; "
                "give SecureGrid and protect() the same"
            )
        if config.metrics is not None and config.metrics != self.metrics[kind]:
            raise DomainError(
                "the server asks for other metrics or ranges than protect() was given; give "
                "both the same metrics= or evaluate_metrics="
            )
        if config.run_config != run_config_digest(context.run_config):
            raise TamperError(
                "the run configuration of this node is not the server's; the server app passes "
                "run_config=context.run_config to SecureGrid"
            )
        if message.metadata.group_id != str(config.number):
            raise TamperError("a message is not of the group of its round")

    def share_keys(self, message: Message, context: Context) -> Message:
        """Verify who takes part, and deal shares to them."""
        with self._stage("share_keys", context) as node:
            state, data = self._resume("share_keys", message, node)
            phase = client.ShareKeys.from_bytes(state.phase, node.party(state.protocol))
            entropy = self._protocol_entropy(node, drawn=_ADVERTISED)
            following, sent = phase.step(data, entropy=entropy)
            count = following.participants
            node.limits.require_cohort(
                survivors=state.config.survivors(count), colluders=state.config.colluders(count)
            )
            state.then(following.to_bytes(), keep_update=True).store(node.state)
            return Message(content_of(sent, state.protocol), reply_to=message)

    def masked_input(self, message: Message, context: Context) -> Message:
        """Encode with the noise of those who were counted, mask, spend, and only then send."""
        with self._stage("masked_input", context) as node:
            state, data = self._resume("masked_input", message, node)
            round_, config = state.protocol, state.config
            phase = client.MaskedInput.from_bytes(state.phase, node.party(round_))
            vector = self._encode(state, phase, node)
            following, sent = phase.step(data, replace(vector, label=b""))
            content = masked_vector_content(sent, round_)
            if state.update is not None:
                node.spending.spend(
                    node.limits.price(config.plan),
                    key=config.round_id,
                    plan=config.plan.digest,
                    replayable=vector.replayable,
                )
            state.then(following.to_bytes()).store(node.state)
            return Message(content, reply_to=message)

    def consistency_check(self, message: Message, context: Context) -> Message:
        """Check who survived, and sign it."""
        with self._stage("consistency_check", context) as node:
            state, data = self._resume("consistency_check", message, node)
            phase = client.ConsistencyCheck.from_bytes(state.phase, node.party(state.protocol))
            following, sent = phase.step(data)
            state.then(following.to_bytes()).store(node.state)
            return Message(content_of(sent, state.protocol), reply_to=message)

    def unmask(self, message: Message, context: Context) -> Message:
        """Open the shares that the survivors' sum needs; nothing is left in the state."""
        with self._stage("unmask", context) as node:
            state, data = self._resume("unmask", message, node)
            phase = client.Unmask.from_bytes(state.phase, node.party(state.protocol))
            _, sent = phase.step(data, entropy=self.entropy(f"unmask/{node.identity.number}"))
            return Message(content_of(sent, state.protocol), reply_to=message)

    @contextmanager
    def _stage(self, stage: str, context: Context) -> Iterator[Node]:
        """Yield the node; let skellam's errors through, replace all others, and leave no state."""
        node = None
        try:
            node = node_of(context, self.simulated)
            yield node
        except (DataError, LedgerError, OSError) as error:
            _log.error("stage %s: %s", stage, error, exc_info=True)
            _end(node)
            raise DataError("this node's own files cannot be used; its log says why") from None
        except SkellamError as error:
            _log.warning("stage %s: %s", stage, error)
            _end(node)
            raise type(error)(str(error)) from None
        except Exception:  # noqa: BLE001  (its text may hold data)
            _log.exception("stage %s failed", stage)
            _end(node)
            raise ProtocolError(f"stage {stage} failed; the node's log says why") from None

    def _resume(self, stage: str, message: Message, node: Node) -> tuple[RoundInProgress, bytes]:
        state = RoundInProgress.take(node.state)
        data = read_content(message.content, state.protocol)
        node.stages.enter(state.config.round_id, stage)
        return state, data

    def _protocol_entropy(self, node: Node, *, drawn: int = 0) -> Entropy:
        """Return the entropy of the protocol after ``drawn`` bytes, for streams that replay."""
        stream = self.entropy(f"protocol/{node.identity.number}")
        random_bytes(drawn, entropy=stream)
        return stream

    def _encode(self, state: RoundInProgress, phase: client.MaskedInput, node: Node) -> Residues:
        mine = self.entropy(f"client/{node.identity.number}")
        return _encoded(
            state.config,
            state.content,
            phase.participants,
            state.update,
            phase.noise_seed,
            entropy=mine,
        )


def _require_planned_turn(node: Node, config: RoundConfig) -> None:
    """Raise if the plan's participations are used up: a leader may begin many runs of one plan."""
    plan, count = config.plan, node.spending.participations(config.plan.digest)
    if count >= plan.participations:
        raise BudgetError(
            f"this node took part in {count} rounds of this plan, over all runs; the plan allows "
            f"{plan.participations}"
        )


def _encoded(
    config: RoundConfig,
    content: bytes,
    participants: int,
    update: NDArray[np.floating[Any]] | None,
    noise_seed: bytes | None,
    *,
    entropy: Entropy,
) -> Residues:
    """Return the update as it is sent; zeros where it cannot be, or by the client's own coin."""
    plan = config.plan
    codec = config.codec(content, participants)
    chance = plan.participation_probability
    joins = chance is None or bernoulli(1, chance, entropy=entropy)[0]
    if update is None or not joins:
        return codec.encode_zeros(entropy=entropy, noise_seed=noise_seed)
    try:
        if config.clip is not None:
            update = config.clip.scaled(update, plan)
        return codec.encode_or_zeros(update, entropy=entropy, noise_seed=noise_seed)
    except Exception:  # noqa: BLE001  (whether it fails may depend on the data)
        _log.exception("the update cannot be encoded; zeros are sent")
        return codec.encode_zeros(entropy=entropy, noise_seed=noise_seed)


@dataclass(frozen=True, slots=True, eq=False)
class _Vectors:
    """How a reply becomes a vector; all that can be wrong with the server's part is checked."""

    config: RoundConfig
    layout: Layout
    before: NDArray[np.floating[Any]]
    model: bytes
    """Digest of the model that was given."""

    @classmethod
    def of(cls, content: RecordDict, config: RoundConfig) -> _Vectors:
        """Return it for a message's content, which must have the plan's dimension."""
        _, model = model_of(content)
        layout, summed = Layout.of(model), len(config.metrics or ())
        parameters = 0 if config.update is UpdateKind.METRICS else layout.dimension
        if parameters + summed != config.plan.dimension:
            raise ShapeError(
                f"the plan is for {config.plan.dimension} parameters and metrics; "
                f"the model has {layout.dimension}, and {summed} metrics are summed"
            )
        return cls(config, layout, layout.flatten(model).copy(), model_digest(model))

    @property
    def zeros(self) -> NDArray[np.floating[Any]]:
        """What a client sends whose training failed."""
        return np.zeros(self.config.plan.dimension, dtype=np.float32)

    def update(self, reply: Message) -> NDArray[np.floating[Any]]:
        """Return the vector of ``reply``, or raise anything."""
        if self.config.update is UpdateKind.METRICS:
            update = np.empty(0, dtype=np.float32)
        else:
            update = self.layout.flatten(model_of(reply.content)[1])
            if self.config.update is UpdateKind.DIFFERENCE:
                update = update - self.before
        if (ranges := self.config.metrics) is None:
            return update
        return ranges.joined(update, metrics_of(reply.content), self.config.plan.clip)


def _called(
    function: Handler, message: Message, context: Context, vectors: _Vectors
) -> NDArray[np.floating[Any]]:
    """Return the update, or zeros if anything at all goes wrong: they are sent with their noise.

    Whether it does may depend on the data, so a client that dropped out for it would tell.
    """
    try:
        return vectors.update(function(message, context))
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  (SystemExit of a library is a failure like any other)
        _log.error("the training function failed; zeros are sent", exc_info=True)
        return vectors.zeros


def _end(node: Node | None) -> None:
    """Leave no state; what cannot be removed is for the node's log alone, not for the server."""
    try:
        if node is not None:
            wipe(node.state)
    except DataError as error:
        _log.error("%s", error)


# Reports to two servers: what a node checks before it trains, and what it keeps of them.


def _join(
    node: Node, config: RoundConfig, content: bytes, offer: bytes, start: bytes
) -> twoserver.Joined | bytes:
    """Return the round that ``node`` may take part in, or what it sent in this very round before.

    The constants must follow from the plan, by this node's own arithmetic: so what it was told of
    the noise is what both servers signed.
    """
    state, party = _reported(node), node.two_servers
    constants = twoserver.read_offer(offer, party=party).constants
    _require_planned(constants, config)
    begun = from_server(RoundStart, start, "leader", party.leader, leader_context(constants))
    if again := state.message_in(constants.run_id, begun.round_):
        return again
    inputs = twoserver.Inputs(
        config.plan.digest, config.round_input(content), two_servers.norm_bound(config.plan)
    )
    return twoserver.join(state, offer, start, party=party, inputs=inputs)


def _send(node: Node, joined: twoserver.Joined, vector: Residues, *, entropy: Entropy) -> bytes:
    """Return the report with ``vector``, after the participation was written down.

    A server may send two messages at once; of rounds that were joined from one record, one counts.
    """
    state = joined.report(vector, entropy=entropy)
    with _locked(node):
        if _reported(node) != joined.state:
            raise TamperError("this node reported in another round meanwhile; nothing is sent")
        durable.replace(node.reports, state.to_bytes(), mode=durable.SECRET)
    return state.message


@contextmanager
def _locked(node: Node) -> Iterator[None]:
    path = node.reports.with_name(node.reports.name + ".lock")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, durable.SECRET)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _reported(node: Node) -> twoserver.ClientState:
    try:
        return twoserver.ClientState.from_bytes(node.reports.read_bytes())
    except FileNotFoundError:
        return twoserver.ClientState()
    except (OSError, MessageError) as error:
        raise DataError(f"cannot read {node.reports}: {error}") from error


def _require_planned(constants: RunConstants, config: RoundConfig) -> None:
    blank = bytes(32)
    planned = two_servers.constants(config.plan, run_id=constants.run_id, rounds=constants.rounds)
    offered = replace(constants, leader_key=blank, helper_key=blank)
    # The norm is compared with this client's own when it joins: arithmetic may differ a little.
    if offered != replace(planned, norm_bound=offered.norm_bound):
        raise TamperError(
            "the run that the servers offer does not follow from the plan that came with it; "
            "leader and helper must run that plan"
        )
