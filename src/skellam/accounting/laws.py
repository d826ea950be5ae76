"""Laws of integer noise as tables of logarithms: Skellam, discrete Gaussian, binomial.

A `Law` holds the right half of a symmetric law: its atoms lie at ``k + shift`` from the centre,
k = 0, 1, ..., where ``shift`` is 0 (the centre is an atom) or 1/2 (it lies between two, as for an
odd number of coins). Tables reach down to probabilities of about e^-750 = 1e-326, so that every
threshold of probability 1e-300 or more is inside with its full relative accuracy.

Accuracy of the tables: 1e-12 in the logarithm, that is relative in the probability. Skellam comes
from Debye's uniform expansion where ``hypot(k, variance) >= 100`` (DLMF 10.41.3; at most ten terms,
the first omitted one below 1e-16), else from Miller's backward recurrence of Bessel ratios;
survival functions from sums of positive terms, far tail first.

The law of a sum of many independent copies (`log_sum`) has relative accuracy far into its tails. An
FFT alone keeps errors of 1e-16 of the largest probability, useless in a tail of 1e-300. Tilting by
exp(theta k) moves any part of the tail to the centre; there the FFT is accurate in relative terms,
and the tilt is undone in the log domain. Windows of three standard deviations to each side join up.
For a log-concave law the tilted probabilities inside one are above 1e-2 of their peak, and the
relative error is below 1e-12 + 4e-15 a copy. What is faint in a window is rounded up by the noise
of the FFT, so that tails of other laws are never too small.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import ArrayLike, NDArray

from skellam import _checks
from skellam.errors import CertificateError, ShapeError

Table = NDArray[np.float64]

MAX_VARIANCE = 1e10
"""Beyond this a table of 39 standard deviations does not fit."""

_REACH = -750.0
_LIFT = 600.0  # e^-750 is no normal float64, but e^(600 - 750) is one
_DEBYE_FROM = 100
_MAX_COPIES = 100_000
_WINDOW = 3.0


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
    log_masses = np.asarray(log_pmf, dtype=np.float64)
    if log_masses.ndim != 1 or log_masses.size < 2:
        raise ShapeError(f"log_pmf must be a vector of two atoms or more, got {log_masses.shape}")
    if not np.abs(log_masses - log_masses[::-1]).max() <= 1e-10:
        raise CertificateError("the law is not symmetric, so its quantile gaps certify nothing")
    if not abs(math.fsum(np.exp(log_masses)) - 1) <= 1e-10:
        raise CertificateError("the probabilities do not sum to one")
    return folded(log_masses[log_masses.size // 2 :], shift=0.5 * (1 - log_masses.size % 2))


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
    if not variance <= MAX_VARIANCE:
        raise CertificateError(
            f"variance {variance:g} is beyond {MAX_VARIANCE:g}, the largest that is certified; "
            "lower the scale (fewer bits)"
        )


@lru_cache(maxsize=4)
def discrete_gaussian_sum_law(sigma: float, shares: int) -> Law:
    """Return the law of the sum of ``shares`` discrete Gaussians of parameter ``sigma``."""
    n = _checks.integer("shares", shares, 1)
    if not n <= _MAX_COPIES:
        raise CertificateError(
            f"{n} shares are beyond {_MAX_COPIES}, the largest that is certified; plan with fewer"
        )
    right = log_discrete_gaussian(sigma)
    fits(n * sigma**2)
    log_masses = np.concatenate((right[:0:-1], right))
    # the sum is sub-Gaussian of variance n sigma^2, so beyond this reach its tail is below e^-750
    centre = n * (right.size - 1)
    reach = min(centre, math.ceil(math.sqrt(1500 * n) * sigma))
    return folded(log_sum(log_masses, n, centre, centre + reach), shift=0.0)


def log_sum(
    log_pmf: Table, copies: int, first: int, last: int, *, max_size: int = 1 << 22
) -> Table:
    """Return log P(K = k), first <= k <= last, for the sum K of ``copies`` draws from 0, 1, ...

    It raises `CertificateError` where a transform would have more than ``max_size`` points; those
    of the largest certified variance have as many as the default.
    """
    if _tilted(log_pmf, copies, 0.0).deviation < _WINDOW:
        return _log_power(log_pmf, copies, first, last)
    found, nearest = np.full(last - first + 1, -np.inf), np.full(last - first + 1, np.inf)
    for tilt in _cover(log_pmf, copies, first, last):
        at, values = _window(log_pmf, copies, tilt, max_size)
        inside = (first <= at) & (at <= last)
        at, values = at[inside], values[inside]
        distance = np.abs(at - tilt.mean) / tilt.deviation
        nearer = distance < nearest[at - first]
        nearest[at[nearer] - first] = distance[nearer]
        found[at[nearer] - first] = values[nearer]
    if not np.all(nearest < 2 * _WINDOW):
        raise CertificateError("the windows over the sum's law do not join up")
    return found


def quantile_bound(log_pmf: Table, copies: int, log_tail: float) -> tuple[int, float]:
    """Return k, theta with P(K >= j) <= exp(log_tail - theta (j - k)) for j > k, by Chernoff."""
    end = copies * (log_pmf.size - 1)
    tilt = _tilted(log_pmf, copies, 0.0)
    mode = copies * int(log_pmf.argmax())
    while copies * tilt.log_mass - tilt.theta * (tilt.mean - mode) > log_tail:
        if end - tilt.mean < 0.5:
            return end, tilt.theta
        tilt = _next(log_pmf, copies, tilt, 1)
    return math.ceil(tilt.mean), tilt.theta


class _Tilt(NamedTuple):
    theta: float
    log_mass: float
    mean: float
    deviation: float


def _tilted(log_pmf: Table, copies: int, theta: float) -> _Tilt:
    """Mean and deviation are those of the sum; ``log_mass`` is log E exp(theta k) of one draw.

    k counts from the mode: large numbers would cost digits that ``copies`` then multiplies.
    """
    mode = int(log_pmf.argmax())
    k = np.arange(-mode, log_pmf.size - mode)
    weights = log_pmf + theta * k
    top = weights.max()
    weights = np.exp(weights - top)
    mass = weights.sum()
    mean = float((weights * k).sum() / mass)
    variance = float((weights * (k - mean) ** 2).sum() / mass)
    deviation = math.sqrt(copies * variance)
    return _Tilt(theta, top + math.log(mass), copies * (mean + mode), deviation)


def _cover(log_pmf: Table, copies: int, first: int, last: int) -> Iterator[_Tilt]:
    centre = _tilted(log_pmf, copies, 0.0)
    yield centre
    for direction, end in ((1, last), (-1, first)):
        tilt = centre
        while direction * (end - tilt.mean) > _WINDOW * tilt.deviation:
            tilt = _next(log_pmf, copies, tilt, direction)
            yield tilt


def _next(log_pmf: Table, copies: int, tilt: _Tilt, direction: int) -> _Tilt:
    step = direction * 2 * _WINDOW / tilt.deviation
    for _ in range(60):
        found = _tilted(log_pmf, copies, tilt.theta + step)
        if abs(found.mean - tilt.mean) <= 1.01 * _WINDOW * (tilt.deviation + found.deviation):
            return found
        step /= 2
    raise CertificateError("the tail of the sum cannot be reached; raise sigma")


def _window(
    log_pmf: Table, copies: int, tilt: _Tilt, max_size: int
) -> tuple[NDArray[np.int64], Table]:
    """Return the sums within four and a half deviations of the tilted mean, and their logs."""
    size = 1 << math.ceil(math.log2(24 * tilt.deviation + 64))
    if size > max_size:
        raise CertificateError("the law of a sum is too wide for a table; plan with more noise")
    mode = int(log_pmf.argmax())
    k = np.arange(-mode, log_pmf.size - mode)
    single = np.exp(log_pmf + tilt.theta * k - tilt.log_mass)
    transform = np.fft.rfft(np.bincount(k % size, weights=single, minlength=size))
    seen = np.abs(transform) > math.exp(-80 / copies)  # elsewhere the power is below e^-80
    transform[seen] = _power(transform[seen], copies)
    transform[~seen] = 0
    radius = 1 + int(1.5 * _WINDOW * tilt.deviation)
    at = round(tilt.mean) - copies * mode + np.arange(-radius, radius + 1)
    power = np.fft.irfft(transform, size)
    peak, values = power.max(), power[at % size]
    faint = values < 1e-4 * peak
    values[faint] = np.maximum(values[faint], 0.0) + 1e-16 * (8 + copies) * peak
    return at + copies * mode, np.log(values) - tilt.theta * at + copies * tilt.log_mass


def _power(values: NDArray[np.complex128], n: int) -> NDArray[np.complex128]:
    """Return the n-th power by squaring: as exact as NumPy's, and ten times as fast."""
    power = values if n % 2 else np.ones_like(values)
    while n := n // 2:
        values = values * values
        if n % 2:
            power = power * values
    return power


def _log_power(log_pmf: Table, copies: int, first: int, last: int) -> Table:
    """By squaring, each product a sum of positive terms in the log domain; for narrow laws."""
    base, base_at = log_pmf, 0
    power, power_at = np.zeros(1), 0
    while copies:
        if copies % 2:
            power, power_at = _log_convolve(power, base, power_at + base_at)
        base, base_at = _log_convolve(base, base, 2 * base_at)
        copies //= 2
    found = np.full(last - first + 1, -np.inf)
    low, high = max(first, power_at), min(last + 1, power_at + power.size)
    found[low - first : high - first] = power[low - power_at : high - power_at]
    return found


def _log_convolve(a: Table, b: Table, at: int) -> tuple[Table, int]:
    """Return the product, trimmed to what is above e^-850, and where it starts."""
    padded = np.pad(a, b.size - 1, constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, b.size)
    product = np.logaddexp.reduce(windows + b[::-1], axis=1)
    kept = np.flatnonzero(product > -850)
    return product[kept[0] : kept[-1] + 1], at + int(kept[0])
