"""A round under adaptive clipping: the plan stays, and the clip moves after it."""

from __future__ import annotations

from dataclasses import replace

from skellam.codec.layout import Tensors, flatten
from skellam.engines.local import Aggregate, EntropySource, Round, Sum, Update
from skellam.errors import DomainError
from skellam.plan import AdaptiveClip, Plan, share_within


def adaptive(
    aggregate: Aggregate,
    plan: Plan,
    this: Round,
    update: Update,
    clip: AdaptiveClip,
    *,
    entropy: EntropySource,
) -> tuple[Sum, AdaptiveClip]:
    """Return what the round released, in the units of the updates, and the clip of the next one.

    The share within the clip is taken of the planned cohort, so that nothing follows from how many
    took part.
    """
    if plan.quantile_noise is None:
        raise DomainError("quantile_noise must be planned for the clip to adapt")
    factor = clip.factor(plan)

    def scaled(number: int) -> Tensors | None:
        vector = update(number)
        return None if vector is None else flatten(vector) * factor

    outcome = aggregate(plan, this, scaled, entropy=entropy)
    if outcome.balance is None:
        raise DomainError("adaptive clipping needs a round that goes through the ring")
    share = share_within(outcome.balance, plan.cohort)
    return replace(outcome, total=outcome.total / factor), clip.updated(share)
