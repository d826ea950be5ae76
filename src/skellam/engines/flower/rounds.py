"""The server's rounds: five exchanges with the nodes, or one and a helper; and who took part.

Progress is kept on disk, so that a server that is started again can go on. Cohorts by turns
(``sampling="cyclic"``) are spent once a cycle, for no client takes part twice in one. So *clients*
are counted, not nodes, whose numbers change when they are started anew; and the count is on disk
before the sum that it covers is opened.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from logging import getLogger
from pathlib import Path
from typing import Any, Protocol

from flwr.app import RecordDict
from flwr.serverapp import Grid

from skellam import _checks
from skellam.codec import Codec, WrapEstimate
from skellam.engines import durable, two_servers
from skellam.engines.flower.messages import (
    RECORD,
    Answers,
    config_content,
    content_of,
    exchange,
    read_content,
    read_masked_vector,
    read_report,
    start_content,
)
from skellam.engines.flower.round_config import RoundConfig, UpdateKind
from skellam.engines.leader import Leader
from skellam.engines.sampling import Turns
from skellam.entropy import Entropy, random_bytes
from skellam.errors import DataError, ProtocolError, SkellamError, TamperError
from skellam.plan import AdaptiveClip, CalibratedPlan, Sampling
from skellam.secagg import Fault, Outcome, Roster, RoundParameters, Setting
from skellam.secagg.messages import (
    Advertisement,
    Agreement,
    Agreements,
    KeyShares,
    MaskedVector,
    Opening,
    ParticipantList,
    Receipt,
)
from skellam.secagg.server import CollectKeys
from skellam.twoserver.leader import Release
from skellam.twoserver.messages import Report
from skellam.vectors import Reals

_KIND, _VERSION = "skellam-progress", 1


@dataclass(frozen=True, slots=True)
class Progress:
    """What a server knows of earlier rounds; ``run`` tells it from other runs on one ledger."""

    run: bytes
    rounds: int = 0
    turns: Mapping[str, Turns] = field(default_factory=dict)
    """By the digest of the plan."""
    clients: Mapping[int, int] = field(default_factory=dict)
    """The number of the client on each node, as far as it is known."""
    clip: AdaptiveClip | None = None

    @classmethod
    def begin(cls, clip: AdaptiveClip | None, *, entropy: Entropy) -> Progress:
        """Return the progress of a new run."""
        return cls(random_bytes(32, entropy=entropy), clip=clip)

    def of(self, plan: CalibratedPlan) -> Turns:
        """Return the turns of ``plan``."""
        return self.turns.get(plan.digest.hex(), Turns())

    def cycle_key(self, plan: CalibratedPlan) -> bytes:
        """Return the ledger's key of the cycle that the next round of ``plan`` belongs to."""
        cycle = self.of(plan).cycle(plan).to_bytes(8, "big")
        return sha256(b"skellam/cycle/" + self.run + plan.digest + cycle).digest()

    def begun(self, plan: CalibratedPlan) -> Progress:
        """Return the progress after a round of ``plan`` began."""
        turns = {**self.turns, plan.digest.hex(): self.of(plan).begun()}
        return replace(self, rounds=self.rounds + 1, turns=turns)

    def taken(self, plan: CalibratedPlan, clients: Iterable[int]) -> Progress:
        """Return the progress after ``clients`` took part in the last round of ``plan``."""
        turns = self.of(plan)
        if plan.sampling is not Sampling.CYCLIC:
            return self
        return replace(self, turns={**self.turns, plan.digest.hex(): turns.taken(clients)})

    def knowing(self, clients: Mapping[int, int]) -> Progress:
        """Return the progress with more nodes whose clients are known."""
        return replace(self, clients={**self.clients, **clients})

    def free(self, plan: CalibratedPlan, nodes: Iterable[int]) -> list[int]:
        """Return those of ``nodes`` whose clients may take part, as far as these are known."""
        barred = self.of(plan).barred(plan)
        return [node for node in nodes if self.clients.get(node) not in barred]

    def keep(self, path: Path, plan: CalibratedPlan) -> None:
        """Make this the content of ``path``, durably, for a server that is started again."""
        record = {
            _KIND: _VERSION,
            "plan": plan.digest.hex(),
            "run": self.run.hex(),
            "rounds": self.rounds,
            "turns": {digest: [t.rounds, _listed(t.past)] for digest, t in self.turns.items()},
            "clients": _listed(self.clients),
            "clip": None if self.clip is None else asdict(self.clip),
        }
        octets = json.dumps(durable.seal_record(record)).encode()
        durable.replace(path, octets, mode=durable.PUBLIC)

    def restored(self, path: Path, plan: CalibratedPlan) -> Progress:
        """Return the progress at ``path``, or this if there is none; it must be of this run."""
        if not path.exists():
            return self
        unreadable = (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError)
        try:
            record = durable.unseal_record(json.loads(path.read_text(encoding="utf-8")))
            same = record.pop(_KIND) == _VERSION and record.pop("plan") == plan.digest.hex()
            found = _from_fields(**record)
        except (*unreadable, SkellamError) as error:
            raise DataError(f"{path} cannot be read as the progress of a run: {error}") from error
        if not same or not _alike(found.clip, self.clip):
            raise DataError(f"{path} is of another plan or clip; name another file")
        return found


def _listed(numbers: Mapping[int, Any]) -> list[list[Any]]:
    return [[number, value] for number, value in numbers.items()]


def _from_fields(
    run: str,
    rounds: int,
    turns: Mapping[str, Any],
    clients: Iterable[Any],
    clip: Mapping[str, Any] | None,
) -> Progress:
    return Progress(
        _checks.octets("run", bytes.fromhex(run), 32),
        _checks.integer("rounds", rounds, 0),
        {digest: _turns(*fields) for digest, fields in turns.items()},
        {int(node): int(number) for node, number in clients},
        None if clip is None else AdaptiveClip(**clip),
    )


def _turns(rounds: int, past: Iterable[Any]) -> Turns:
    return Turns(
        _checks.integer("rounds", rounds, 0),
        {int(number): tuple(int(r) for r in found) for number, found in past},
    )


def _alike(one: AdaptiveClip | None, other: AdaptiveClip | None) -> bool:
    """Return whether two clips move in the same way, wherever they are."""
    if one is None or other is None:
        return one is other
    return replace(one, clip=other.clip) == other


_log = getLogger("skellam.flower")
_KINDS: Mapping[str, type[Advertisement | KeyShares | MaskedVector | Agreement | Opening]] = {
    "advertise_keys": Advertisement,
    "share_keys": KeyShares,
    "masked_input": MaskedVector,
    "consistency_check": Agreement,
    "unmask": Opening,
}
_MAX_BLAMED = 5
"""Faults that the text of a failure names; a report has them all."""
_REPORT = "report"
"""The only stage of a node of two servers."""


# What comes of it.


@dataclass(frozen=True, slots=True)
class NodeFault:
    """A message that counts as not sent: which node is to blame, at which stage, and why."""

    node: int
    stage: str
    reason: str


@dataclass(frozen=True, slots=True)
class FleetResult:
    """What a round released, and who is in it, by the numbers of the roster."""

    total: Reals
    participants: tuple[int, ...]
    survivors: tuple[int, ...]
    wrap: WrapEstimate
    clip_count: float | None = None
    """Clients within the clip less those beyond it, with noise, if the clip adapts."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Means of the clients' metrics with noise, and the ends of their intervals."""


class _Phase(Protocol):
    def step(self, messages: Iterable[bytes], /) -> Any: ...  # noqa: ANN401


@dataclass(frozen=True, slots=True)
class SecureRound:
    """One round among the nodes that were asked; ``faults`` and ``refusals`` fill as it runs."""

    grid: Grid
    roster: Roster
    config: RoundConfig
    content: bytes
    """Digest of what the nodes are given."""
    first_timeout: float
    stage_timeout: float
    release: Callable[[Mapping[int, int], bool], None]
    """Called once, with the client of each node and whether their noise replays, before these open
    the sum: it spends, or raises."""
    barred: frozenset[int] = frozenset()
    """Clients who may not take part, under whatever node they come."""
    faults: list[NodeFault] = field(default_factory=list)
    refusals: dict[int, str] = field(default_factory=dict)
    clients: dict[int, int] = field(default_factory=dict)
    """The client that each node said it is, whether it takes part or not."""
    _numbers: dict[int, int] = field(default_factory=dict)
    """The client's number of each node that takes part."""

    @property
    def protocol(self) -> RoundParameters:
        """What all parties agree on."""
        return self.config.protocol(self.content)

    def run(self, contents: Mapping[int, RecordDict]) -> FleetResult:
        """Return the sum over the nodes of ``contents``; `ProtocolError` releases nothing."""
        adverts = self._free(self._advertise(contents))
        share_phase, participants = self._step(
            "advertise_keys", CollectKeys(Setting(self.protocol, self.roster)), adverts
        )
        self._admit(participants, adverts)
        nodes = {number: node for node, number in self._numbers.items()}
        dealt = self._ask("share_keys", dict.fromkeys(self._numbers, participants))
        input_phase, boxes = self._step("share_keys", share_phase, dealt)
        delivered = {nodes[number]: box for number, box in boxes.items()}
        masked = self._ask("masked_input", delivered)
        check_phase, survivors = self._step("masked_input", input_phase, masked)
        checked = {nodes[number]: survivors for number in check_phase.summed.survivors.tolist()}
        signatures = self._ask("consistency_check", checked)
        unmask_phase, agreed = self._step("consistency_check", check_phase, signatures)
        signers = Agreements.decode(agreed).senders.tolist()
        # From here on the clients open the sum, so this is the last moment to spend for it.
        self.release(self._numbers, check_phase.summed.replayable)
        openings = self._ask("unmask", {nodes[n]: agreed for n in signers})
        outcome: Outcome = self._step("unmask", unmask_phase, openings)
        return self._decoded(outcome, tuple(sorted(nodes)))

    # The exchanges.

    def _advertise(self, contents: Mapping[int, RecordDict]) -> dict[int, bytes]:
        record = config_content(self.config)
        asked = {node: RecordDict({**c, RECORD: record}) for node, c in contents.items()}
        kind = "evaluate" if self.config.update is UpdateKind.METRICS else "train"
        answers = self._exchange("advertise_keys", asked, kind, self.first_timeout)
        return self._messages("advertise_keys", answers)

    def _free(self, adverts: Mapping[int, bytes]) -> dict[int, bytes]:
        """Return the advertisements of those who may take part; the others did nothing wrong."""
        senders = {node: Advertisement.decode(data).sender for node, data in adverts.items()}
        self.clients.update(senders)
        return {node: adverts[node] for node, n in senders.items() if n not in self.barred}

    def _ask(self, stage: str, sent: Mapping[int, bytes]) -> dict[int, bytes]:
        round_ = self.protocol
        contents = {node: content_of(data, round_) for node, data in sent.items()}
        answers = self._exchange(stage, contents, f"query.skellam_{stage}", self.stage_timeout)
        return self._messages(stage, answers)

    def _exchange(
        self, stage: str, contents: Mapping[int, RecordDict], kind: str, timeout: float
    ) -> Answers:
        group = str(self.config.number)
        answers = exchange(self.grid, contents, kind, group=group, timeout=timeout)
        self.refusals.update(answers.refusals)
        self._hear(stage, answers.refusals.values())
        return answers

    def _messages(self, stage: str, answers: Answers) -> dict[int, bytes]:
        """Return the bytes of those answers that are messages of ``stage``, from their senders."""
        found = {}
        for node, content in answers.contents.items():
            try:
                read = read_masked_vector if stage == "masked_input" else read_content
                data = read(content, self.protocol)
                self._check(node, stage, data)
            except Exception as error:  # noqa: BLE001  (one bad message never ends a run)
                known = isinstance(error, SkellamError)
                self._fault(node, stage, str(error) if known else "it cannot be read")
            else:
                found[node] = data
        return found

    def _check(self, node: int, stage: str, data: bytes) -> None:
        """Raise unless ``data`` is a message of ``stage`` in the name of the node's client."""
        message = _KINDS[stage].decode(data)
        signed = Receipt.decode(message.receipt) if isinstance(message, MaskedVector) else message
        if signed.sender != self._numbers.get(node, signed.sender):
            raise TamperError("a message in the name of another client")

    def _step(self, stage: str, phase: _Phase, messages: Mapping[int, bytes]) -> Any:  # noqa: ANN401
        """Take a step of the protocol; whoever sent what did not count is noted, come what may."""
        earlier = len(getattr(phase, "faults", ()))
        try:
            result = phase.step(messages.values())
        except ProtocolError as error:
            self._blame(stage, messages, error.faults[earlier:])
            self._blame_client(stage, getattr(error, "culprit", None), str(error))
            raise
        except Exception as error:
            _log.exception("stage %s failed", stage)
            raise ProtocolError(f"stage {stage} failed; the server's log says why") from error
        found = result if isinstance(result, Outcome) else result[0]
        self._blame(stage, messages, found.faults[earlier:])
        return result

    def _admit(self, participants: bytes, adverts: Mapping[int, bytes]) -> None:
        """Note which node is which client: who sent, first, the very bytes that are on the list."""
        entries = set(ParticipantList.decode(participants).rows)
        for node, data in adverts.items():
            number = Advertisement.decode(data).sender
            if data in entries and number not in self._numbers.values():
                self._numbers[node] = number

    # Who is to blame.

    def failure(self, error: Exception) -> str:
        """Return why the round failed, with whom it blames and what the nodes said."""
        return failure(error, self.faults, self.refusals.values())

    def _fault(self, node: int, stage: str, reason: str) -> None:
        self.faults.append(NodeFault(node, stage, reason))

    def _blame(self, stage: str, messages: Iterable[int], faults: Iterable[Fault]) -> None:
        """Note the nodes whose messages were at fault: each is known by what it answered."""
        nodes = list(messages)
        for fault in faults:
            self._fault(nodes[fault.index], stage, fault.reason)

    def _blame_client(self, stage: str, culprit: int | None, reason: str) -> None:
        for node, number in self._numbers.items():
            if number == culprit:
                self._fault(node, stage, reason)

    def _hear(self, stage: str, refusals: Iterable[str]) -> None:
        """Blame a client whom more nodes accuse than may collude: one of these is honest."""
        named = Counter(_named(text) for text in refusals)
        for node, number in self._numbers.items():
            if named[number] > self.config.colluders(len(self._numbers)):
                self._fault(node, stage, f"{named[number]} nodes refuse what it sent them")

    # The sum.

    def _decoded(self, outcome: Outcome, members: tuple[int, ...]) -> FleetResult:
        codec: Codec = self.config.codec(self.content, len(members))
        total = replace(outcome.total, label=codec.label)
        if codec.spec.removable:
            total = codec.remove(total, outcome.noise_seeds.values())
        result = FleetResult(codec.decode(total), members, outcome.survivors, codec.wrap(total))
        if (clip := self.config.clip) is not None:
            scaled_back = result.total / clip.factor(self.config.plan)
            return replace(result, total=scaled_back, clip_count=codec.clip_count(total))
        return without_metrics(self.config, result)


@dataclass(frozen=True, slots=True)
class TwoServerRound:
    """One round among the nodes that were asked; ``faults`` and ``refusals`` fill as it runs."""

    grid: Grid
    leader: Leader
    config: RoundConfig
    content: bytes
    """Digest of what the nodes are given."""
    release: Callable[[Mapping[int, int], bool], None]
    """Called once, with the client of each node and whether their noise replays, before the helper
    is asked: it spends, or raises."""
    timeout: float
    turn: int = 0
    """The number of the round among those of its plan; the leader's is at least as large."""
    barred: frozenset[int] = frozenset()
    """Clients who may not take part, under whatever node they come."""
    faults: list[NodeFault] = field(default_factory=list)
    refusals: dict[int, str] = field(default_factory=dict)
    clients: dict[int, int] = field(default_factory=dict)
    """The client that each node said it is, whether it takes part or not."""
    _nodes: dict[bytes, int] = field(default_factory=dict)
    """The node of each report that counts."""

    def run(self, contents: Mapping[int, RecordDict]) -> FleetResult:
        """Return the sum over the nodes of ``contents``; `ProtocolError` releases nothing.

        A helper that was away is asked again first for what is open; that round's sum is lost, and
        was spent. With a band both servers forget it: noise that is not in the model is not taken
        back.
        """
        codec = self.config.codec(self.content, self.config.invited)
        self.leader.settle()
        if self.config.plan.correlated and (lost := self.leader.settled) is not None:
            self.leader.forget(lost)
        release = self.leader.round(
            max(self.turn, self.leader.next_round),
            self.config.round_input(self.content),
            lambda offer, start: self._reports(contents, offer, start),
            label=codec.label,
            spend=self._spend,
            blame=self._blame,
        )
        self._blame_refused(release)
        survivors = tuple(release.participants.tolist())
        total, wrap = two_servers.opened(self.config.plan, codec, release)
        result = FleetResult(total, survivors, survivors, wrap)
        return without_metrics(self.config, result)

    def failure(self, error: Exception) -> str:
        """Return why the round failed, with whom it blames and what the nodes said."""
        return failure(error, self.faults, self.refusals.values())

    def _reports(
        self, contents: Mapping[int, RecordDict], offer: bytes, start: bytes
    ) -> Iterator[bytes]:
        record = start_content(self.config, offer, start)
        asked = {node: RecordDict({**c, RECORD: record}) for node, c in contents.items()}
        kind = "evaluate" if self.config.update is UpdateKind.METRICS else "train"
        group = str(self.config.number)
        answers = exchange(self.grid, asked, kind, group=group, timeout=self.timeout)
        self.refusals.update(answers.refusals)
        for node, content in answers.contents.items():
            try:
                report = read_report(content)
                self.clients[node] = Report.decode(report).sender
            except ProtocolError as error:
                self.faults.append(NodeFault(node, _REPORT, str(error)))
            else:
                if self.clients[node] not in self.barred and report not in self._nodes:
                    self._nodes[report] = node
                    yield report

    def _spend(self, replayable: bool) -> None:
        self.release({node: self.clients[node] for node in self._nodes.values()}, replayable)

    def _blame(self, report: bytes, reason: str) -> None:
        self.faults.append(NodeFault(self._nodes.pop(report), _REPORT, reason))

    def _blame_refused(self, release: Release) -> None:
        """Blame those whom the helper refused; whom the leader refused is noted before."""
        nodes = {self.clients[node]: node for node in self._nodes.values()}
        known = {fault.reason for fault in self.faults}
        for rejection in release.rejections:
            if rejection.sender in nodes and rejection.reason not in known:
                self.faults.append(NodeFault(nodes[rejection.sender], "helper", rejection.reason))


def without_metrics(config: RoundConfig, result: FleetResult) -> FleetResult:
    """Return the result with the metrics taken off the end of the vector."""
    ranges, plan = config.metrics, config.plan
    if ranges is None:
        return result
    dimension = plan.dimension - len(ranges)
    means = ranges.released(
        result.total.values[dimension:],
        dimension=dimension,
        clip=plan.clip,
        clients=plan.cohort,
        error=plan.error.total**0.5,
    )
    return replace(result, total=Reals(result.total.values[:dimension]), metrics=means)


def failure(error: Exception, faults: Iterable[NodeFault], refusals: Iterable[str]) -> str:
    """Return why a round failed, with whom it blames and what the nodes said."""
    blamed, parts = list(faults), [str(error)]
    named, more = blamed[:_MAX_BLAMED], blamed[_MAX_BLAMED:]
    parts += [f"node {f.node} is to blame at {f.stage}: {f.reason}" for f in named]
    parts += [f"{len(more)} more messages did not count"] if more else []
    parts += [f"{count} nodes said: {text}" for text, count in Counter(refusals).most_common(3)]
    return "; ".join(parts)


def _named(text: str) -> int | None:
    """Return the number of the client that an error of the protocol names, if it names one."""
    found = re.search(r"\bclient (\d{1,20})\b", text)
    return None if found is None else int(found[1])
