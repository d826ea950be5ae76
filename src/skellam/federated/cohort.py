"""Who takes part in a round: drawn by secret coins, so that the accounting is honest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.entropy import Entropy
from skellam.errors import DomainError
from skellam.plan import Plan, Sampling


@dataclass(frozen=True, slots=True)
class Population:
    """The clients of the data, and the plan whose cohorts are drawn from them.

    A plan for more people than the data has is accounted for a *hypothetical* population: cohorts
    have the planned size, but a client of the data takes part more often than one of the plan's.
    """

    plan: Plan
    clients: int

    def __post_init__(self) -> None:
        _checks.integer("clients", self.clients, 1)
        if self.clients > self.plan.people:
            raise DomainError(
                f"the plan is for {self.plan.people} people and the data has {self.clients} "
                "clients; plan for at least as many as there are"
            )
        if self.rate > 1:
            raise DomainError(
                f"{self.plan.invited} of {self.clients} clients cannot be invited; "
                "take a smaller cohort"
            )

    @property
    def hypothetical(self) -> bool:
        """Whether the accounting is for more people than there are."""
        return self.clients < self.plan.people

    @property
    def statement(self) -> str:
        """Whom the accounting is for."""
        if self.hypothetical:
            return f"hypothetical population {self.plan.people}; the data has {self.clients}"
        return f"population {self.clients}"

    @property
    def rate(self) -> float:
        """The chance that a client of the data is invited to a round."""
        return self.plan.cohort / (self.plan.coin or 1.0) / self.clients

    def draw(self, *, entropy: Entropy) -> tuple[int, ...]:
        """Return the clients that are invited to a round."""
        match self.plan.sampling:
            case Sampling.POISSON | Sampling.SELF:
                return _numbers(heads(self.clients, self.rate, entropy=entropy))
            case Sampling.FIXED:
                return tuple(sorted(_shuffled(self.clients, entropy)[: self.plan.cohort].tolist()))
            case Sampling.ALL:
                return tuple(range(self.clients))
            case _ as never:
                assert_never(never)


def heads(count: int, chance: float, *, entropy: Entropy) -> NDArray[np.bool_]:
    """Return ``count`` independent coins, each heads with ``chance``, or up to 2**-64 less."""
    if _checks.between("chance", chance, 0, 1) == 1:
        return np.ones(count, dtype=np.bool_)
    return _words(count, entropy) < np.uint64(int(chance * 2.0**64))


def _numbers(coins: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(np.flatnonzero(coins).tolist())


def _shuffled(count: int, entropy: Entropy) -> NDArray[np.intp]:
    # Only ties among the 128-bit keys bias the order: their chance is below count**2 2**-129.
    return np.lexsort((_words(count, entropy), _words(count, entropy)))


def _words(count: int, entropy: Entropy) -> NDArray[np.uint64]:
    words = np.empty(count, dtype=np.uint64)
    entropy.fill(words)
    return words
