"""How a round's updates are summed: in the clear, by the whole protocol, or without privacy."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from skellam import _checks
from skellam.engines import local
from skellam.entropy import Entropy
from skellam.errors import DomainError
from skellam.federated.cohort import heads
from skellam.plan import Noise, Plan


@dataclass(frozen=True, slots=True)
class Aggregation:
    """A way to run rounds, and who vanishes in them.

    ``dropout`` is the chance of every client to vanish, or a script: the clients that vanish in
    each round.
    """

    run: local.Aggregate
    name: str
    dropout: float | Mapping[int, Collection[int]] = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.dropout, Mapping):
            _checks.between("dropout", self.dropout, 0, 1)

    def silent(self, number: int, members: tuple[int, ...], *, entropy: Entropy) -> tuple[int, ...]:
        """Return the ``members`` of round ``number`` that vanish before they send their vector."""
        if isinstance(self.dropout, Mapping):
            return tuple(sorted(set(members).intersection(self.dropout.get(number, ()))))
        gone = heads(len(members), self.dropout, entropy=entropy)
        return tuple(np.array(members, dtype=np.intp)[gone].tolist())

    def require(self, plan: Plan) -> None:
        """Raise unless cohorts of the planned size can be summed in this way."""
        if self.run is local.secure and plan.noise.continuous:
            raise DomainError(f'noise="{plan.noise}" goes through no ring; aggregate in the clear')
        local.require_cohort(plan, local.Round(0, bytes(32), tuple(range(plan.invited))))

    def private(self, plan: Plan) -> bool:
        """Return whether what it releases under ``plan`` has a guarantee."""
        return self.run is not local.plain and plan.noise is not Noise.NONE


def clear(*, dropout: float | Mapping[int, Collection[int]] = 0.0) -> Aggregation:
    """Return summing in the clear: the same integers as `secure`, for simulation."""
    return Aggregation(local.clear, "clear", dropout)


def secure(*, dropout: float | Mapping[int, Collection[int]] = 0.0) -> Aggregation:
    """Return the whole secure-aggregation protocol among the clients of a round."""
    return Aggregation(local.secure, "secure", dropout)


def plain(*, dropout: float | Mapping[int, Collection[int]] = 0.0) -> Aggregation:
    """Return federated averaging without clipping or noise: what privacy is compared with."""
    return Aggregation(local.plain, "plain", dropout)
