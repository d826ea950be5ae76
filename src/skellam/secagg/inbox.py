"""How the server takes messages in: what is malformed, false or sent twice counts as not sent."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Protocol, TypeVar

from skellam.errors import ProtocolError, TamperError, ThresholdError
from skellam.secagg.wire import MAX_PARTICIPANTS, Many, Maybe, Nested, Text, Uint


@dataclass(frozen=True, slots=True)
class Fault:
    """A message that counts as not sent: why, and who is to blame where that is known."""

    reason: Annotated[str, Text(500)]
    culprit: Annotated[int | None, Maybe(Uint(8))]


Faults = Annotated[tuple[Fault, ...], Many(Nested(Fault), 16 * MAX_PARTICIPANTS)]


class Sent(Protocol):
    """Whatever has a sender."""

    @property
    def sender(self) -> int:
        """Who sent it."""


M = TypeVar("M", bound=Sent)


def accepted(
    parse: Callable[[bytes], M],
    messages: Iterable[bytes],
    senders: Container[int],
    faults: list[Fault],
) -> Iterator[M]:
    """Yield what ``parse`` accepts, the first of each sender; note what is wrong with the rest."""
    seen: set[int] = set()
    for data in messages:
        try:
            message = parse(data)
            _require_turn(message.sender, senders, seen)
        except ProtocolError as error:
            faults.append(Fault(str(error), getattr(error, "culprit", None)))
        else:
            seen.add(message.sender)
            yield message


def sorted_by_sender(messages: Iterable[M]) -> tuple[M, ...]:
    """Return the messages by ascending sender."""
    return tuple(sorted(messages, key=lambda message: message.sender))


def require(found: int, least: int, what: str) -> None:
    """Raise `ThresholdError` unless ``found`` is enough."""
    if found < least:
        raise ThresholdError(f"only {found} clients {what}; at least {least} must")


def _require_turn(sender: int, senders: Container[int], seen: set[int]) -> None:
    if sender not in senders:
        raise TamperError("a message came out of turn", culprit=sender)
    if sender in seen:
        raise TamperError("a client sent twice", culprit=sender)
