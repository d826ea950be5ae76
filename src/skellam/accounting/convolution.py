"""The law of a sum of many independent copies, with relative accuracy far into its tails.

An FFT alone keeps errors of 1e-16 of the largest probability, useless in a tail of 1e-300. Tilting
by exp(theta k) moves any part of the tail to the centre; there the FFT is accurate in relative
terms, and the tilt is undone in the log domain. Windows of three standard deviations to each side
join up. For a log-concave law the tilted probabilities inside one are above 1e-2 of their peak, and
the relative error is below 1e-12 + 4e-15 a copy. What is faint in a window is rounded up by the
noise of the FFT, so that tails of other laws are never too small.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.accounting.laws import Law, Table, fits, folded, log_discrete_gaussian
from skellam.errors import CertificateError

_MOST_COPIES = 100_000
_WINDOW = 3.0


@lru_cache(maxsize=4)
def discrete_gaussian_sum_law(sigma: float, shares: int) -> Law:
    """Return the law of the sum of ``shares`` discrete Gaussians of parameter ``sigma``."""
    n = _checks.integer("shares", shares, 1)
    if not n <= _MOST_COPIES:
        raise CertificateError(f"{n} shares are beyond {_MOST_COPIES}, the most that are certified")
    right = log_discrete_gaussian(sigma)
    fits(n * sigma**2)
    whole = np.concatenate((right[:0:-1], right))
    # the sum is sub-Gaussian of variance n sigma^2, so beyond this reach its tail is below e^-750
    centre = n * (right.size - 1)
    reach = min(centre, math.ceil(math.sqrt(1500 * n) * sigma))
    return folded(log_sum(whole, n, centre, centre + reach), shift=0.0)


def log_sum(log_pmf: Table, copies: int, first: int, last: int) -> Table:
    """Return log P(K = k), first <= k <= last, for the sum K of ``copies`` draws from 0, 1, ..."""
    if _tilted(log_pmf, copies, 0.0).deviation < _WINDOW:
        return _log_power(log_pmf, copies, first, last)
    found, nearest = np.full(last - first + 1, -np.inf), np.full(last - first + 1, np.inf)
    for tilt in _cover(log_pmf, copies, first, last):
        at, values = _window(log_pmf, copies, tilt)
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
    raise CertificateError("the tail of the sum cannot be reached; its law is too lumpy")


def _window(log_pmf: Table, copies: int, tilt: _Tilt) -> tuple[NDArray[np.int64], Table]:
    """Return the sums within four and a half deviations of the tilted mean, and their logs."""
    size = 1 << math.ceil(math.log2(24 * tilt.deviation + 64))
    mode = int(log_pmf.argmax())
    k = np.arange(-mode, log_pmf.size - mode)
    single = np.exp(log_pmf + tilt.theta * k - tilt.log_mass)
    transform = np.fft.rfft(np.bincount(k % size, weights=single, minlength=size))
    seen = np.abs(transform) > math.exp(-80 / copies)  # elsewhere the power is below e^-80
    transform[seen] **= copies
    transform[~seen] = 0
    radius = 1 + int(1.5 * _WINDOW * tilt.deviation)
    at = round(tilt.mean) - copies * mode + np.arange(-radius, radius + 1)
    power = np.fft.irfft(transform, size)
    peak, values = power.max(), power[at % size]
    faint = values < 1e-4 * peak
    values[faint] = np.maximum(values[faint], 0.0) + 1e-16 * (8 + copies) * peak
    return at + copies * mode, np.log(values) - tilt.theta * at + copies * tilt.log_mass


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
