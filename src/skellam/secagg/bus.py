"""Whole rounds in memory, with clients that fall silent and a network that lies, as scripted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Any, TypeVar, assert_never

from skellam.entropy import Entropy
from skellam.errors import PhaseError
from skellam.secagg import client, server
from skellam.secagg.identity import Identity, Roster
from skellam.secagg.phase import Party, Phase, Setting
from skellam.secagg.round import History, Round
from skellam.secagg.unlock import Outcome
from skellam.vectors import Residues


class Stage(Enum):
    """What clients send, in order."""

    ADVERTISE = "advertise"
    SHARE = "share"
    MASK = "mask"
    AGREE = "agree"
    UNMASK = "unmask"


ClientPhase = (
    client.Advertise | client.Share | client.Mask | client.Agree | client.Unmask | client.Done
)
ServerPhase = server.Enrol | server.Relay | server.Gather | server.Confirm | server.Unlock
P = TypeVar("P", bound=Phase[Any])
Tamper = Callable[[Stage, int, bytes], bytes]
Encode = Callable[[int, client.Mask], Residues]


def untouched(stage: Stage, number: int, data: bytes) -> bytes:  # noqa: ARG001
    """Return ``data``."""
    return data


@dataclass(frozen=True, slots=True)
class Script:
    """What goes wrong: who falls silent before sending what, and who changes which bytes.

    ``uplink`` changes what a client sends, ``downlink`` what it gets from the server at that stage.
    ``restart`` takes every phase through its bytes, as where each message meets a new process.
    """

    silent: Mapping[Stage, Collection[int]] = field(default_factory=dict)
    uplink: Tamper = untouched
    downlink: Tamper = untouched
    restart: bool = False


def run(
    this: Round,
    identities: Iterable[Identity],
    encode: Encode,
    *,
    entropy: Entropy | Callable[[int], Entropy],
    script: Script | None = None,
) -> Outcome:
    """Run one round among ``identities`` and return its outcome; ``entropy`` may be each one's own.

    ``encode`` gives a client's vector once it has counted the participants. The error of a client
    that refuses to go on is raised, as is the server's when too few are left.
    """
    parties = [(identity, identity.public) for identity in identities]
    roster = Roster({identity.number: public for identity, public in parties})
    phases: dict[int, ClientPhase] = {
        identity.number: client.Advertise(Party(this, roster, identity)) for identity, _ in parties
    }
    source = cache(entropy) if callable(entropy) else lambda _: entropy
    bus = _Bus(encode, source, script or Script())
    return bus.run(phases, server.Enrol(Setting(this, roster)))


@dataclass(frozen=True, slots=True)
class _Bus:
    encode: Encode
    entropy: Callable[[int], Entropy]
    script: Script

    def run(self, phases: dict[int, ClientPhase], desk: ServerPhase) -> Outcome:
        letters: Mapping[int, bytes] = dict.fromkeys(phases, b"")
        for stage in Stage:
            silent = self.script.silent.get(stage, ())
            present = [n for n in phases if n in letters and n not in silent]
            sent = []
            for number in present:
                letter = self.script.downlink(stage, number, letters[number])
                phases[number], data = self._step(number, self._through(phases[number]), letter)
                sent.append(self.script.uplink(stage, number, data))
            result = self._through(desk).step(sent)
            if isinstance(result, Outcome):
                return result
            desk, outgoing = result
            letters = outgoing if isinstance(outgoing, dict) else dict.fromkeys(present, outgoing)
        raise PhaseError("the stages ended before the round did")

    def _step(self, number: int, phase: ClientPhase, letter: bytes) -> tuple[ClientPhase, bytes]:
        match phase:
            case client.Advertise():
                share, data, _ = phase.step(history=History(), entropy=self.entropy(number))
                return share, data
            case client.Share() | client.Unmask():
                return phase.step(letter, entropy=self.entropy(number))
            case client.Mask():
                return phase.step(letter, self.encode(number, phase))
            case client.Agree():
                return phase.step(letter)
            case client.Done():
                raise PhaseError("the round is over")
            case _:
                assert_never(phase)

    def _through(self, phase: P) -> P:
        if not self.script.restart:
            return phase
        return type(phase).from_bytes(phase.to_bytes(), phase.setting)
