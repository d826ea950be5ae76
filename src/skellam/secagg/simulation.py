"""Simulation: rounds in memory, with dropouts and a network that lies, as a script says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Any, TypeVar, assert_never

from skellam.entropy import Entropy
from skellam.errors import PhaseError
from skellam.protocol.identity import Identity, Roster
from skellam.secagg import client, server
from skellam.secagg.channel import PairCache
from skellam.secagg.parameters import (
    Party,
    Phase,
    RoundParameters,
    SeenRounds,
    Setting,
    require_countable,
)
from skellam.secagg.server import Outcome
from skellam.vectors import Residues


class Stage(Enum):
    """What clients send, in order."""

    ADVERTISE_KEYS = "advertise keys"
    SHARE_KEYS = "share keys"
    MASKED_INPUT = "masked input"
    CONSISTENCY_CHECK = "consistency check"
    UNMASK = "unmask"


ClientPhase = (
    client.AdvertiseKeys
    | client.ShareKeys
    | client.MaskedInput
    | client.ConsistencyCheck
    | client.Unmask
    | client.Done
)
ServerPhase = (
    server.CollectKeys
    | server.CollectShares
    | server.CollectInputs
    | server.CollectSignatures
    | server.UnmaskSum
)
P = TypeVar("P", bound=Phase[Any])
Tamper = Callable[[Stage, int, bytes], bytes]
Encode = Callable[[int, client.MaskedInput], Residues]


def untouched(stage: Stage, number: int, data: bytes) -> bytes:  # noqa: ARG001
    """Return ``data``."""
    return data


@dataclass(frozen=True, slots=True)
class FaultScript:
    """What goes wrong: who drops out before sending what, and who changes which bytes.

    ``uplink`` changes what a client sends, ``downlink`` what it gets from the server at that stage.
    ``restart`` takes every phase through its bytes, as where each message meets a new process.
    """

    dropouts: Mapping[Stage, Collection[int]] = field(default_factory=dict)
    uplink: Tamper = untouched
    downlink: Tamper = untouched
    restart: bool = False


def run(
    round_: RoundParameters,
    identities: Iterable[Identity],
    encode: Encode,
    *,
    entropy: Entropy | Callable[[int], Entropy],
    faults: FaultScript | None = None,
    before_unmask: Callable[[], object] | None = None,
) -> Outcome:
    """Run one round among ``identities`` and return its outcome; ``entropy`` may be each one's own.

    ``encode`` gives a client's vector once it has counted the participants. The error of a client
    that refuses to go on is raised, as is the server's when too few are left. ``before_unmask`` is
    called when the survivors have signed their list and nothing is opened yet.
    """
    parties = [(identity, identity.public) for identity in identities]
    require_countable(len(parties))
    roster = Roster({identity.number: public for identity, public in parties})
    pairs = PairCache()
    phases: dict[int, ClientPhase] = {
        identity.number: client.AdvertiseKeys(Party(round_, roster, identity, cache=pairs))
        for identity, _ in parties
    }
    source = cache(entropy) if callable(entropy) else lambda _: entropy
    simulation = _Simulation(encode, source, faults or FaultScript(), before_unmask)
    return simulation.run(phases, server.CollectKeys(Setting(round_, roster, cache=pairs)))


@dataclass(frozen=True, slots=True)
class _Simulation:
    encode: Encode
    entropy: Callable[[int], Entropy]
    faults: FaultScript
    before_unmask: Callable[[], object] | None

    def run(self, phases: dict[int, ClientPhase], phase: ServerPhase) -> Outcome:
        messages: Mapping[int, bytes] = dict.fromkeys(phases, b"")
        for stage in Stage:
            if stage is Stage.UNMASK and self.before_unmask is not None:
                self.before_unmask()
            dropouts = self.faults.dropouts.get(stage, ())
            present = [n for n in phases if n in messages and n not in dropouts]
            sent = []
            for number in present:
                message = self.faults.downlink(stage, number, messages[number])
                phases[number], data = self._step(number, self._through(phases[number]), message)
                sent.append(self.faults.uplink(stage, number, data))
            result = self._through(phase).step(sent)
            if isinstance(result, Outcome):
                return result
            phase, outgoing = result
            messages = outgoing if isinstance(outgoing, dict) else dict.fromkeys(present, outgoing)
        raise PhaseError("the stages ended before the round did")

    def _step(self, number: int, phase: ClientPhase, message: bytes) -> tuple[ClientPhase, bytes]:
        match phase:
            case client.AdvertiseKeys():
                following, data, _ = phase.step(seen=SeenRounds(), entropy=self.entropy(number))
                return following, data
            case client.ShareKeys() | client.Unmask():
                return phase.step(message, entropy=self.entropy(number))
            case client.MaskedInput():
                return phase.step(message, self.encode(number, phase))
            case client.ConsistencyCheck():
                return phase.step(message)
            case client.Done():
                raise PhaseError("the round is over")
            case _:
                assert_never(phase)

    def _through(self, phase: P) -> P:
        if not self.faults.restart:
            return phase
        return type(phase).from_bytes(phase.to_bytes(), phase.setting)
