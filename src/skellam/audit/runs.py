"""Audit of training: can the releases of whole runs tell whether a canary client was in them?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from skellam.audit.releases import CANARY, canary, sign
from skellam.audit.verdict import Audit, AuditSettings, delta_of
from skellam.codec import Tensors, flatten
from skellam.engines import local
from skellam.entropy import Entropy, SeededEntropy, random_bytes
from skellam.plan import CalibratedPlan
from skellam.vectors import Residues, residue_dtype

if TYPE_CHECKING:
    from skellam.federated import Task


def training(
    task: Task,
    plan: CalibratedPlan,
    *,
    trials: int,
    confidence: float,
    entropy: Entropy,
    delta: float | None = None,
    aggregate: local.Aggregate = local.unmasked,
) -> Audit:
    """Return what ``trials`` runs with a canary client and as many without say about ``plan``.

    The runs are real, cohorts and all; the canary is the first client, drawn like any other, and
    sends a vector as long as the clip instead of an update. The attacker sees every released sum
    and knows all other clients' data, but neither the cohorts' coins for the canary nor the noise:
    the claim is that against the public.
    """
    chosen = delta_of(plan, delta)
    claimed = plan.privacy(delta=chosen).epsilon
    settings = AuditSettings(claimed=claimed, delta=chosen, confidence=confidence, trials=trials)

    def score(present: bool) -> float:
        attacker = _Attacker(plan, aggregate, present=present)
        _train(task, plan, attacker, entropy=entropy)
        return attacker.score

    present, absent = (np.array([score(world) for _ in range(trials)]) for world in (True, False))
    return Audit.of(present, absent, settings)


def _train(task: Task, plan: CalibratedPlan, attacker: _Attacker, *, entropy: Entropy) -> None:
    from skellam import federated as fl

    fl.train(
        task,
        plan,
        aggregate=fl.Aggregation(attacker, "audited"),
        entropy=SeededEntropy(random_bytes(32, entropy=entropy), "audit"),
        every=plan.rounds,
    )


class _Attacker:
    """Plays the canary in one run, and adds up how likely the sums make it that it is there."""

    def __init__(self, plan: CalibratedPlan, aggregate: local.Aggregate, *, present: bool) -> None:
        self.score = 0.0
        self._aggregate = aggregate
        self._present = present
        self._rate = plan.rate

    def __call__(
        self,
        plan: CalibratedPlan,
        round_: local.Round,
        update: local.ClientUpdate,
        *,
        entropy: local.EntropySource,
        spend: local.Spend = local.spend_nothing,
    ) -> local.RoundResult:
        own = sign(round_.number) * _canary(plan, round_)
        known = 0.0

        def sent(number: int) -> Tensors | None:
            nonlocal known
            if number == CANARY:
                return own if self._present else None
            vector = update(number)
            known += 0.0 if vector is None else _along(own, vector, plan.clip)
            return vector

        released = self._aggregate(plan, round_, sent, entropy=entropy, spend=spend)
        self._weigh(float(released.total.values @ own) - known, plan)
        return released

    def _weigh(self, along: float, plan: CalibratedPlan) -> None:
        """Add the log-likelihood ratio of a sum, were the noise normal and the canary drawn."""
        ratio = (along / plan.clip**2 - 0.5) / plan.noise_multiplier**2
        drawn = math.log(self._rate) + ratio
        left_out = math.log1p(-self._rate) if self._rate < 1 else -math.inf
        self.score += float(np.logaddexp(drawn, left_out))


def _canary(plan: CalibratedPlan, round_: local.Round) -> NDArray[np.float64]:
    """Return a vector that this round's public rotation takes to the same vector in every round.

    So noise that is used again cancels, whatever the rotation.
    """
    if plan.noise.continuous:
        return canary(plan)
    codec = round_.codec(plan)
    bits = codec.spec.bits
    flat = np.ones(codec.spec.message_len, dtype=residue_dtype(bits))
    vector = codec.decode(
        Residues(flat, bits, codec.final_label, messages=max(1, codec.spec.shares))
    ).values.astype(np.float64)
    return vector * (plan.clip / float(np.linalg.norm(vector)))


def _along(direction: NDArray[np.float64], vector: Tensors, clip: float) -> float:
    """Return the inner product of ``direction`` and the clipped ``vector``."""
    x = flatten(vector).astype(np.float64)
    norm = float(np.linalg.norm(x))
    return float(direction @ x) * min(1.0, clip / norm) if 0 < norm < math.inf else 0.0
