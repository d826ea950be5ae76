"""Oracle: what rounds that are skipped below a least size really cost, by enumeration.

A population of ``size`` users, each in a round's cohort by its own coin of chance ``rate``. A round
whose cohort is smaller than ``min_cohort`` is skipped, and everybody sees that; else it releases
two counts, each with Skellam noise of ``variance``: how many *marked* users take part, and whether
the user in question does. Members may also drop out, each with a chance of ``leaving``, and a round
in which more than the share ``dropout`` does is aborted; others may be ``missing`` from the start.
Neighbours zero that user's data: it may be drawn and be counted for the size, but adds nothing.
Others are all marked, which shows about how many take part, or none is.

Nothing here is simulated. Outcomes beyond the range of the noise, and those of about the same
likelihood ratio, are put together; that only makes the two laws harder to tell apart, so that every
number is a lower bound on the truth, and exact but for `MERGED`.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import floor

import numpy as np
from scipy.stats import binom, skellam

MERGED = 1e-3
"""Outcomes whose log-likelihood ratios differ by less may be taken for one."""
_RANGE = 1e-13


@dataclass(frozen=True)
class Rounds:
    """Who may take part in a round, and when it is skipped."""

    size: int
    rate: float
    min_cohort: int
    variance: float
    marked: bool
    """Whether the other users add 1 to a count of their own."""
    dropout: Fraction = Fraction(0)
    leaving: float = 0.0
    missing: float = 0.0
    """Chance of each of the others to drop out before it is counted for the size."""

    def chances(self):
        """Return the chance that a round runs, by how many others stay and by the user's coin.

        The user itself stays.
        """
        ran = np.zeros((self.size, 2))
        for count, chance in enumerate(self._others()):
            for gone, share in enumerate(binom.pmf(range(count + 1), count, self.leaving)):
                for drawn, coin in enumerate((1 - self.rate, self.rate)):
                    members = count + drawn
                    if members >= self.min_cohort and gone <= floor(self.dropout * members):
                        ran[count - gone, drawn] += chance * share * coin
        return ran

    def _others(self):
        return binom.pmf(range(self.size), self.size - 1, self.rate * (1 - self.missing))

    def laws(self):
        """Return the two laws over all outcomes, the last of which is the skipped round."""
        ran = self.chances()
        others = np.array([self._noise(n if self.marked else 0) for n in range(self.size)])
        absent, present = self._noise(0), self._noise(1)
        with_data = others.T @ ran @ np.array([absent, present])
        without = np.outer(others.T @ ran.sum(axis=1), absent)
        return tuple(np.append(law, 1 - ran.sum()) for law in (with_data, without))

    def _noise(self, shift):
        """Return the law of a count, ``shift`` off zero, over one range for all counts."""
        reach = int(skellam.isf(_RANGE, self.variance / 2, self.variance / 2)) + 1
        values = np.arange(-reach, reach + self.size + 1) - shift
        law = skellam.pmf(values, self.variance / 2, self.variance / 2)
        law[0] += 1 - law.sum()
        return law

    def delta(self, epsilon, rounds):
        """Return the larger of both hockey-stick divergences of ``rounds`` rounds."""
        p, q = composed(*merged(*self.laws()), rounds)
        return max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon))

    def delta_given_run(self, epsilon):
        """Return the larger hockey-stick divergence of one round, given that it ran."""
        p, q = merged(*(law[:-1] / law[:-1].sum() for law in self.laws()))
        return max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon))


@dataclass(frozen=True)
class SizedRounds:
    """Rounds whose cohort size is public, and that everybody sees run; they are all that is spent.

    ``sizes`` are their chances. The user, who never drops out, adds 1 to a count with noise, and
    everybody else -1. Others drop out each with a chance of ``leaving``.
    """

    size: int
    sizes: dict[int, float]
    min_cohort: int
    variance: float
    dropout: Fraction = Fraction(0)
    leaving: float = 0.0

    def laws(self):
        """Return the two laws over sizes and counts, given that the round ran."""
        reach = int(skellam.isf(_RANGE, self.variance / 2, self.variance / 2)) + max(self.sizes)
        counts = np.arange(-2 * reach, 2 * reach + 1)
        noise = skellam.pmf(counts, self.variance / 2, self.variance / 2)
        ran = [self._given(n, noise) for n in self.sizes if n >= self.min_cohort]
        both = np.concatenate(ran, axis=1)
        return both / both.sum(axis=1, keepdims=True)

    def _given(self, n, noise):
        """Return both laws of the count where ``n`` take part, times the chance of that."""
        centre = len(noise) // 2
        found = np.zeros((2, centre))
        for drawn, coin in ((1, n / self.size), (0, 1 - n / self.size)):
            for gone in range(min(floor(self.dropout * n), n - drawn) + 1):
                chance = self.sizes[n] * coin * binom.pmf(gone, n - drawn, self.leaving)
                for i, own in enumerate((drawn, 0)):
                    start = centre // 2 + (n - drawn - gone) - own
                    found[i] += chance * noise[start : start + centre]
        return found

    def delta(self, epsilon, rounds):
        """Return the larger of both hockey-stick divergences of ``rounds`` rounds that ran."""
        p, q = composed(*merged(*self.laws()), rounds)
        return max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon))


@dataclass(frozen=True)
class Rates:
    """Chances of a round to run, given whether the user in question is in its cohort."""

    rate: float
    with_user: float
    without_user: float

    @classmethod
    def of(cls, rounds):
        without, with_user = rounds.chances().sum(axis=0)
        return cls(rounds.rate, with_user / rounds.rate, without / max(1e-300, 1 - rounds.rate))

    @property
    def changed(self):
        """The chance that the user is in a cohort that runs."""
        both = self.rate * self.with_user + (1 - self.rate) * self.without_user
        return self.rate * self.with_user / both

    @property
    def decisive(self):
        """The chance that the user is in and that, by a least size, nothing had run without it."""
        return self.rate * (self.with_user - self.without_user)


def bit(variance, rate):
    """Return the two laws of one bit's release without skips, drawn with chance ``rate``."""
    rounds = Rounds(1, rate, 0, variance, marked=False)
    with_data, without = rounds.laws()
    return with_data, without


def informed_delta(rounds, epsilon, times=1):
    """Return an upper bound: the attacker is told who else takes part.

    With ``min_cohort`` others or more the round runs anyhow, and the user is in it with chance
    ``rate``; with one other fewer it runs because of the user, for certain.
    """
    rates = Rates.of(rounds)
    mixed = [bit(rounds.variance, rounds.rate), bit(rounds.variance, 1.0)]
    weights = [rates.without_user, rates.decisive]
    quiet = 1 - sum(weights)
    p, q = (
        np.concatenate([*(w * pair[i] for w, pair in zip(weights, mixed, strict=True)), [quiet]])
        for i in (0, 1)
    )
    p, q = composed(*merged(p, q, 0.0), times)
    return max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon))


def sampled_delta(variance, rate, epsilon, times=1):
    """Return the divergence of ``times`` rounds that all run, with cohorts drawn by ``rate``."""
    p, q = composed(*merged(*bit(variance, rate), 0.0), times)
    return max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon))


def hockey_stick(p, q, epsilon):
    return float(np.maximum(p - np.exp(epsilon) * q, 0).sum())


def merged(p, q, step=MERGED):
    """Return both laws after outcomes of like likelihood ratio are put together."""
    keep = (p > 0) | (q > 0)
    p, q = p[keep], q[keep]
    if not step:
        return p, q
    with np.errstate(divide="ignore"):
        ratio = np.clip(np.log(p) - np.log(q), -1e3, 1e3)
    _, cell = np.unique(np.rint(ratio / step), return_inverse=True)
    return np.bincount(cell, p), np.bincount(cell, q)


def composed(p, q, rounds):
    """Return the laws of ``rounds`` independent outcomes."""
    ps, qs = p, q
    for _ in range(rounds - 1):
        ps, qs = merged(np.outer(ps, p).ravel(), np.outer(qs, q).ravel())
    return ps, qs
