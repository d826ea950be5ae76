"""Attacks on releases, as functions of vectors and numbers alone.

An attack is a guess about a secret. Where the release does not depend on the secret, a guess that
was fixed before the secret was drawn is right with a known chance, whatever the guess looks at; so
the number of right guesses is binomial, exactly, and `max_right` bounds it at a stated rate.
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

ALARM = 1e-4
"""Chance, at most, that a test of this folder fails where nothing leaks. Seeds are fixed."""


def max_right(trials, chance, alarm=ALARM):
    """Return the most right guesses that blind guessing exceeds with a chance of ``alarm``."""
    return int(binom.isf(alarm, trials, chance))


# Which rotation makes a release integer?


def integrality(y, dimension):
    """Return by how many deviations ``y`` is more like integers than a wrong rotation would be.

    ``y`` is the released vector, padded with zeros from ``dimension`` on and rotated. The numbers
    that the padding dropped are missing, so ``y`` is off the integers, but alike in many places:
    the dropped columns of the transform lie in the last ``2**m`` and differ in their low ``m`` bits
    only, so rows with the same low bits are off by the same amount but for a sign, the parity of
    their high bits. Within such a group the phases of the right rotation agree.
    """
    length = len(y)
    block = length & -length
    low = max(0, length - dimension - 1).bit_length()
    if 1 << low >= block:
        raise ValueError(f"nothing is left of a release of {dimension} out of {length}")
    high = np.arange(block >> low, dtype=np.uint64)
    sign = 1 - 2 * (np.bitwise_count(high) & 1).astype(float)
    turns = np.exp(2j * np.pi * sign[:, None] * y.astype(float).reshape(-1, len(high), 1 << low))
    size, groups = len(high), length // len(high)
    # Independent uniform phases: the squared length of a sum of g has mean g, variance g (g - 1).
    squares = np.abs(turns.sum(axis=1)) ** 2
    return float((squares.sum() - groups * size) / np.sqrt(groups * size * (size - 1)))


def best_guess(scores, rng):
    """Return the index of the highest score, by lot among equals."""
    scores = np.asarray(scores)
    return int(rng.choice(np.flatnonzero(scores == scores.max())))


# Which of two laws is a number from?


@dataclass(frozen=True)
class Threshold:
    """Tells two secrets apart by one number, after runs of one's own with either."""

    cut: float
    above: int

    @classmethod
    def learnt(cls, first, second):
        low, high = np.mean(first), np.mean(second)
        return cls((low + high) / 2, int(high > low))

    def guess(self, value):
        return self.above if value > self.cut else 1 - self.above


def distinguished(run, *, shadows, trials, rng):
    """Return, for each number that ``run`` shows, how often it told secret 0 from secret 1.

    ``run(secret, seed)`` returns numbers by name. The attacker runs the library ``shadows`` times
    with either secret first; each secret of the ``trials`` is a fair coin.
    """
    seeds = iter(range(1 << 30))
    known = [[run(secret, next(seeds)) for _ in range(shadows)] for secret in (0, 1)]
    rules = {
        name: Threshold.learnt(*([shown[name] for shown in runs] for runs in known))
        for name in known[0][0]
    }
    right = dict.fromkeys(rules, 0)
    for secret in rng.integers(0, 2, trials):
        shown = run(secret, next(seeds))
        for name, rule in rules.items():
            right[name] += int(rule.guess(shown[name]) == secret)
    return right


def permutation_p(secret, shown, rng, times=40_000):
    """Return the chance that shuffled secrets correlate as much with ``shown``, at least 1/times.

    Exact (Phipson and Smyth 2010) where the two are independent.
    """
    a = np.asarray(secret, dtype=float)
    b = np.asarray(shown, dtype=float)
    a, b = a - a.mean(), b - b.mean()
    found = abs(a @ b)
    shuffled = rng.permuted(np.broadcast_to(a, (times, len(a))), axis=1)
    return float((1 + np.count_nonzero(np.abs(shuffled @ b) >= found * (1 - 1e-12))) / (times + 1))
