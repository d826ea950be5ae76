"""Client sampling: who takes part in a round, how often, and where random bits come from."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.engines import durable
from skellam.engines.sampling import bernoulli, sample
from skellam.entropy import SEED_BYTES, Entropy, SeededEntropy, random_bytes
from skellam.errors import DataError, DomainError
from skellam.plan import CalibratedPlan, Sampling

_FORMAT = b"skellam/participations/1"


@dataclass(frozen=True, slots=True)
class Population:
    """The clients of the data, and the plan whose cohorts are drawn from them.

    A plan for more clients than the data has is accounted for a *hypothetical* population: cohorts
    have the planned size, but a client of the data takes part more often than one of the plan's.
    """

    plan: CalibratedPlan
    clients: int

    def __post_init__(self) -> None:
        _checks.integer("clients", self.clients, 1)
        if self.clients > self.plan.population_size:
            raise DomainError(
                f"the plan is for a population of {self.plan.population_size} and the data has "
                f"{self.clients} clients; plan for at least as many as there are"
            )
        if self.selection_rate > 1:
            raise DomainError(
                f"{self.plan.invited} of {self.clients} clients cannot be invited; "
                "take a smaller cohort"
            )
        if self.hypothetical and self.plan.sampling is Sampling.CYCLIC:
            raise DomainError(
                f"cyclic cohorts need a plan for the {self.clients} clients of the data, "
                f"got one for {self.plan.population_size}"
            )

    @property
    def hypothetical(self) -> bool:
        """Whether the accounting is for more clients than there are."""
        return self.clients < self.plan.population_size

    @property
    def statement(self) -> str:
        """Whom the accounting is for."""
        if self.hypothetical:
            stated = self.plan.population_size
            return (
                f"hypothetical population {stated}; the data has {self.clients}, which take part "
                "more often: nothing is guaranteed to these"
            )
        return f"population {self.clients}"

    @property
    def max_participations(self) -> int | None:
        """The number of rounds that one client's data may enter.

        None for a hypothetical population, whose clients take part more often than accounted for.
        """
        return None if self.hypothetical else self.plan.participations

    @property
    def selection_rate(self) -> float:
        """The chance that a client of the data is invited to a round."""
        return self.plan.cohort / (self.plan.participation_probability or 1.0) / self.clients

    def takes_part(self, client: int, entropy: Streams) -> bool:
        """Return whether an invited client sends its update: by its own coin, if it has one."""
        probability = self.plan.participation_probability
        if probability is None:
            return True
        return bool(bernoulli(1, probability, entropy=entropy(f"coin/{client}"))[0])

    def draw(self, number: int, *, entropy: Entropy) -> tuple[int, ...]:
        """Return the clients that are invited to round ``number``."""
        drawn = sample(
            self.plan,
            range(self.clients),
            round_=number,
            group_seed=self.plan.digest,
            entropy=entropy,
            rate=min(1.0, self.selection_rate),
        )
        return tuple(drawn)


@dataclass(frozen=True, slots=True, eq=False)
class Participations:
    """How often each client's data was in a release before round ``round``, and whose is in it.

    It is written down before a round is spent and opened: of a round that was cut off nobody knows
    whether it was seen, so it counts, unless the same bits will give the same release again.
    """

    round: int
    counts: NDArray[np.uint32]
    members: NDArray[np.uint32]

    def after(
        self, next_round: int, *, last_release: int | None, replayable: bool
    ) -> NDArray[np.uint32]:
        """Return the counts before ``next_round``, the round that the checkpoint goes on with.

        ``last_release`` is the last round before it that was not skipped, if there is one.
        """
        if not (-1 if last_release is None else last_release) <= self.round <= next_round:
            raise DataError(
                f"the participations are of round {self.round} and the checkpoint goes on with "
                f"{next_round}: one of the two files is an old copy"
            )
        counts = self.counts.copy()
        if self.round < next_round or not replayable:
            counts[self.members] += 1
        return counts

    def to_bytes(self) -> bytes:
        """Return the file's content."""
        buffer = io.BytesIO()
        np.savez(buffer, round=self.round, counts=self.counts, members=self.members)
        return durable.seal(buffer.getvalue(), _FORMAT)

    @classmethod
    def from_bytes(cls, octets: bytes) -> Participations:
        """Return what `to_bytes` wrote, or raise `DataError`."""
        archive = durable.unseal(octets, _FORMAT)
        if archive is None:
            raise DataError(
                "the participations were changed: their digest does not match; restore the run's "
                "folder from a copy, or start the run in another one"
            )
        with np.load(io.BytesIO(archive), allow_pickle=False) as file:
            return cls(int(file["round"]), file["counts"], file["members"])


class ParticipationCount:
    """How often each client's data was in a release; nothing is counted where there is no limit."""

    def __init__(
        self,
        population: Population,
        written: Participations | None,
        start: int,
        *,
        last_release: int | None,
        replayable: bool,
    ) -> None:
        self.cut_off = written is not None and written.round == start and not replayable
        """Whether round ``start`` may have been opened before a kill, with other noise."""
        self._limit = population.max_participations
        self._counts: NDArray[np.uint32] | None = None
        if self._limit is not None and written is None:
            if last_release is not None:
                raise DataError("participations.npz is missing; restore it, or begin another run")
            self._counts = np.zeros(population.clients, dtype=np.uint32)
        elif self._limit is not None and written is not None:
            self._counts = written.after(start, last_release=last_release, replayable=replayable)

    @property
    def max(self) -> int | None:
        """The largest count."""
        return None if self._counts is None else int(self._counts.max())

    def exhausted(self, client: int) -> bool:
        """Return whether ``client``'s data was in as many releases as the plan allows."""
        if self._limit is None or self._counts is None:
            return False
        return bool(self._counts[client] >= self._limit)

    def enter(self, number: int, clients: Iterable[int]) -> Participations | None:
        """Count ``clients`` for round ``number``; return what is kept before it is spent, if any.

        The counts are a new array, so that what is kept has those from before the round.
        """
        if self._counts is None:
            return None
        members = np.array(sorted(clients), dtype=np.uint32)
        entered = Participations(number, self._counts, members)
        self._counts = self._counts.copy()
        self._counts[members] += 1
        return entered


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Streams:
    """From what bits are for to where they come from, without a position that could be lost.

    Secret entropy serves everybody. Entropy that replays gives one root, from which every context
    has a stream of its own: a round that is run again draws the same bits, whatever came before.
    """

    source: Entropy | bytes
    """The secret entropy, or the root."""
    prefix: str = "run"

    @classmethod
    def of(cls, entropy: Entropy) -> Streams:
        """Return the streams of a run; the first bits of ``entropy`` are the root if it replays."""
        return cls(random_bytes(SEED_BYTES, entropy=entropy) if entropy.replayable else entropy)

    def __call__(self, context: str) -> Entropy:
        """Return the entropy for ``context``."""
        if isinstance(self.source, bytes):
            return SeededEntropy(self.source, f"{self.prefix}/{context}")
        return self.source

    def scope(self, part: str) -> Streams:
        """Return the streams of a part of the run."""
        return replace(self, prefix=f"{self.prefix}/{part}")

    @property
    def replayable(self) -> bool:
        """Whether somebody who knows a seed can draw the same bits again."""
        return isinstance(self.source, bytes)

    @property
    def commitment(self) -> str:
        """What tells one seed from another without giving it away; empty for secret entropy."""
        if isinstance(self.source, bytes):
            return sha256(b"skellam/1/streams" + self.source).hexdigest()
        return ""
