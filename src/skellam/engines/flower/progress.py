"""Progress: who took part in which round, so that a server that is started again can go on.

Cohorts by turns (``sampling="cyclic"``) are spent once a cycle, for no client takes part twice in
one. So *clients* are counted, not nodes, whose numbers change when they are started anew; and the
count is on disk before the sum that it covers is opened.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from skellam import _checks
from skellam.engines import durable
from skellam.entropy import Entropy, random_bytes
from skellam.errors import DataError, SkellamError
from skellam.plan import AdaptiveClip, CalibratedPlan, Plan, Sampling

_KIND, _VERSION = "skellam-progress", 1


@dataclass(frozen=True, slots=True)
class Turns:
    """The rounds of one plan so far, and those in which each client took part."""

    rounds: int = 0
    past: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def cycle(self, plan: Plan) -> int:
        """Return the number of the cycle that the next round belongs to."""
        return self.rounds // (plan.groups if plan.sampling is Sampling.CYCLIC else 1)

    def barred(self, plan: Plan) -> frozenset[int]:
        """Return the clients who may not take part in the next round; nobody but in cycles."""
        if plan.sampling is not Sampling.CYCLIC:
            return frozenset()
        cap = plan.participations or -(-plan.rounds // plan.groups)
        free = cyclic(
            self.past, self.past, round_=self.rounds + 1, participations=cap, groups=plan.groups
        )
        return frozenset(self.past).difference(free)

    def begun(self) -> Turns:
        """Return the turns after a round began."""
        return replace(self, rounds=self.rounds + 1)

    def taken(self, clients: Iterable[int]) -> Turns:
        """Return the turns after ``clients`` took part in the round that began last."""
        more = {number: (*self.past.get(number, ()), self.rounds) for number in clients}
        return replace(self, past={**self.past, **more})


@dataclass(frozen=True, slots=True)
class Progress:
    """What a server knows of earlier rounds; ``run`` tells it from other runs on one ledger."""

    run: bytes
    rounds: int = 0
    turns: Mapping[str, Turns] = field(default_factory=dict)
    """By the digest of the plan."""
    clients: Mapping[int, int] = field(default_factory=dict)
    """The number of the client on each node, as far as it is known."""
    clip: AdaptiveClip | None = None

    @classmethod
    def begin(cls, clip: AdaptiveClip | None, *, entropy: Entropy) -> Progress:
        """Return the progress of a new run."""
        return cls(random_bytes(32, entropy=entropy), clip=clip)

    def of(self, plan: CalibratedPlan) -> Turns:
        """Return the turns of ``plan``."""
        return self.turns.get(plan.digest.hex(), Turns())

    def cycle_key(self, plan: CalibratedPlan) -> bytes:
        """Return the ledger's key of the cycle that the next round of ``plan`` belongs to."""
        cycle = self.of(plan).cycle(plan).to_bytes(8, "big")
        return sha256(b"skellam/cycle/" + self.run + plan.digest + cycle).digest()

    def begun(self, plan: CalibratedPlan) -> Progress:
        """Return the progress after a round of ``plan`` began."""
        turns = {**self.turns, plan.digest.hex(): self.of(plan).begun()}
        return replace(self, rounds=self.rounds + 1, turns=turns)

    def taken(self, plan: CalibratedPlan, clients: Iterable[int]) -> Progress:
        """Return the progress after ``clients`` took part in the last round of ``plan``."""
        turns = self.of(plan)
        if plan.sampling is not Sampling.CYCLIC:
            return self
        return replace(self, turns={**self.turns, plan.digest.hex(): turns.taken(clients)})

    def knowing(self, clients: Mapping[int, int]) -> Progress:
        """Return the progress with more nodes whose clients are known."""
        return replace(self, clients={**self.clients, **clients})

    def free(self, plan: CalibratedPlan, nodes: Iterable[int]) -> list[int]:
        """Return those of ``nodes`` whose clients may take part, as far as these are known."""
        barred = self.of(plan).barred(plan)
        return [node for node in nodes if self.clients.get(node) not in barred]

    def keep(self, path: Path, plan: CalibratedPlan) -> None:
        """Make this the content of ``path``, durably, for a server that is started again."""
        record = {
            _KIND: _VERSION,
            "plan": plan.digest.hex(),
            "run": self.run.hex(),
            "rounds": self.rounds,
            "turns": {digest: [t.rounds, _listed(t.past)] for digest, t in self.turns.items()},
            "clients": _listed(self.clients),
            "clip": None if self.clip is None else asdict(self.clip),
        }
        durable.replace(path, json.dumps(record).encode(), mode=durable.PUBLIC)

    def restored(self, path: Path, plan: CalibratedPlan) -> Progress:
        """Return the progress at ``path``, or this if there is none; it must be of this run."""
        if not path.exists():
            return self
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            same = record.pop(_KIND) == _VERSION and record.pop("plan") == plan.digest.hex()
            found = _from_fields(**record)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, SkellamError) as error:
            raise DataError(f"{path} cannot be read as the progress of a run: {error}") from error
        if not same or not _alike(found.clip, self.clip):
            raise DataError(f"{path} is of another plan or clip; name another file")
        return found


def cyclic(
    clients: Collection[int],
    past: Mapping[int, Collection[int]],
    *,
    round_: int,
    participations: int,
    groups: int,
) -> list[int]:
    """Return those who may take part in ``round_``: ``past`` has the rounds of each so far.

    Whoever took part fewer than ``participations`` times, and not in the last ``groups - 1``
    rounds. Nothing about it is secret.

    >>> cyclic([1, 2, 3], {1: [1], 2: [2]}, round_=3, participations=2, groups=2)
    [1, 3]
    """
    return [
        one
        for one in clients
        if len(rounds := past.get(one, ())) < participations
        and all(round_ - earlier >= groups for earlier in rounds)
    ]


def _listed(numbers: Mapping[int, Any]) -> list[list[Any]]:
    return [[number, value] for number, value in numbers.items()]


def _from_fields(
    run: str,
    rounds: int,
    turns: Mapping[str, Any],
    clients: Iterable[Any],
    clip: Mapping[str, Any] | None,
) -> Progress:
    return Progress(
        _checks.octets("run", bytes.fromhex(run), 32),
        _checks.integer("rounds", rounds, 0),
        {digest: _turns(*fields) for digest, fields in turns.items()},
        {int(node): int(number) for node, number in clients},
        None if clip is None else AdaptiveClip(**clip),
    )


def _turns(rounds: int, past: Iterable[Any]) -> Turns:
    return Turns(
        _checks.integer("rounds", rounds, 0),
        {int(number): tuple(int(r) for r in found) for number, found in past},
    )


def _alike(one: AdaptiveClip | None, other: AdaptiveClip | None) -> bool:
    """Return whether two clips move in the same way, wherever they are."""
    if one is None or other is None:
        return one is other
    return replace(one, clip=other.clip) == other
