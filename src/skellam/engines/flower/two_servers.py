"""The leader's part of a round on a fleet: one message a node, one request to the helper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

from flwr.app import RecordDict
from flwr.serverapp import Grid

from skellam.engines import two_servers
from skellam.engines.flower.messages import RECORD, exchange, read_report, start_content
from skellam.engines.flower.round_config import RoundConfig, UpdateKind
from skellam.engines.flower.rounds import FleetResult, NodeFault, failure, without_metrics
from skellam.engines.key_files import read_identity, read_public
from skellam.engines.leader import HelperLine, HttpsLine, Leader, run_id_at
from skellam.entropy import Entropy, random_bytes
from skellam.errors import ProtocolError
from skellam.plan import CalibratedPlan
from skellam.secagg import Roster
from skellam.twoserver.constants import MAX_ROUNDS
from skellam.twoserver.leader import LeaderSetting, Release
from skellam.twoserver.messages import Report

STAGE = "report"
"""The only stage of a node."""


@dataclass(frozen=True, slots=True)
class LeaderFiles:
    """Files of a leader: its secret key, the helper's public one, and where it keeps its runs.

    ``authority`` is a PEM file with who signed the helper's certificate; the system's authorities
    are believed where there is none.
    """

    identity: str | PathLike[str]
    helper: str | PathLike[str]
    state: str | PathLike[str]
    authority: str | PathLike[str] | None = None
    timeout: float = 120.0
    """Seconds for which a helper that is away is asked again."""

    def line(self, helper: str | HelperLine) -> HelperLine:
        """Return the way to the helper at this address."""
        if not isinstance(helper, str):
            return helper
        authority = None if self.authority is None else Path(self.authority)
        return HttpsLine(helper, authority, self.timeout)

    def open(
        self,
        plan: CalibratedPlan,
        roster: Roster,
        helper: str | HelperLine,
        *,
        entropy: Entropy,
    ) -> Leader:
        """Return the run of ``plan``, which is begun if the folder has none, or an ended one.

        Rounds that are given up keep their numbers, so that there are more than planned.
        """
        setting = LeaderSetting(
            read_identity(Path(self.identity)), read_public(Path(self.helper)), roster
        )
        folder = Path(self.state)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{plan.digest.hex()[:32]}.run"
        run_id = run_id_at(path)
        if run_id is None:
            path.unlink(missing_ok=True)
            run_id = random_bytes(32, entropy=entropy)
        rounds = min(MAX_ROUNDS, 4 * plan.rounds + 16)
        agreed = two_servers.constants(plan, run_id=run_id, rounds=rounds)
        return Leader.open(path, agreed, setting=setting, helper=self.line(helper), entropy=entropy)


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
                self.faults.append(NodeFault(node, STAGE, str(error)))
            else:
                if self.clients[node] not in self.barred and report not in self._nodes:
                    self._nodes[report] = node
                    yield report

    def _spend(self, replayable: bool) -> None:
        self.release({node: self.clients[node] for node in self._nodes.values()}, replayable)

    def _blame(self, report: bytes, reason: str) -> None:
        self.faults.append(NodeFault(self._nodes.pop(report), STAGE, reason))

    def _blame_refused(self, release: Release) -> None:
        """Blame those whom the helper refused; whom the leader refused is noted before."""
        nodes = {self.clients[node]: node for node in self._nodes.values()}
        known = {fault.reason for fault in self.faults}
        for rejection in release.rejections:
            if rejection.sender in nodes and rejection.reason not in known:
                self.faults.append(NodeFault(nodes[rejection.sender], "helper", rejection.reason))
