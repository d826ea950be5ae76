"""Client sampling: who takes part in a round, drawn as the plan's accounting has it.

Training, Flower and analytics all draw here. ``entropy`` is the server's own and secret; groups of
``sampling="cyclic"`` are public and follow from a public seed, or, on a fleet, from `Turns`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar, assert_never

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.entropy import Entropy, SeededEntropy
from skellam.errors import ThresholdError
from skellam.plan import Plan, Sampling
from skellam.plan.sizes import min_present

T = TypeVar("T")


def sample(
    plan: Plan,
    clients: Sequence[T],
    *,
    round_: int,
    group_seed: bytes,
    entropy: Entropy,
    rate: float | None = None,
) -> list[T]:
    """Return those of ``clients`` who are invited to round ``round_``.

    ``clients`` must be the same in every round where cohorts are cyclic. ``rate`` replaces the
    plan's where a simulation has fewer clients than the population that is accounted for.
    """
    match plan.sampling:
        case Sampling.ALL:
            return list(clients)
        case Sampling.POISSON | Sampling.SELF:
            if rate is None:
                _require_present(plan, len(clients), min_present(plan))
            chance = plan.selection_rate if rate is None else rate
            drawn = bernoulli(len(clients), chance, entropy=entropy)
            return [client for client, taken in zip(clients, drawn, strict=True) if taken]
        case Sampling.FIXED:
            if rate is None:
                _require_present(plan, len(clients), plan.population_size)
            first = shuffled(len(clients), entropy)[: plan.cohort]
            return [clients[i] for i in sorted(first.tolist())]
        case Sampling.CYCLIC:
            groups = deal(len(clients), plan.groups, seed=group_seed)
            asked = np.flatnonzero(groups == round_ % plan.groups)
            return [clients[i] for i in asked.tolist()]
        case _ as never:
            assert_never(never)


def _require_present(plan: Plan, clients: int, needed: int) -> None:
    """Raise unless there are as many clients as the accounting of random cohorts counts on."""
    if clients < needed:
        raise ThresholdError(
            f"{clients} clients are there; the plan is accounted for a population of "
            f"{plan.population_size} of whom {needed} must be; plan for fewer, or for dropouts"
        )


def deal(clients: int, groups: int, *, seed: bytes) -> NDArray[np.intp]:
    """Return the group of each client: of equal size but for one, by a public random deal."""
    order = shuffled(clients, SeededEntropy(seed, "sampling/groups"))
    group = np.empty(clients, dtype=np.intp)
    group[order] = np.arange(clients) % groups
    return group


def invited(plan: Plan, candidates: Sequence[T], *, round_: int, entropy: Entropy) -> list[T]:
    """Return those of ``candidates`` who are asked, as the plan's accounting has it.

    On a fleet nobody deals groups: with ``sampling="cyclic"`` a random cohort of those who may
    take part does, and ``candidates`` are these.
    """
    if plan.sampling is Sampling.CYCLIC:
        chosen = shuffled(len(candidates), entropy)[: plan.cohort]
        return [candidates[i] for i in sorted(chosen.tolist())]
    return sample(plan, candidates, round_=round_, group_seed=b"", entropy=entropy)


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


def bernoulli(count: int, chance: float, *, entropy: Entropy) -> NDArray[np.bool_]:
    """Return ``count`` independent draws, each true with ``chance``, or up to 2**-64 less."""
    if _checks.between("chance", chance, 0, 1) == 1:
        return np.ones(count, dtype=np.bool_)
    return _words(count, entropy) < np.uint64(int(chance * 2.0**64))


def shuffled(count: int, entropy: Entropy) -> NDArray[np.intp]:
    """Return the numbers below ``count`` in random order.

    Only ties among the 128-bit keys bias it: their chance is below count**2 2**-129.
    """
    return np.lexsort((_words(count, entropy), _words(count, entropy)))


def _words(count: int, entropy: Entropy) -> NDArray[np.uint64]:
    words = np.empty(count, dtype=np.uint64)
    entropy.fill(words)
    return words
