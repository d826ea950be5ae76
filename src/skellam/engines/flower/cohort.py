"""Who is invited to a round: secret coins, drawn by the server from its own entropy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, assert_never

import numpy as np

from skellam.entropy import Entropy, random_bytes
from skellam.errors import ThresholdError
from skellam.plan import Plan, Sampling, cohorts

T = TypeVar("T")


def heads(chance: float, *, entropy: Entropy) -> bool:
    """Return True with probability ``chance``, rounded down to a multiple of 2**-64."""
    return int.from_bytes(random_bytes(8, entropy=entropy), "big") < int(chance * 2**64)


def invited(plan: Plan, candidates: Sequence[T], *, entropy: Entropy) -> list[T]:
    """Return those of ``candidates`` who are invited, as the plan's accounting has it."""
    match plan.sampling:
        case Sampling.ALL:
            return list(candidates)
        case Sampling.POISSON | Sampling.SELF:
            rate = cohorts.invitation_rate(plan)
            return [one for one in candidates if heads(rate, entropy=entropy)]
        case Sampling.FIXED:
            return _fixed(plan, candidates, entropy)
        case _ as never:
            assert_never(never)


def _fixed(plan: Plan, candidates: Sequence[T], entropy: Entropy) -> list[T]:
    if len(candidates) < plan.people:
        raise ThresholdError(
            f"{len(candidates)} nodes are there; a fixed cohort is accounted for "
            f"a population of {plan.people}"
        )
    # Ties among 128-bit keys, which alone would bias the draw, have probability below 2**-90.
    keys = np.empty((2, len(candidates)), dtype=np.uint64)
    entropy.fill(keys)
    return [candidates[i] for i in sorted(np.lexsort(keys)[: plan.cohort])]
