"""From an attack's scores to a lower bound on epsilon that holds with a stated confidence.

Under (epsilon, delta)-differential privacy every event has P(E) <= exp(epsilon) Q(E) + delta, with
P and Q either way round. Bounds of Clopper and Pearson on both probabilities of one event give a
bound on epsilon. The event is a score beyond a threshold, and the threshold is chosen on scores
that are not counted, so that the counts are binomial.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
