"""The leader between two requests: each phase is durable before anything follows from it.

A round is spent from the leader's ledger when its reports are in; then the sum of masked vectors is
written, the helper is asked once, and what its answer opens is written before it is used. Killed
anywhere, `Leader` goes on from the phase that was written last, and asks again with the same bytes.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from logging import getLogger
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias
from urllib.parse import urlsplit

from skellam import errors
from skellam.engines import durable, two_servers
from skellam.engines.helper.web import LOOPBACK, PATH
from skellam.engines.key_files import read_identity, read_public
from skellam.entropy import Entropy, random_bytes
from skellam.errors import (
    DataError,
    DomainError,
    HelperUnreachableError,
    MissingExtraError,
    ProtocolError,
    ThresholdError,
)
from skellam.plan import CalibratedPlan
from skellam.secagg import Roster
from skellam.twoserver import RunConstants
from skellam.twoserver.constants import MAX_ROUNDS
from skellam.twoserver.leader import (
    Collecting,
    Forgetting,
    Idle,
    LeaderSetting,
    Proposed,
    Release,
    Waiting,
    propose,
)
from skellam.twoserver.messages import Refusal, Report, message_digest
from skellam.twoserver.state import Stored

if TYPE_CHECKING:
    from httpx import Client

Collect: TypeAlias = Callable[[bytes, bytes], Iterable[bytes]]
"""From the run's offer and the round's start, for clients, to the reports that came in time."""
SpendRound: TypeAlias = Callable[[bool], object]
"""Called with whether a report replays; what it raises gives the round up at no cost."""
Blame: TypeAlias = Callable[[bytes, str], object]
"""Called with a report that does not count, and why."""
_Phase: TypeAlias = Proposed | Idle | Waiting | Forgetting
_PHASES: Final = (Proposed, Idle, Waiting, Forgetting)
_AWAY: Final = (502, 503, 504)
"""What a proxy says while the helper behind it cannot be reached."""
_AS_IS: Final = {"Accept-Encoding": "identity"}
_log = getLogger("skellam.leader")


class HelperLine(Protocol):
    """A way to the helper."""

    def __call__(self, message: bytes) -> bytes:
        """Return the helper's reply; raise `ProtocolError` where it refuses, or cannot be had."""


@dataclass(frozen=True, slots=True)
class HttpsLine:
    """A line to a helper at ``url``, with a certificate that ``authority`` signed.

    Without an ``authority`` (a PEM file) the system's are believed. A request that fails on the way
    is sent again, with the same bytes, until ``timeout`` seconds have passed. A reply of more than
    ``max_reply`` bytes is refused.
    """

    url: str
    authority: Path | None = None
    timeout: float = 120.0
    max_reply: int = 1 << 29

    def __post_init__(self) -> None:
        address = urlsplit(self.url)
        if address.scheme != "https" and (
            address.scheme != "http" or address.hostname not in LOOPBACK
        ):
            raise DomainError(
                f"helper must be an address with https://, got {self.url!r}; http:// would show "
                "others who takes part, and is for this machine alone"
            )

    def __call__(self, message: bytes) -> bytes:
        """Return the helper's reply."""
        try:
            import httpx
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                "a leader needs httpx: pip install 'skellam[helper]'"
            ) from error
        context = ssl.create_default_context(cafile=self.authority)
        deadline, pause = time.monotonic() + self.timeout, 0.1
        with httpx.Client(verify=context, trust_env=False, headers=_AS_IS) as client:
            while True:
                try:
                    status, content = self._exchanged(client, message, deadline)
                except httpx.TransportError as error:
                    failure = str(error)
                else:
                    if status not in _AWAY:
                        return _content(status, content)
                    failure = f"status {status}"
                if time.monotonic() + pause > deadline:
                    raise HelperUnreachableError(
                        f"the helper at {self.url} cannot be reached: {failure}"
                    )
                time.sleep(pause)
                pause = min(2 * pause, 2.0)

    def _exchanged(self, client: Client, message: bytes, deadline: float) -> tuple[int, bytes]:
        """Return status and content of the reply, read no further than they may go."""
        from httpx import ReadTimeout

        left, content = max(deadline - time.monotonic(), 1.0), bytearray()
        url, end = self.url.rstrip("/") + PATH, time.monotonic() + left
        with client.stream("POST", url, content=message, timeout=left) as reply:
            for part in reply.iter_raw():
                content += part
                if len(content) > self.max_reply:
                    raise ProtocolError(
                        f"the helper's reply is longer than max_reply={self.max_reply} bytes"
                    )
                if time.monotonic() > end:
                    raise ReadTimeout("the reply takes too long")
        return reply.status_code, bytes(content)


def _content(status: int, content: bytes) -> bytes:
    if status == 200:
        return content
    try:
        record = json.loads(content)
        kind, text = getattr(errors, str(record["error"])), str(record["text"])
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        kind, text = ProtocolError, f"status {status}"
    refusal = kind if isinstance(kind, type) and issubclass(kind, ProtocolError) else ProtocolError
    raise refusal(f"the helper refuses: {text}")


class Leader:
    """One run at the leader, kept in the file ``path``."""

    def __init__(
        self, path: Path, phase: _Phase, setting: LeaderSetting, helper: HelperLine
    ) -> None:
        self._path, self._phase, self._setting, self._helper = path, phase, setting, helper
        self._settled: int | None = None

    @classmethod
    def open(
        cls,
        path: Path,
        constants: RunConstants,
        *,
        setting: LeaderSetting,
        helper: HelperLine,
        entropy: Entropy,
    ) -> Leader:
        """Return the run at ``path``, which is proposed to the helper if there is none.

        A run whose constants are others is refused. A round that a kill cut off is finished first:
        `release` has it.
        """
        if path.exists():
            phase = _read(path)
            _require_same(phase, constants)
        else:
            phase = propose(constants, setting=setting, entropy=entropy)
        leader = cls(path, phase, setting, helper)
        leader._keep(phase)
        leader.settle()
        return leader

    @property
    def constants(self) -> RunConstants:
        """The constants of the run."""
        return self._idle.constants

    @property
    def next_round(self) -> int:
        """The first round that may still begin."""
        return self._idle.next_round

    @property
    def ended(self) -> bool:
        """Whether no round can begin any more; both servers have erased their keys."""
        return isinstance(self._phase, Idle) and _is_over(self._phase)

    @property
    def release(self) -> Release | None:
        """What the latest round opened, if it opened anything."""
        return self._idle.release

    @property
    def settled(self) -> int | None:
        """The round that `settle` finished after a kill or an error, if it finished one.

        Whoever does not use its release takes it out of the band with `forget`.
        """
        return self._settled

    @property
    def _idle(self) -> Idle:
        if not isinstance(self._phase, Idle):
            raise ProtocolError("a request to the helper is open; call settle() first")
        return self._phase

    def settle(self) -> None:
        """Finish what a kill or a helper that was away left open."""
        match self._phase:
            case Proposed():
                reply = self._helper(self._phase.message)
                self._keep(self._phase.granted(reply, setting=self._setting))
            case Waiting():
                self._settle_round(self._phase)
            case Forgetting():
                self._forget(self._phase)
            case Idle():
                pass

    def _settle_round(self, waiting: Waiting) -> None:
        try:
            self._settled = self._finish(waiting, {}).round_
        except ThresholdError as error:
            if isinstance(self._phase, Waiting):
                raise
            _log.warning("an open round was given up: %s", error)

    def round(
        self,
        round_: int,
        round_input: bytes,
        collect: Collect,
        *,
        label: bytes = b"",
        spend: SpendRound | None = None,
        blame: Blame | None = None,
    ) -> Release:
        """Run round ``round_`` and return what it opened.

        ``spend`` is called when all reports are in and before the helper is asked.
        `ThresholdError` means that too few reports came: the round is given up at no cost. With any
        other error of the helper's the round stays open, and `settle` finishes it.
        """
        self.settle()
        setting = self._setting
        collecting = self._idle.begin(round_, round_input, label=label)
        start = collecting.start_message(setting=setting)
        sent = list(collect(self._idle.offer, start))
        collecting = collecting.add(sent, setting=setting)
        reports = _counted(sent, collecting, blame)
        try:
            waiting = collecting.close()
            if spend is not None:
                spend(waiting.gathered.replayable)
        except BaseException:
            self._keep(collecting.skip())
            raise
        self._keep(waiting)
        return self._finish(waiting, reports)

    def _finish(self, waiting: Waiting, reports: dict[int, bytes]) -> Release:
        """Ask the helper for the masks, without whom it refuses, and open the sum."""
        setting = self._setting
        while True:
            reply = self._helper(waiting.job(setting=setting))
            if reply[1:2] != bytes([Refusal.TAG]):
                break
            try:
                waiting = waiting.refused(reply, reports, setting=setting)
            except (ThresholdError, DomainError) as error:
                self._forget(waiting.abandon())
                raise ThresholdError(f"the helper refuses too many clients: {error}") from error
            self._keep(waiting)
        opened = waiting.open(reply, setting=setting)
        self._keep(opened)
        if opened.release is None:
            raise ProtocolError("the round opened nothing")
        return opened.release

    def forget(self, *rounds: int) -> None:
        """Take spoiled or lost ``rounds`` out of the band on both sides; participations stay."""
        self.settle()
        self._forget(self._idle.forget(*rounds))
        if self._settled in rounds:
            self._settled = None

    def abandon(self) -> None:
        """Give the open round up: the helper forgets it if it answered; participations stay."""
        if isinstance(self._phase, Waiting):
            self._forget(self._phase.abandon())

    def end(self) -> None:
        """End the run, so that both servers erase their keys: nothing sealed in it opens again."""
        self.settle()
        if not self.ended:
            self._forget(self._idle.end())

    def _forget(self, phase: Forgetting) -> None:
        self._keep(phase)
        reply = self._helper(phase.message(setting=self._setting))
        self._keep(phase.done(reply, setting=self._setting))

    def _keep(self, phase: _Phase) -> None:
        if isinstance(phase, Idle) and _is_over(phase):
            phase = phase.ended()
        durable.replace(self._path, phase.to_bytes(), mode=durable.SECRET)
        self._phase = phase


def _counted(sent: list[bytes], collecting: Collecting, blame: Blame | None) -> dict[int, bytes]:
    """Return the reports that count by their senders; blame the others, in their order."""
    counting = {row.tobytes() for row in collecting.gathered.rows["report"]}
    reports = dict[int, bytes]()
    reasons = [rejection.reason for rejection in collecting.rejections]
    refused = [data for data in sent if message_digest(data) not in counting]
    for data, reason in zip(refused, reasons, strict=False):
        _log.warning("a report does not count: %s", reason)
        if blame is not None:
            blame(data, reason)
    for data in sent:
        if message_digest(data) in counting:
            reports[Report.decode(data).sender] = data
    return reports


def run_id_at(path: Path) -> bytes | None:
    """Return the id of the run at ``path``, if there is one that has not ended."""
    phase = _read(path) if path.exists() else None
    if phase is None or (isinstance(phase, Idle) and _is_over(phase)):
        return None
    return _constants(phase).run_id


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
        durable.make_folder(folder, mode=durable.SECRET_FOLDER)
        path = folder / f"{plan.digest.hex()[:32]}.run"
        run_id = run_id_at(path)
        if run_id is None:
            path.unlink(missing_ok=True)
            run_id = random_bytes(32, entropy=entropy)
        rounds = min(MAX_ROUNDS, 4 * plan.rounds + 16)
        agreed = two_servers.constants(plan, run_id=run_id, rounds=rounds)
        return Leader.open(path, agreed, setting=setting, helper=self.line(helper), entropy=entropy)


def _is_over(idle: Idle) -> bool:
    return idle.next_round >= idle.constants.rounds


def _constants(phase: _Phase) -> RunConstants:
    return phase.constants if isinstance(phase, Proposed) else phase.run.constants


def _read(path: Path) -> _Phase:
    try:
        data = path.read_bytes()
        kinds: dict[int, type[_Phase]] = {kind.TAG: kind for kind in _PHASES}
        kind: type[Stored] = kinds[data[1]]
        found = kind.from_bytes(data)
    except (OSError, IndexError, KeyError, ProtocolError) as error:
        raise DataError(f"cannot read the leader's state {path}: {error}") from error
    if not isinstance(found, _PHASES):
        raise DataError(f"{path} is no state of a leader")
    return found


def _require_same(phase: _Phase, constants: RunConstants) -> None:
    known = _constants(phase)
    blank = bytes(32)
    if replace(known, leader_key=blank, helper_key=blank) != constants:
        raise DataError("the leader's state is of a run with other constants; begin another run")
