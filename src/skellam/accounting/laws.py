"""Symmetric laws on the integers as tables of logarithms: Skellam, discrete Gaussian, binomial.

A `Law` holds the right half of a symmetric law: its atoms lie at ``k + shift`` from the centre,
k = 0, 1, ..., where ``shift`` is 0 (the centre is an atom) or 1/2 (it lies between two, as for an
odd number of coins). Tables reach down to probabilities of about e^-750 = 1e-326, so that every
threshold of probability 1e-300 or more is inside with its full relative accuracy.

Accuracy of the tables: 1e-12 in the logarithm, that is relative in the probability. Skellam comes
from Debye's uniform expansion where ``hypot(k, variance) >= 100`` (DLMF 10.41.3; at most ten terms,
the first omitted one below 1e-16), else from Miller's backward recurrence of Bessel ratios;
survival functions from sums of positive terms, far tail first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import ArrayLike, NDArray

from skellam import _checks
from skellam.errors import CertificateError, ShapeError

Table = NDArray[np.float64]

LARGEST_VARIANCE = 1e10
"""Beyond this a table of 39 standard deviations does not fit."""

_REACH = -750.0
_LIFT = 600.0  # e^-750 is no normal float64, but e^(600 - 750) is one
_DEBYE_FROM = 100


@dataclass(frozen=True, slots=True, eq=False)
class Law:
    """The right half of a symmetric, log-concave law on the integers (or half-integers)."""

    log_pmf: Table
    """log P(X = k + shift), k = 0, 1, ..."""
    log_survival: Table
    """log P(X >= k + shift), k = 0, 1, ..."""
    shift: float
    """0 or 1/2: the distance of the first atom from the centre."""


def law_of(log_pmf: ArrayLike) -> Law:
    """Return the law with these log-probabilities over its whole contiguous support, in order.

    Raises `CertificateError` unless they are symmetric, log-concave and sum to one.
    """
    whole = np.asarray(log_pmf, dtype=np.float64)
    if whole.ndim != 1 or whole.size < 2:
        raise ShapeError(f"log_pmf must be a vector of two atoms or more, got {whole.shape}")
    if not np.abs(whole - whole[::-1]).max() <= 1e-10:
        raise CertificateError("the law is not symmetric, so its quantile gaps certify nothing")
    if not abs(math.fsum(np.exp(whole)) - 1) <= 1e-10:
        raise CertificateError("the probabilities do not sum to one")
    return folded(whole[whole.size // 2 :], shift=0.5 * (1 - whole.size % 2))


def folded(log_pmf: Table, *, shift: float) -> Law:
    """Return the symmetric law with this right half, or raise unless it is log-concave."""
    log_pmf = log_pmf[log_pmf >= _REACH - 50]
    steps = np.diff(log_pmf)
    noise = 1e-14 * np.abs(log_pmf[1:]) + 1e-13
    concave = np.all(np.diff(steps) <= 2 * noise[1:]) and np.all(steps <= noise)
    if not concave:
        raise CertificateError("the law is not log-concave, so thresholds need not be best tests")
    return Law(log_pmf, _log_survival(log_pmf), shift)


@lru_cache(maxsize=4)
def skellam_law(variance: float) -> Law:
    """Sk(variance): P(X = k) = exp(-variance) I_k(variance)."""
    mu = _checks.positive("variance", variance)
    fits(mu)
    return folded(log_skellam(mu, _reach(mu)), shift=0.0)


@lru_cache(maxsize=4)
def discrete_gaussian_law(sigma: float) -> Law:
    """P(X = k) proportional to exp(-k^2 / (2 sigma^2)) over all integers k."""
    return folded(log_discrete_gaussian(sigma), shift=0.0)


@lru_cache(maxsize=4)
def binomial_law(trials: int) -> Law:
    """Bin(trials, 1/2) about its mean; its support is bounded."""
    n = _checks.integer("trials", trials, 1)
    fits(n / 4)
    shift = 0.5 * (n % 2)
    below = np.arange(min(n // 2, int(20 * math.sqrt(n)) + 40)) + shift
    # P(d + 1) / P(d) = (n/2 - d) / (n/2 + d + 1)
    relative = np.concatenate(([0.0], np.cumsum(np.log1p(-(2 * below + 1) / (n / 2 + below + 1)))))
    return folded(_normalised(relative[relative >= _REACH], shift), shift=shift)


def log_discrete_gaussian(sigma: float) -> Table:
    """Return log P(X = k), k = 0, 1, ..., of the discrete Gaussian, down to e^-750."""
    variance = _checks.positive("sigma", sigma) ** 2
    fits(variance)
    k = np.arange(2 + int(math.sqrt(-2 * _REACH * variance)), dtype=np.float64)
    return _normalised(-(k * k) / (2 * variance), 0.0)


def log_skellam(variance: float, reach: int) -> Table:
    """Return log P(X = k), k = 0 .. reach, of Sk(variance)."""
    if variance >= _DEBYE_FROM:
        return _debye(variance, np.arange(reach + 1, dtype=np.float64))
    near = _miller(variance, min(reach, _DEBYE_FROM))
    far = _debye(variance, np.arange(_DEBYE_FROM + 1, reach + 1, dtype=np.float64))
    return np.concatenate((near, far))


def log_chernoff(variance: float, k: Table | float) -> Table:
    """Bound log P(X >= k), k >= 0, of Sk(variance) by the least log E exp(t X) - t k over t."""
    k = np.asarray(k, dtype=np.float64)
    return np.asarray(k * k / (np.hypot(k, variance) + variance) - k * np.arcsinh(k / variance))


def _log_survival(log_pmf: Table) -> Table:
    """Sum from the far tail inwards; what lies below e^-600 is lifted while it is summed."""
    split = int(np.searchsorted(-log_pmf, _LIFT))
    far = np.cumsum(np.exp(log_pmf[split:][::-1] + _LIFT))[::-1]
    near = np.exp(log_pmf[:split])
    if far.size and near.size:
        near[-1] += far[0] * math.exp(-_LIFT)
    return np.concatenate((np.log(np.cumsum(near[::-1])[::-1]), np.log(far) - _LIFT))


def _reach(variance: float) -> int:
    low, high = 0, 2
    while log_chernoff(variance, high) > _REACH:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if log_chernoff(variance, middle) > _REACH else (low, middle)
    return high


def _miller(variance: float, reach: int) -> Table:
    """By I_k / I_(k-1) = 1 / (2k / variance + I_(k+1) / I_k), stable downwards from any start."""
    from scipy.special import i0e

    ratio, ratios = 0.0, []
    for k in range(reach + 100, 0, -1):
        ratio = variance / (2 * k + variance * ratio)
        ratios.append(ratio)
    logs = np.log(np.array(ratios[::-1][:reach]))
    return math.log(i0e(variance)) + np.concatenate(([0.0], np.cumsum(logs)))


def _debye(variance: float, k: Table) -> Table:
    s = np.hypot(k, variance)
    if s.size == 0:
        return s
    terms = min(10, 2 + math.ceil(16 / math.log10(s[0])))
    w, series = (k / s) ** 2, np.zeros_like(s)
    for polynomial in reversed(_debye_polynomials()[1 : terms + 1]):
        series = (series + polynomial(w)) / s
    return log_chernoff(variance, k) - 0.5 * np.log(2 * math.pi * s) + np.log1p(series)


@lru_cache(maxsize=1)
def _debye_polynomials() -> list[Polynomial]:
    """Return v_0 .. v_10 with u_j(p) = p^j v_j(p^2), u_j the polynomials of DLMF 10.41.9."""
    u, found = Polynomial([1.0]), [Polynomial([1.0])]
    for j in range(1, 11):
        u = Polynomial([0, 0, 0.5, 0, -0.5]) * u.deriv() + (Polynomial([1, 0, -5]) * u).integ() / 8
        found.append(Polynomial(u.coef[j::2]))
    return found


def _normalised(relative: Table, shift: float) -> Table:
    weights = np.exp(relative)
    both_sides = 2 * math.fsum(weights) - (weights[0] if shift == 0 else 0.0)
    return relative - math.log(both_sides)


def fits(variance: float) -> None:
    """Raise unless a law of this variance fits into a table."""
    if not variance <= LARGEST_VARIANCE:
        raise CertificateError(
            f"variance {variance:g} is beyond {LARGEST_VARIANCE:g}, the largest that is certified; "
            "lower the scale (fewer bits)"
        )
