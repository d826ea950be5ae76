"""The server's last phase: from opened shares to secrets, from secrets to the sum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, final

import numpy as np

from skellam.errors import TamperError
from skellam.secagg.bundle import MASK_KEY, NOISE, SELF_MASK
from skellam.secagg.channel import KeyPair, mask_purpose, self_mask
from skellam.secagg.inbox import Fault, Faults, accepted
from skellam.secagg.masks import add_masks
from skellam.secagg.messages import (
    MAX_ENTRY,
    Advertisement,
    Opening,
    Roll,
    authentic,
    extend,
)
from skellam.secagg.participants import Participants, enrolled
from skellam.secagg.phase import Phase, Setting
from skellam.secagg.pledges import Pledge, Shares
from skellam.secagg.round import MAX_LENGTH
from skellam.secagg.wire import (
    MAX_PARTICIPANTS,
    Blob,
    Digest,
    Flag,
    Ids,
    Indices,
    Many,
    Nested,
)
from skellam.vectors import Residues, residue_dtype

EncodedRoll = Annotated[bytes, Blob(MAX_ENTRY * MAX_PARTICIPANTS)]


@dataclass(frozen=True, slots=True, eq=False)
class Dealt:
    """What is settled once all shares are dealt."""

    roll: EncodedRoll
    context: Digest
    dealers: Indices
    pledges: Annotated[tuple[Pledge, ...], Many(Nested(Pledge))]


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """What is settled once all vectors are in."""

    dealt: Annotated[Dealt, Nested(Dealt)]
    survivors: Ids
    total: Annotated[bytes, Blob(4 * MAX_LENGTH)]
    replayable: Annotated[bool, Flag()]

    @property
    def context(self) -> bytes:
        """The context that binds the set of survivors."""
        return extend(self.dealt.context, b"survivors", self.survivors.tobytes())


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The sum, who is in it, and the opened noise seeds by component and client."""

    total: Residues
    participants: int
    survivors: tuple[int, ...]
    noise_seeds: Mapping[int, Mapping[int, bytes]]
    faults: tuple[Fault, ...]


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unlock(Phase[Setting]):
    """Waits for the shares that open the sum."""

    TAG = 69
    faults: Faults
    gathered: Annotated[Gathered, Nested(Gathered)]

    def step(self, messages: Iterable[bytes]) -> Outcome:
        """Return the sum; raise `TamperError` if a dealer's shares do not give its secret."""
        self._leave()
        this, gathered = self.setting.round, self.gathered
        peers = enrolled(gathered.dealt.roll, this)
        survivors = tuple(gathered.survivors.tolist())
        removed = this.removed(len(peers.ids), len(survivors))
        shares = Shares(peers, gathered.dealt.pledges, survivors, removed)
        faults: list[Fault] = []
        for opening in accepted(self._parse(shares), messages, set(survivors), faults):
            shares.add(opening)
        secrets = {pledge.dealer: shares.combine(pledge) for pledge in gathered.dealt.pledges}
        noise = {j: {n: secrets[n][NOISE + j] for n in survivors} for j in removed}
        total = self._sum(peers, secrets)
        return Outcome(total, len(peers.ids), survivors, noise, (*self.faults, *faults))

    def _parse(self, shares: Shares) -> Callable[[bytes], Opening]:
        def parse(data: bytes) -> Opening:
            message = authentic(Opening, data, self.setting.roster, self.gathered.context)
            shares.check(message)
            return message

        return parse

    def _sum(self, peers: Participants, secrets: dict[int, dict[int, bytes]]) -> Residues:
        this, dealt = self.setting.round, self.gathered.dealt
        public = [Advertisement.decode(e).mask_key for e in Roll.decode(dealt.roll).rows]
        dtype = residue_dtype(this.bits)
        total = np.frombuffer(self.gathered.total, dtype=dtype).copy()
        added: list[bytes] = []
        subtracted: list[bytes] = []
        for number, opened in secrets.items():
            if SELF_MASK in opened:
                subtracted.append(self_mask(opened[SELF_MASK], dealt.context))
                continue
            for other, seed in self._pair_masks(peers, public, number, opened[MASK_KEY]):
                (subtracted if other < number else added).append(seed)
        add_masks(total, bits=this.bits, added=added, subtracted=subtracted)
        return Residues(total, this.bits, this.label, self.gathered.replayable)

    def _pair_masks(
        self, peers: Participants, public: list[bytes], dead: int, key: bytes
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the living neighbours of ``dead`` and the seeds of their masks with it."""
        context, pair = self.gathered.dealt.context, KeyPair(key)
        place = peers.place(dead)
        if pair.public != public[place]:
            raise TamperError("a dealer shared another mask key than it advertised", culprit=dead)
        alive = np.isin(peers.ids, self.gathered.survivors)
        for neighbour in peers.graph.neighbours(place):
            if alive[neighbour]:
                other = int(peers.ids[neighbour])
                purpose = mask_purpose(context, dead, other)
                yield other, pair.agree(public[neighbour], purpose, culprit=other)
