"""Aggregation: how a round's updates are summed, and which clients drop out of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from skellam import _checks
from skellam.engines import local
from skellam.engines.sampling import bernoulli
from skellam.entropy import Entropy
from skellam.errors import DomainError
from skellam.plan import AdaptiveClip, CalibratedPlan, Noise

Dropout: TypeAlias = float | Mapping[int, Collection[int]]


@dataclass(frozen=True, slots=True)
class Aggregation:
    """A way to run rounds, and who drops out of them.

    ``dropout`` is the chance of every client to drop out, or a script: the clients that drop out in
    each round.
    """

    run: local.Aggregate
    name: str
    dropout: Dropout = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.dropout, Mapping):
            _checks.between("dropout", self.dropout, 0, 1)

    def dropouts(
        self, number: int, members: tuple[int, ...], *, entropy: Entropy
    ) -> tuple[int, ...]:
        """Return the ``members`` of round ``number`` that drop out before they send a message."""
        if isinstance(self.dropout, Mapping):
            return tuple(sorted(set(members).intersection(self.dropout.get(number, ()))))
        chosen = bernoulli(len(members), self.dropout, entropy=entropy)
        return tuple(np.array(members, dtype=np.intp)[chosen].tolist())

    def require(self, plan: CalibratedPlan, clip: AdaptiveClip | None = None) -> None:
        """Raise unless cohorts of the planned size can be summed in this way, with such a clip."""
        if self.run is local.secure and plan.noise.continuous:
            raise DomainError(
                f'noise="{plan.noise}" goes through no ring; use aggregate=fl.unmasked()'
            )
        if self.run is local.non_private:
            if clip is not None:
                raise DomainError("clip must be None: nothing is clipped without privacy")
        elif clip is not None and plan.quantile_noise is None:
            raise DomainError("clip adapts only where the plan has quantile_noise, such as 0.05")
        elif clip is None and plan.quantile_noise is not None:
            raise DomainError(
                "clip must be given: the plan spends on a clip that adapts; "
                "or plan without quantile_noise"
            )
        round_ = local.Round(0, bytes(32), tuple(range(plan.invited)))
        local.require_cohort(plan, round_)
        self._require_survival(plan, round_)

    def _require_survival(self, plan: CalibratedPlan, round_: local.Round) -> None:
        tolerated = plan.tolerance.dropouts(len(round_.members))
        if isinstance(self.dropout, Mapping) or self.dropout * plan.invited <= tolerated:
            return
        raise DomainError(
            f"dropout={self.dropout:g} of about {plan.invited} clients is more than the "
            f"{tolerated} that the plan tolerates, so that most rounds would release nothing; "
            f"plan with dropout={self.dropout:g} or more, or let fewer drop out"
        )

    def private(self, plan: CalibratedPlan) -> bool:
        """Return whether what it releases under ``plan`` has a guarantee."""
        return self.run is not local.non_private and plan.noise is not Noise.NONE


def unmasked(*, dropout: Dropout = 0.0) -> Aggregation:
    """Return summing without masks: the same integers as `secure`, for simulation."""
    return Aggregation(local.unmasked, "unmasked", dropout)


def secure(*, dropout: Dropout = 0.0) -> Aggregation:
    """Return the whole secure-aggregation protocol among the clients of a round."""
    return Aggregation(local.secure, "secure", dropout)


def non_private(*, dropout: Dropout = 0.0) -> Aggregation:
    """Return federated averaging without clipping or noise: what privacy is compared with."""
    return Aggregation(local.non_private, "non_private", dropout)
