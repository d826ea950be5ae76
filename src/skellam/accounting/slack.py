"""What lies outside of a curve: rare events, and the sampler's distance from its law.

The lemmas are proven in docs/maths/slack.md. A rare event costs its probability once, whatever
epsilon is. A total variation costs ``1 + e^epsilon`` times itself; where probabilities are close at
every integer, that can be had for a rare event and a hair of epsilon (``stretch``) instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from skellam import _checks
from skellam.accounting.conversion import epsilon_with_distance
from skellam.accounting.laws import Law


@dataclass(frozen=True, slots=True)
class Slack:
    """Masses that a curve leaves out; they add under composition."""

    rare: float = 0.0
    """Probability of an event outside of which the curve is exact."""
    distance: float = 0.0
    """Total variation from the laws that the curve describes."""
    stretch: float = 0.0
    """What epsilon grows by."""

    def __post_init__(self) -> None:
        _checks.non_negative("rare", self.rare)
        _checks.non_negative("distance", self.distance)
        _checks.non_negative("stretch", self.stretch)

    def __add__(self, other: Slack) -> Slack:
        return Slack(
            self.rare + other.rare, self.distance + other.distance, self.stretch + other.stretch
        )

    def __mul__(self, rounds: int) -> Slack:
        return Slack(self.rare * rounds, self.distance * rounds, self.stretch * rounds)

    def charge(self, epsilon: float) -> float:
        """Return what is added to delta at ``epsilon``, at most 1."""
        if not self.distance:
            return min(1.0, self.rare)
        return min(1.0, self.rare + self.distance * (1 + math.exp(min(epsilon, 700.0))))

    def delta(self, curve: Callable[[float], float], epsilon: float) -> float:
        """Return the total delta at ``epsilon``, ``curve`` giving that of the ideal laws."""
        return min(1.0, curve(epsilon - self.stretch) + self.charge(epsilon))

    def epsilon(self, curve: Callable[[float], float], delta: float) -> float:
        """Return an epsilon whose total delta is ``delta``; infinite where nothing is left."""
        left = _checks.open_unit("delta", delta) - self.rare
        if not left > 0:
            return math.inf
        ideal = epsilon_with_distance(curve, left, self.distance * math.exp(self.stretch))
        return ideal + self.stretch


NO_SLACK = Slack()
_STRETCH = 1e-8


def slack_by_atoms(
    law: Law, *, dimension: int, shift: float, distance: float, atom_error: float
) -> Slack:
    """Return what a sampler costs without the factor e^epsilon of its distance (lemma 2).

    ``distance`` is the total variation of a release's noise, ``atom_error`` the largest error of a
    probability of one coordinate's noise, and ``shift`` bounds how far a user moves a coordinate.
    """
    cost = _atom_cost(law, math.ceil(shift) + 1, atom_error)
    rare = distance + 4 * dimension / _STRETCH * cost
    return Slack(rare=min(1.0, rare), stretch=_STRETCH)


@lru_cache(maxsize=8)
def _atom_cost(law: Law, shift: int, atom_error: float) -> float:
    """Bound E[min(1, 2a/p(Y))] for Y a draw of the law moved by ``shift`` (lemma 2's M)."""
    left = law.log_pmf[::-1] if law.shift else law.log_pmf[:0:-1]
    log_p = np.concatenate((left, law.log_pmf))
    if shift >= len(law.log_survival):
        return 1.0
    capped = np.minimum(0.0, math.log(2 * atom_error) - log_p[shift:])
    inside = float(np.exp(log_p[: len(log_p) - shift] + capped).sum())
    beyond = math.exp(law.log_survival[len(law.log_survival) - shift])
    return min(1.0, (inside + beyond) * (1 + 1e-9) + 1e-300)
