"""Audit of the rounds themselves: can their sums tell whether a canary's vectors are in them?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skellam import accounting
from skellam.audit.verdict import Audit, AuditSettings, Scores, delta_of
from skellam.engines import local
from skellam.entropy import Entropy
from skellam.plan import CalibratedPlan

CANARY = 0
"""The number of the client whose data is in or out."""


def codec(
    plan: CalibratedPlan,
    *,
    trials: int,
    confidence: float,
    entropy: Entropy,
    delta: float | None = None,
    aggregate: local.Aggregate = local.unmasked,
) -> Audit:
    """Return what ``trials`` attacks with a canary and as many without say about ``plan``.

    A trial is all of the plan's rounds, with everybody but the canary sending zeros and as many
    dropouts as the plan tolerates. The attacker knows when the canary takes part, so the claim
    is that without sampling. The canary's vector is as long as the clip, and changes its sign from
    round to round: noise that is used again cancels, and fresh noise does not.
    """
    chosen = delta_of(plan, delta)
    claimed = accounting.epsilon(
        accounting.noise_of(plan.mechanism),
        rounds=plan.rounds,
        delta=chosen,
        method=plan.accountant.value,
    )
    settings = AuditSettings(claimed=claimed, delta=chosen, confidence=confidence, trials=trials)
    present, absent = (
        _scores(plan, aggregate, vector, trials, entropy)
        for vector in (canary(plan), np.zeros(plan.dimension))
    )
    return Audit.of(present, absent, settings)


def canary(plan: CalibratedPlan) -> NDArray[np.float64]:
    """Return a vector as long as the clip."""
    vector = np.zeros(plan.dimension)
    vector[0] = plan.clip
    return vector


def sign(number: int) -> int:
    """Return the canary's sign in round ``number``."""
    return -1 if number % 2 else 1


def _scores(
    plan: CalibratedPlan,
    aggregate: local.Aggregate,
    vector: NDArray[np.float64],
    trials: int,
    entropy: Entropy,
) -> Scores:
    """Return for each trial how far its sums lie along the canary."""
    members = tuple(range(plan.invited))
    dropouts = plan.tolerance.dropouts(len(members))
    # Every guarantee holds for any public seed: one model and one number fix it for all rounds.
    round_ = local.Round(0, bytes(32), members, members[len(members) - dropouts :])
    direction = canary(plan)

    def released(number: int) -> float:
        own = sign(number) * vector
        total = aggregate(
            plan, round_, lambda n: own if n == CANARY else None, entropy=lambda _: entropy
        ).total
        return sign(number) * float(total.values @ direction)

    return np.array([sum(map(released, range(plan.rounds))) for _ in range(trials)])
