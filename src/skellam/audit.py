"""Audit: attack what was built, and compare with what is claimed; a lower bound on epsilon.

>>> from skellam import audit
>>> print(audit.codec(plan, trials=2000, confidence=0.999, entropy=sk.SystemEntropy()))
... # doctest: +SKIP

`codec` asks whether the sums of rounds tell that a canary's vectors are in them, `training` whether
the releases of whole runs do. Under (epsilon, delta)-differential privacy every event has
P(E) <= exp(epsilon) Q(E) + delta, with P and Q either way round. Bounds of Clopper and Pearson on
both probabilities of one event give a bound on epsilon that holds with a stated confidence. The
event is a score beyond a threshold, and the threshold is chosen on scores that are not counted, so
that the counts are binomial.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from skellam import _checks, accounting
from skellam.codec import Tensors, flatten
from skellam.engines import local
from skellam.entropy import Entropy, SeededEntropy, random_bytes
from skellam.errors import DomainError, InfeasibleError
from skellam.plan import CalibratedPlan
from skellam.vectors import Residues, residue_dtype

if TYPE_CHECKING:
    from skellam.federated import Task


__all__ = ["Audit", "Verdict", "codec", "training"]

Scores = NDArray[np.float64]
Counts = NDArray[np.intp]
_BOUNDS = 4
"""Two directions with two bounds each share the error that the confidence leaves."""


def lower_bound(present: Scores, absent: Scores, *, delta: float, confidence: float) -> float:
    """Return a lower bound on epsilon, too large with probability at most ``1 - confidence``.

    The scores are of independent attacks with the canary and without. The first half of each
    chooses the threshold, the second half is counted.
    """
    alpha = (1 - confidence) / _BOUNDS
    more = _one_direction(present, absent, delta, alpha)
    less = _one_direction(-absent, -present, delta, alpha)
    return max(0.0, more, less)


def max_epsilon(trials: int, *, delta: float, confidence: float) -> float:
    """Return the bound that ``trials`` faultless attacks of each kind would give."""
    counted = trials - trials // 2
    return max(0.0, _one_event(counted, 0, counted, delta, (1 - confidence) / _BOUNDS))


def _one_direction(likelier: Scores, rarer: Scores, delta: float, alpha: float) -> float:
    """Bound epsilon by the event that a score is at least a threshold; as many of either kind."""
    half = len(likelier) // 2
    threshold = _threshold(likelier[:half], rarer[:half], delta, alpha)
    hits, alarms = ((scores[half:] >= threshold).sum() for scores in (likelier, rarer))
    return _one_event(hits, alarms, len(likelier) - half, delta, alpha)


def _threshold(likelier: Scores, rarer: Scores, delta: float, alpha: float) -> float:
    """Return the threshold that would give the best bound here."""
    candidates = np.concatenate((likelier, rarer))
    hits, alarms = (
        len(scores) - np.searchsorted(np.sort(scores), candidates) for scores in (likelier, rarer)
    )
    return float(candidates[np.argmax(_bounds(hits, alarms, len(likelier), delta, alpha))])


def _one_event(hits: int, alarms: int, count: int, delta: float, alpha: float) -> float:
    return float(_bounds(np.array([hits]), np.array([alarms]), count, delta, alpha)[0])


def _bounds(hits: Counts, alarms: Counts, count: int, delta: float, alpha: float) -> Scores:
    """Return log((p - delta) / q), p from below and q from above, each wrong with ``alpha``."""
    from scipy.stats import beta

    p = np.where(hits, beta.ppf(alpha, np.maximum(hits, 1), count - hits + 1), 0.0)
    q = np.where(count - alarms, beta.ppf(1 - alpha, alarms + 1, np.maximum(count - alarms, 1)), 1)
    tiny = np.finfo(np.float64).tiny
    bounds: Scores = np.log(np.maximum(p - delta, tiny)) - np.log(q)
    return bounds


class Verdict(StrEnum):
    """What the evidence says about the claim."""

    CONSISTENT = "consistent"
    """No attack did better than the claim allows; that is no proof of the claim."""
    VIOLATED = "violated"
    """The claim is false, at the audit's confidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """What is audited, and how hard; raises where so few trials could not catch anything."""

    claimed: float
    delta: float
    confidence: float
    trials: int

    def __post_init__(self) -> None:
        _checks.open_unit("delta", self.delta)
        _checks.open_unit("confidence", self.confidence)
        _checks.integer("trials", self.trials, 2)
        if not self.claimed < self.max_epsilon:
            raise InfeasibleError(
                f"{self.trials} trials can show an epsilon of {self.max_epsilon:.3g} at most and "
                f"{self.claimed:.3g} is claimed: nothing could be caught; take more trials, fewer "
                "rounds or a larger delta"
            )

    @property
    def max_epsilon(self) -> float:
        """The bound that faultless attacks would give."""
        return max_epsilon(self.trials, delta=self.delta, confidence=self.confidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """A lower bound on epsilon at ``delta`` from ``trials`` attacks of each kind."""

    lower: float
    claimed: float
    delta: float
    confidence: float
    """At least; a sound mechanism is called a violation with what is left, at most."""
    trials: int
    max_epsilon: float
    """The bound that faultless attacks would have given."""

    @classmethod
    def of(cls, present: Scores, absent: Scores, settings: AuditSettings) -> Self:
        """Return what the scores with and without the canary say about the claim."""
        lower = lower_bound(present, absent, delta=settings.delta, confidence=settings.confidence)
        return cls(lower=lower, max_epsilon=settings.max_epsilon, **asdict(settings))

    @property
    def verdict(self) -> Verdict:
        """Whether the attacks refute the claim."""
        return Verdict.VIOLATED if self.lower > self.claimed else Verdict.CONSISTENT

    def as_dict(self) -> dict[str, Any]:
        """Return the fields and the verdict as JSON values."""
        return {**asdict(self), "verdict": self.verdict}

    def __str__(self) -> str:
        return (
            f"{self.verdict}: epsilon is at least {self.lower:.3g} with confidence "
            f"{self.confidence:g}, and at most {self.claimed:.3g} is claimed, at delta "
            f"{self.delta:g}; {self.trials} trials could have shown {self.max_epsilon:.3g}"
        )


def delta_of(plan: CalibratedPlan, delta: float | None) -> float:
    """Return ``delta``, or the plan's where none is given."""
    chosen = plan.target_delta if delta is None else delta
    if chosen is None:
        raise DomainError("delta must be given: the plan was not calibrated for one")
    return _checks.open_unit("delta", chosen)


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
            plan, round_, lambda n: own if n == CANARY else None, entropy=entropy
        ).total
        return sign(number) * float(total.values @ direction)

    return np.array([sum(map(released, range(plan.rounds))) for _ in range(trials)])


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
        entropy: local.AnyEntropy,
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


def __dir__() -> list[str]:
    return sorted(__all__)
