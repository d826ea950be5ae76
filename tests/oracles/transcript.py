"""An honest round, step by step, with every state and message kept, so that tests can lie in it."""

from collections.abc import Mapping
from dataclasses import dataclass

from oracles.rounds import SEED, Cohort
from skellam.entropy import SeededEntropy
from skellam.secagg import History, Outcome, Party, Roster, Setting, client, server
from skellam.secagg.bus import Stage

CLIENT = {
    Stage.ADVERTISE: client.Advertise,
    Stage.SHARE: client.Share,
    Stage.MASK: client.Mask,
    Stage.AGREE: client.Agree,
    Stage.UNMASK: client.Unmask,
}
SERVER = {
    Stage.ADVERTISE: server.Enrol,
    Stage.SHARE: server.Relay,
    Stage.MASK: server.Gather,
    Stage.AGREE: server.Confirm,
    Stage.UNMASK: server.Unlock,
}


@dataclass(frozen=True)
class Transcript:
    members: Cohort
    roster: Roster
    states: Mapping[tuple[Stage, int], bytes]
    desks: Mapping[Stage, bytes]
    letters: Mapping[tuple[Stage, int], bytes]
    sent: Mapping[Stage, Mapping[int, bytes]]
    outcome: Outcome

    def party(self, number: int) -> Party:
        identity = self.members.identities[self.members.numbers.index(number)]
        return Party(self.members.round, self.roster, identity)

    def client(self, stage: Stage, number: int):
        return CLIENT[stage].from_bytes(self.states[stage, number], self.party(number))

    def server(self, stage: Stage):
        return SERVER[stage].from_bytes(self.desks[stage], Setting(self.members.round, self.roster))

    def step(self, stage: Stage, number: int, letter: bytes | None = None, **options):
        """Take the client's step again, with the honest letter or another one."""
        data = self.letters[stage, number] if letter is None else letter
        return step(self.members, self.client(stage, number), stage, number, data, **options)

    def serve(self, stage: Stage, changed: Mapping[int, bytes]):
        """Take the server's step again, with some messages changed."""
        return self.server(stage).step({**self.sent[stage], **changed}.values())


def step(members: Cohort, phase, stage: Stage, number: int, letter: bytes, vector=None):
    entropy = SeededEntropy(SEED, f"{stage.value}/{number}")
    match stage:
        case Stage.ADVERTISE:
            return phase.step(history=History(), entropy=entropy)[:2]
        case Stage.SHARE | Stage.UNMASK:
            return phase.step(letter, entropy=entropy)
        case Stage.MASK:
            return phase.step(letter, members.vectors[number] if vector is None else vector)
        case _:
            return phase.step(letter)


def transcript(members: Cohort, silent: Mapping[Stage, list[int]] | None = None) -> Transcript:
    roster = Roster({identity.number: identity.public for identity in members.identities})
    phases = {
        identity.number: client.Advertise(Party(members.round, roster, identity))
        for identity in members.identities
    }
    desk = server.Enrol(Setting(members.round, roster))
    outgoing: bytes | dict[int, bytes] = b""
    states, desks, letters, sent = {}, {}, {}, {}
    for stage in Stage:
        if isinstance(outgoing, dict):
            phases = {number: phases[number] for number in outgoing}
        for number in (silent or {}).get(stage, ()):
            del phases[number]
        sent[stage] = {}
        for number, phase in phases.items():
            letter = outgoing[number] if isinstance(outgoing, dict) else outgoing
            states[stage, number] = phase.to_bytes()
            letters[stage, number] = letter
            phases[number], sent[stage][number] = step(members, phase, stage, number, letter)
        desks[stage] = desk.to_bytes()
        result = desk.step(sent[stage].values())
        if stage is Stage.UNMASK:
            break
        desk, outgoing = result
    return Transcript(members, roster, states, desks, letters, sent, result)
