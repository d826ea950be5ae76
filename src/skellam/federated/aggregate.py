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
from skellam.plan import AdaptiveClip, Noise, Plan


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

    def require(self, plan: Plan, clip: AdaptiveClip | None = None) -> None:
        """Raise unless cohorts of the planned size can be summed in this way, with such a clip."""
        if self.run is local.secure and plan.noise.continuous:
            raise DomainError(f'noise="{plan.noise}" goes through no ring; aggregate in the clear')
        if self.run is local.plain:
            if clip is not None:
                raise DomainError("clip must be None: nothing is clipped without privacy")
        elif clip is not None and plan.quantile_noise is None:
            raise DomainError("clip adapts only where the plan has quantile_noise, such as 0.05")
        elif clip is None and plan.quantile_noise is not None:
            raise DomainError(
                "clip must be given: the plan pays for a clip that adapts; "
                "or plan without quantile_noise"
            )
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
