"""Verdict of an audit: a lower bound from attacks' scores beside the upper bound that is claimed.

Under (epsilon, delta)-differential privacy every event has P(E) <= exp(epsilon) Q(E) + delta, with
P and Q either way round. Bounds of Clopper and Pearson on both probabilities of one event give a
bound on epsilon that holds with a stated confidence. The event is a score beyond a threshold, and
the threshold is chosen on scores that are not counted, so that the counts are binomial.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.errors import DomainError, InfeasibleError
from skellam.plan import CalibratedPlan

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
