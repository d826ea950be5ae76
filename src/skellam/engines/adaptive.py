"""Rounds with an adaptive clip: the plan stays, and the clip moves after each round."""

from __future__ import annotations

from dataclasses import replace

from skellam.codec import Tensors
from skellam.engines.local import Aggregate, ClientUpdate, EntropySource, Round, RoundResult, Spend
from skellam.errors import DomainError
from skellam.plan import AdaptiveClip, CalibratedPlan


def adaptive(
    aggregate: Aggregate,
    plan: CalibratedPlan,
    round_: Round,
    update: ClientUpdate,
    clip: AdaptiveClip,
    *,
    entropy: EntropySource,
    spend: Spend,
) -> tuple[RoundResult, AdaptiveClip]:
    """Return what the round released, in the units of the updates, and the clip of the next one."""
    if plan.quantile_noise is None:
        raise DomainError("quantile_noise must be planned for the clip to adapt")

    def scaled(number: int) -> Tensors | None:
        vector = update(number)
        return None if vector is None else clip.scaled(vector, plan)

    result = aggregate(plan, round_, scaled, entropy=entropy, spend=spend)
    if result.clip_count is None:
        raise DomainError("adaptive clipping needs a round that goes through the ring")
    total = result.total / clip.factor(plan)
    return replace(result, total=total), clip.after(result.clip_count, plan)
