"""Verdict of an audit: a lower bound from attacks beside the upper bound that is claimed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

from skellam import _checks
from skellam.audit import evidence
from skellam.audit.evidence import Scores
from skellam.errors import DomainError, InfeasibleError
from skellam.plan import CalibratedPlan


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
        return evidence.max_epsilon(self.trials, delta=self.delta, confidence=self.confidence)


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
        lower = evidence.lower_bound(
            present, absent, delta=settings.delta, confidence=settings.confidence
        )
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
