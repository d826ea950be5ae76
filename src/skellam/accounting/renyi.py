"""Exact divergences of Skellam noise: Rényi (Result A', any real order above 1), hockey-stick.

`rdp_exact` is one coordinate and one integer shift. Divergences add over coordinates, so an integer
vector of norm D costs at most D^2 max_k r(k) / k^2, k = 1 .. D (`rdp_integer`). No monotonicity in
k is assumed: small k are evaluated, large k bounded by the paper's theorem. That holds at integer
orders; in between (a - 1) r_a, the logarithm of a moment, is convex in a.

`rdp_rounded` is the same for stochastic rounding: sup of r(x) / x^2 over REAL x, both directions.
On [m, m + 1] the law P of the release is linear in x, so the moments E_Q (P/Q)^b, b = a and 1 - a,
are convex in x and lie below their chords. Near 0 write E_Q (P/Q)^b = 1 + x^2 psi(x), with ::

    psi(x) = b (b - 1) E_Q[s^2 int_0^1 (1 - v) (1 + v x s)^(b - 2) dv],   s = P_1/Q - 1.

On a cell a convex psi is at most the larger of its ends. For 2 < b < 3 it is concave instead, and
lies below the lines from either end through the middle. For constant psi, log(1 + x^2 psi) / x^2
falls in x.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from skellam import _checks
from skellam.accounting.laws import Table, log_chernoff, log_skellam, skellam_law
from skellam.errors import CertificateError, DomainError

_SAFETY = 1 + 4e-10  # float64 noise in a divergence is below 1e-10 of it up to variance 1e9
_NEGLIGIBLE = -100.0
_MAX_ATOMS = 20_000_000
_EXACT_SHIFTS = 32
_MAX_VALUE = 256
_MAX_NODES = 4096


def rdp_exact(variance: float, shift: int, order: float) -> float:
    """Return the Rényi divergence of Sk(variance) shifted by ``shift`` from itself, rounded up."""
    mu = _checks.positive("variance", variance)
    k, a = _checks.integer("shift", abs(shift), 1), _order(order)
    return _atoms(mu, k, a).log_moment(a, k, 0.0) / (a - 1) * _SAFETY


@lru_cache(maxsize=4096)
def rdp_integer(variance: float, l2: float, order: float) -> float:
    """Return an upper bound on the divergence that integer vectors of norm ``l2`` can cause."""
    norm, a = _checks.positive("l2", l2), _order(order)
    last = max(1, math.floor(norm))
    worst = max(rdp_exact(variance, k, a) / k**2 for k in range(1, min(last, _EXACT_SHIFTS) + 1))
    if last > _EXACT_SHIFTS:
        worst = max(worst, _far_shifts(variance, _EXACT_SHIFTS + 1, a))
    return norm**2 * worst


@lru_cache(maxsize=4096)
def rdp_rounded(variance: float, order: float, coordinate_bound: float) -> float:
    """Return sup of r(x) / x^2 over 0 < x <= coordinate_bound, a cost per squared norm."""
    mu, a = _checks.positive("variance", variance), _order(order)
    end = _checks.positive("coordinate_bound", coordinate_bound)
    if not end <= _MAX_VALUE:
        raise CertificateError(
            f"coordinate_bound={end:g} is beyond {_MAX_VALUE}; bound the coordinates"
        )
    atoms = _atoms(mu, math.ceil(end), a)
    worst = max(_below_one(atoms, b, min(end, 1.0)) for b in (a, 1 - a))
    for m in range(1, math.ceil(end)):
        worst = max(worst, *(_above_one(atoms, b, m, min(end - m, 1.0)) for b in (a, 1 - a)))
    return worst / (a - 1) * _SAFETY


@dataclass(frozen=True, slots=True, eq=False)
class _Atoms:
    """log p(x) for all x where a moment has mass, and as far again as the shifts reach."""

    log_pmf: Table
    first: int
    size: int

    def shifted(self, k: int) -> Table:
        """Return log p(x - k)."""
        return self.log_pmf[self.first - k : self.first - k + self.size]

    def log_moment(self, b: float, m: int, f: float) -> float:
        """Return log E_Q (P/Q)^b for P = (1 - f) Q(. - m) + f Q(. - m - 1)."""
        log_p = self.shifted(m)
        if f > 0:
            log_p = log_p + np.log1p(f * np.expm1(self.shifted(m + 1) - log_p))
        return _log_moment(self.shifted(0), log_p, b)


def _atoms(mu: float, reach: int, a: float) -> _Atoms:
    def log_term(x: float) -> float:
        return float(a * log_chernoff(mu, x - reach) - (a - 1) * log_chernoff(mu, x))

    beyond = 16
    while (
        log_term(a * reach + beyond) > _NEGLIGIBLE
    ):  # it falls from a * reach on: asinh is concave
        beyond *= 2
    right, left = math.ceil(a * reach) + beyond, math.ceil((a - 1) * reach) + beyond
    if not left + right <= _MAX_ATOMS:
        raise CertificateError(f"order {a:g} at shift {reach} needs too large a table; lower it")
    half = log_skellam(mu, right + reach)
    return _Atoms(np.concatenate((half[:0:-1], half)), half.size - 1 - left, left + right + 1)


def _log_moment(log_q: Table, log_p: Table, b: float) -> float:
    """Log of sum q (p/q)^b; as E_Q (P/Q - 1) = 0, small ones are sums of positive excesses."""
    loss = log_p - log_q
    logs = log_q + b * loss
    top = logs.max()
    total = float(top + np.log(np.exp(logs - top).sum()))
    if total > 0.1:
        return total
    q = np.exp(log_q)
    excess = np.exp(np.minimum(logs, 0.2)) - q - b * (np.exp(log_p) - q)
    near = np.abs(loss) * max(abs(b), 1.0) < 0.02
    excess[near] = q[near] * _series(loss[near], b)
    return math.log1p(float(np.maximum(excess, 0.0).sum()))


def _series(loss: Table, b: float) -> Table:
    """exp(b loss) - 1 - b (exp(loss) - 1) for |loss| max(|b|, 1) < 0.02."""
    value = np.zeros_like(loss)
    for n in range(8, 1, -1):
        value = value * loss + (b**n - b) / math.factorial(n)
    return value * loss * loss


def _far_shifts(mu: float, k: int, a: float) -> float:
    """Bound r(j) / j^2 for all j >= k by the paper's theorem at the integer orders around ``a``."""
    floor = math.floor(a)
    low, high = ((n - 1) * _paper(mu, k, n) if n > 1 else 0.0 for n in (floor, floor + 1))
    return ((floor + 1 - a) * low + (a - floor) * high) / (a - 1)


def _paper(mu: float, k: int, n: int) -> float:
    return n / (2 * mu) + min((2 * n - 1 + 6 / k) / (4 * mu * mu), 3 / (2 * mu * k))


def _below_one(atoms: _Atoms, b: float, end: float) -> float:
    """Bound log E_Q (P/Q)^b / x^2 over 0 < x <= end <= 1, cell by cell."""
    at_zero = 0.5 * b * (b - 1) * math.expm1(atoms.log_moment(2.0, 1, 0.0))
    first = min(end, math.sqrt(1e-3 / at_zero))
    low, psi_low, worst = 0.0, at_zero, 0.0
    for high in np.geomspace(first, end, 2 + math.ceil(50 * math.log(end / first))).tolist():
        psi_high = _psi(atoms, b, high)
        psi = max(psi_low, psi_high)
        if 2 < b < 3:
            middle = _psi(atoms, b, (low + high) / 2)
            psi = max(middle, 2 * middle - min(psi_low, psi_high))
        worst = max(worst, math.log1p(low**2 * psi) / low**2 if low > 0 else psi)
        low, psi_low = high, psi_high
    return worst


def _psi(atoms: _Atoms, b: float, x: float) -> float:
    log_moment = atoms.log_moment(b, 0, x)
    return math.expm1(log_moment) / x**2 if log_moment < 700 else math.inf


def _above_one(atoms: _Atoms, b: float, m: int, end: float) -> float:
    """Bound log E_Q (P/Q)^b / x^2 over m <= x <= m + end, by chords between nodes."""
    first, last = atoms.log_moment(b, m, 0.0), atoms.log_moment(b, m, end)
    nodes = 33 + 2 * math.ceil(abs(last - first))
    if not nodes <= _MAX_NODES:
        raise CertificateError("the divergence grows too fast to be bounded; lower the order")
    x = np.linspace(0.0, end, nodes)
    logs = np.array([atoms.log_moment(b, m, float(f)) for f in x])
    share = np.linspace(0.0, 1.0, 65)
    low, rise = logs[:-1, None], np.diff(logs)[:, None]
    chords = low + np.log1p(share * np.expm1(rise))
    at = m + x[:-1, None] + share * np.diff(x)[:, None]
    return float((np.maximum(chords[:, 1:], chords[:, :-1]) / at[:, :-1] ** 2).max())


def _order(order: float) -> float:
    a = _checks.number("order", order)
    if not 1 < a < math.inf:
        raise DomainError(f"order must be finite and above 1, got {a!r}")
    return a


def delta_exact(variance: float, shift: int, epsilon: float) -> float:
    """Return the hockey-stick divergence of Sk(variance) shifted by ``shift``, rounded up.

    The likelihood ratio rises, so the sum runs over the outcomes from some threshold on, and all
    its terms are positive; what lies beyond the table has mass below e^-740.
    """
    k = _checks.integer("shift", abs(shift), 1)
    e = _checks.non_negative("epsilon", epsilon)
    right = skellam_law(_checks.positive("variance", variance)).log_pmf
    if not k < right.size:
        return 1.0
    logs = np.concatenate((right[:0:-1], right))
    shifted, plain = logs[:-k], logs[k:]
    terms = np.exp(shifted) * -np.expm1(np.minimum(e + plain - shifted, 0.0))
    beyond = math.fsum(np.exp(logs[-k:]))
    return min(1.0, (float(terms.sum()) + beyond) * _SAFETY)
