"""The server's part of one round: five exchanges with the nodes, and the sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from flwr.app import RecordDict
from flwr.serverapp import Grid

from skellam.accounting.ledger import Ledger
from skellam.codec import Codec, WrapEstimate
from skellam.engines.flower.invitation import RECORD, Invitation
from skellam.engines.flower.letters import letter, opened, opened_masked
from skellam.engines.flower.post import exchange
from skellam.errors import MessageError
from skellam.secagg import Outcome, Roster, Round, Setting
from skellam.secagg.messages import Advertisement, Roll
from skellam.secagg.server import Enrol
from skellam.vectors import Reals

_Read: TypeAlias = Callable[[RecordDict, Round], bytes]


@dataclass(frozen=True, slots=True)
class Sum:
    """What a round released, and who is in it, by the numbers of the roster."""

    total: Reals
    participants: tuple[int, ...]
    survivors: tuple[int, ...]
    wrap: WrapEstimate
    balance: float | None = None
    """Clients within the clip less those beyond it, with noise, if the clip adapts."""


@dataclass(frozen=True, slots=True)
class SecureRound:
    """One round among the nodes that were invited."""

    grid: Grid
    ledger: Ledger
    roster: Roster
    invitation: Invitation
    model: bytes
    """Digest of the model that the nodes are given."""
    train_timeout: float
    stage_timeout: float

    @property
    def protocol(self) -> Round:
        """What all parties agree on."""
        return self.invitation.protocol(self.model)

    def run(self, contents: Mapping[int, RecordDict]) -> Sum:
        """Return the sum over the nodes of ``contents``; `ProtocolError` releases nothing."""
        enrol = Enrol(Setting(self.protocol, self.roster))
        adverts = self._train(contents)
        relay, roll = enrol.step(adverts.values())
        nodes = _nodes_by_number(roll, adverts)
        relayed = self._ask("share", dict.fromkeys(nodes.values(), roll))
        gather, boxes = relay.step(relayed.values())
        boxed = {nodes[number]: box for number, box in boxes.items()}
        masked = self._ask("mask", boxed, opened_masked)
        confirm, survivors = gather.step(masked.values())
        agreements = self._ask("agree", dict.fromkeys(masked, survivors))
        unlock, agreed = confirm.step(agreements.values())
        # From here on the clients open the sum, so this is the last moment to pay for it.
        self.ledger.spend(
            self.invitation.plan.mechanism,
            key=self.invitation.round_id,
            replayable=confirm.gathered.replayable,
            note=f"round {self.invitation.number}",
        )
        openings = self._ask("unmask", dict.fromkeys(agreements, agreed))
        return self._decoded(unlock.step(openings.values()), tuple(sorted(nodes)))

    def _train(self, contents: Mapping[int, RecordDict]) -> dict[int, bytes]:
        invited = {
            node: RecordDict({**content, RECORD: self.invitation.to_record()})
            for node, content in contents.items()
        }
        group = str(self.invitation.number)
        answers = exchange(self.grid, invited, "train", group=group, timeout=self.train_timeout)
        return _readable(answers, self.protocol, opened)

    def _ask(
        self, stage: str, letters: Mapping[int, bytes], read: _Read = opened
    ) -> dict[int, bytes]:
        this = self.protocol
        answers = exchange(
            self.grid,
            {node: letter(data, this) for node, data in letters.items()},
            f"query.skellam_{stage}",
            group=str(self.invitation.number),
            timeout=self.stage_timeout,
        )
        return _readable(answers, this, read)

    def _decoded(self, outcome: Outcome, members: tuple[int, ...]) -> Sum:
        codec: Codec = self.invitation.codec(self.model, np.array(members, dtype=np.uint64))
        total = replace(outcome.total, label=codec.label)
        seeds = outcome.noise_seeds
        revealed = [(j, seed) for j, found in seeds.items() for seed in found.values()]
        if revealed:
            total = codec.remove(total, revealed)
        found = Sum(codec.decode(total), members, outcome.survivors, codec.wrap(total))
        if (clip := self.invitation.clip) is None:
            return found
        scaled_back = found.total / clip.factor(self.invitation.plan)
        return replace(found, total=scaled_back, balance=codec.within(total))


def _readable(answers: Mapping[int, RecordDict], this: Round, read: _Read) -> dict[int, bytes]:
    """Return the bytes of those answers that are letters at all."""
    found = {}
    for node, content in answers.items():
        try:
            found[node] = read(content, this)
        except MessageError:
            continue
    return found


def _nodes_by_number(roll: bytes, adverts: Mapping[int, bytes]) -> dict[int, int]:
    """Return which node sent which number's advertisement: the very bytes that are on the roll."""
    entries = set(Roll.decode(roll).rows)
    return {Advertisement.decode(d).sender: node for node, d in adverts.items() if d in entries}
