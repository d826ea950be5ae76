"""An honest round, step by step, with every state and message kept, so that tests can lie in it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from oracles.rounds import SEED, Cohort
from skellam.entropy import SeededEntropy
from skellam.secagg import Identity, Outcome, Party, Roster, SeenRounds, Setting, client, server
from skellam.secagg.messages import KeyShares
from skellam.secagg.shares import MerkleTree, envelope_bytes
from skellam.secagg.simulation import Stage

CLIENT = {
    Stage.ADVERTISE_KEYS: client.AdvertiseKeys,
    Stage.SHARE_KEYS: client.ShareKeys,
    Stage.MASKED_INPUT: client.MaskedInput,
    Stage.CONSISTENCY_CHECK: client.ConsistencyCheck,
    Stage.UNMASK: client.Unmask,
}
SERVER = {
    Stage.ADVERTISE_KEYS: server.CollectKeys,
    Stage.SHARE_KEYS: server.CollectShares,
    Stage.MASKED_INPUT: server.CollectInputs,
    Stage.CONSISTENCY_CHECK: server.CollectSignatures,
    Stage.UNMASK: server.UnmaskSum,
}


@dataclass(frozen=True)
class Transcript:
    members: Cohort
    roster: Roster
    states: Mapping[tuple[Stage, int], bytes]
    server_states: Mapping[Stage, bytes]
    received: Mapping[tuple[Stage, int], bytes]
    sent: Mapping[Stage, Mapping[int, bytes]]
    outcome: Outcome

    def party(self, number: int) -> Party:
        identity = self.members.identities[self.members.numbers.index(number)]
        return Party(self.members.round, self.roster, identity)

    def client(self, stage: Stage, number: int):
        return CLIENT[stage].from_bytes(self.states[stage, number], self.party(number))

    def server(self, stage: Stage):
        return SERVER[stage].from_bytes(
            self.server_states[stage], Setting(self.members.round, self.roster)
        )

    def step(self, stage: Stage, number: int, message: bytes | None = None, **options):
        """Take the client's step again, with the honest message or another one."""
        data = self.received[stage, number] if message is None else message
        return step(self.members, self.client(stage, number), stage, number, data, **options)

    def serve(self, stage: Stage, changed: Mapping[int, bytes]):
        """Take the server's step again, with some messages changed."""
        return self.server(stage).step({**self.sent[stage], **changed}.values())


def step(members: Cohort, phase, stage: Stage, number: int, message: bytes, vector=None):
    entropy = SeededEntropy(SEED, f"{stage.value}/{number}")
    match stage:
        case Stage.ADVERTISE_KEYS:
            return phase.step(seen=SeenRounds(), entropy=entropy)[:2]
        case Stage.SHARE_KEYS | Stage.UNMASK:
            return phase.step(message, entropy=entropy)
        case Stage.MASKED_INPUT:
            return phase.step(message, members.vectors[number] if vector is None else vector)
        case _:
            return phase.step(message)


def transcript(members: Cohort, dropouts: Mapping[Stage, list[int]] | None = None) -> Transcript:
    roster = Roster({identity.number: identity.public for identity in members.identities})
    phases = {
        identity.number: client.AdvertiseKeys(Party(members.round, roster, identity))
        for identity in members.identities
    }
    server_phase = server.CollectKeys(Setting(members.round, roster))
    outgoing: bytes | dict[int, bytes] = b""
    states, server_states, received, sent = {}, {}, {}, {}
    for stage in Stage:
        if isinstance(outgoing, dict):
            phases = {number: phases[number] for number in outgoing}
        for number in (dropouts or {}).get(stage, ()):
            del phases[number]
        sent[stage] = {}
        for number, phase in phases.items():
            message = outgoing[number] if isinstance(outgoing, dict) else outgoing
            states[stage, number] = phase.to_bytes()
            received[stage, number] = message
            phases[number], sent[stage][number] = step(members, phase, stage, number, message)
        server_states[stage] = server_phase.to_bytes()
        result = server_phase.step(sent[stage].values())
        if stage is Stage.UNMASK:
            break
        server_phase, outgoing = result
    return Transcript(members, roster, states, server_states, received, sent, result)


def dealt(message: KeyShares, who: Identity, context: bytes, secrets: int | None = None) -> bytes:
    """Return key shares as ``who`` signs them, whatever they hold."""
    size = envelope_bytes(secrets or len(message.own) // 32)
    signature = who.sign(context, MerkleTree(message, size).statement)
    return replace(message, signature=signature).encode()
