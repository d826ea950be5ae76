"""The helper's hash chain: every answer and every forgotten round, each bound to all before it.

The helper signs the head after every change. A leader or client that kept a head recognises a
helper that was set back to an older state: what it signs next does not extend that head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from skellam.errors import ProtocolError, TamperError
from skellam.protocol.identity import Identity
from skellam.protocol.wire import Blob, Digest, Uint
from skellam.twoserver.constants import MAX_ROUNDS, RunConstants, digest, number
from skellam.twoserver.keys import require_signature

MAX_LINKS: Final = 2 * MAX_ROUNDS
Links = Annotated[bytes, Blob(32 * MAX_LINKS)]


@dataclass(frozen=True, slots=True)
class ChainHead:
    """Where a chain ends: the number of its links and their digest."""

    count: Annotated[int, Uint(4)]
    digest: Digest

    @classmethod
    def of(cls, constants: RunConstants) -> ChainHead:
        """Return the head of a run in which nothing was answered."""
        return cls(0, digest(b"chain", constants.digest))

    def extended(self, links: bytes) -> ChainHead:
        """Return the head after ``links``, 32 bytes each."""
        if len(links) % 32:
            raise TamperError(f"links of a chain are 32 bytes each, got {len(links)} bytes")
        value = self.digest
        for at in range(0, len(links), 32):
            value = digest(b"link", value, links[at : at + 32])
        return ChainHead(self.count + len(links) // 32, value)

    def sign(self, helper: Identity, constants: RunConstants) -> bytes:
        """Return the helper's signature under this head."""
        return helper.sign(_context(constants), self._payload())

    def require_signed(self, helper: bytes, constants: RunConstants, signature: bytes) -> None:
        """Raise `TamperError` unless the helper signed this head."""
        require_signature("helper", helper, _context(constants), self._payload(), signature)

    def _payload(self) -> bytes:
        return number(self.count) + self.digest


@dataclass(frozen=True, slots=True)
class Chain:
    """All links of a run so far."""

    start: ChainHead
    links: bytes
    head: ChainHead

    @classmethod
    def of(cls, constants: RunConstants, links: bytes = b"") -> Chain:
        """Return the chain of ``constants`` with ``links``."""
        start = ChainHead.of(constants)
        return cls(start, links, start.extended(links))

    def extended(self, links: bytes) -> Chain:
        """Return the chain with ``links`` at its end."""
        if len(self.links) + len(links) > 32 * MAX_LINKS:
            raise ProtocolError(f"a run's chain has at most {MAX_LINKS} links; begin another run")
        return Chain(self.start, self.links + links, self.head.extended(links))

    def head_at(self, count: int) -> ChainHead | None:
        """Return the head after the first ``count`` links, or None where there are fewer."""
        if count > self.head.count:
            return None
        return self.start.extended(self.links[: 32 * count])

    def since(self, count: int) -> bytes:
        """Return the links after the first ``count``."""
        return self.links[32 * count :]


def require_extension(base: ChainHead, links: bytes, known: ChainHead | None) -> ChainHead:
    """Return the head after ``base`` and ``links``; raise unless the head ``known`` is on the way.

    Without a known head any chain will do.
    """
    end = base.extended(links)
    if known is None:
        return end
    if end.count < known.count:
        raise TamperError(
            f"the helper's chain has {end.count} links, {known.count} were seen before: "
            "the helper was set back to an older state"
        )
    if base.count > known.count:
        raise TamperError(
            f"the links begin after {base.count}, this client needs those after {known.count}"
        )
    if base.extended(links[: 32 * (known.count - base.count)]) != known:
        raise TamperError(
            f"the helper's chain was another one at link {known.count}: the helper was set back "
            "to an older state, or shows two histories"
        )
    return end


def answer_link(round_: int, job: bytes, vector: bytes, replayable: bool) -> bytes:
    """Return the link of an answer: to the job with digest ``job``, with this packed vector."""
    return digest(b"answer", number(round_), job, bytes([replayable]), vector)


def forget_link(next_round: int, kept_rounds: tuple[int, ...], request: bytes) -> bytes:
    """Return the link of a request to forget, with digest ``request``, and of what it left."""
    return digest(b"forget", number(next_round), request, *map(number, kept_rounds))


def _context(constants: RunConstants) -> bytes:
    return digest(b"head", constants.digest)
