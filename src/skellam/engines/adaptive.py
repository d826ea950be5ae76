"""A round under adaptive clipping: the plan stays, and the clip moves after it."""

from __future__ import annotations

from dataclasses import replace

from skellam.codec.layout import Tensors
from skellam.engines.local import Aggregate, EntropySource, Round, Sum, Update
from skellam.errors import DomainError
from skellam.plan import AdaptiveClip, Plan


def adaptive(
    aggregate: Aggregate,
    plan: Plan,
    this: Round,
    update: Update,
    clip: AdaptiveClip,
    *,
    entropy: EntropySource,
) -> tuple[Sum, AdaptiveClip]:
    """Return what the round released, in the units of the updates, and the clip of the next one."""
    if plan.quantile_noise is None:
        raise DomainError("quantile_noise must be planned for the clip to adapt")

    def scaled(number: int) -> Tensors | None:
        vector = update(number)
        return None if vector is None else clip.scaled(vector, plan)

    outcome = aggregate(plan, this, scaled, entropy=entropy)
    if outcome.balance is None:
        raise DomainError("adaptive clipping needs a round that goes through the ring")
    total = outcome.total / clip.factor(plan)
    return replace(outcome, total=total), clip.after(outcome.balance, plan)
