"""Poisson sampling as Rényi privacy sees it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from skellam import _checks
from skellam.errors import CertificateError


def poisson_rdp(
    rdp: Callable[[int], float], *, rate: float, orders: Sequence[int], involution: bool = False
) -> tuple[float, ...]:
    """Bound the divergence under Poisson sampling, given the bound ``rdp`` at all integer orders.

    Zhu and Wang 2019, theorem 5: the terms from the third on count three times. With
    ``involution`` (a map that swaps the two laws of a pair, as x -> v - x does for symmetric noise
    shifted by an integer vector v) they count once: Mironov, Talwar, Zhang 2019, theorem 5.
    Rounding has no such map. Never above the unsampled bound.
    """
    from scipy.special import gammaln, logsumexp

    q = _checks.rate("rate", rate)
    a = np.array([_checks.integer("order", order, 2) for order in orders])
    plain = np.array([rdp(order) for order in range(2, int(a.max()) + 1)])
    if q == 1:
        return tuple(plain[a - 2].tolist())
    l = np.arange(int(a.max()) + 1)  # noqa: E741  (as in the theorem)
    moments = np.concatenate(([0.0, 0.0], (l[2:] - 1) * plain))
    moments[3:] += 0.0 if involution else math.log(3)
    weights = l * math.log(q) - gammaln(l + 1.0) + moments
    left = a[:, None] - l
    others = np.where(
        left >= 0, left * math.log1p(-q) - gammaln(np.maximum(left, 0) + 1.0), -np.inf
    )
    total = gammaln(a + 1.0) + logsumexp(weights + others, axis=1)
    # The sum is 1 and a little more; what float64 loses of the little is below 1e-14 (a - 1).
    bound = np.maximum(total, 0.0) * (1 + 1e-12) / (a - 1) + 1e-14
    return tuple(np.minimum(plain[a - 2], bound).tolist())


def gaussian_rdp(z: float, *, rate: float = 1.0, orders: Sequence[float]) -> tuple[float, ...]:
    """Return the divergence of the (Poisson sampled) Gaussian mechanism at any real orders.

    Mironov, Talwar, Zhang 2019: the closed form of section 3.3 at whole orders, else the integral
    of theorem 4.
    """
    _checks.positive("z", z)
    whole = sorted({int(a) for a in orders if a == int(a) and a >= 2} | {2})
    closed = dict(
        zip(
            whole,
            poisson_rdp(lambda a: a / (2 * z * z), rate=rate, orders=whole, involution=True),
            strict=True,
        )
    )
    return tuple(closed[int(a)] if a in closed else _integral(z, rate, a) for a in orders)


def _integral(z: float, rate: float, order: float) -> float:
    """Integrate E (1 - q + q exp(x/z - 1/(2 z^2)))^order over a standard normal x.

    The trapezoidal rule of step h errs by exp(-2 pi^2 z/h), as the nearest branch points lie pi z
    off the real line: nothing at h = z/10.
    """
    from scipy.special import logsumexp

    plain = order / (2 * z * z)
    step = min(0.05, z / 10)
    if rate == 1 or not z >= 0.02:
        return plain
    x = np.arange(-13.0, order / z + 13.0, step)
    with np.errstate(divide="ignore"):
        ratio = np.logaddexp(np.log1p(-rate), math.log(rate) + x / z - 0.5 / z**2)
    logs = order * ratio - x * x / 2
    moment = float(logsumexp(logs)) + math.log(step) - 0.5 * math.log(2 * math.pi)
    return min(plain, (max(0.0, moment) * (1 + 1e-12) + 1e-13) / (order - 1))


def fixed_size_gaussian_rdp(
    z: float, *, cohort: int, population: int, orders: Sequence[float]
) -> tuple[float, ...]:
    """Bound the divergence of a Gaussian on a cohort of fixed size, under replace-one.

    Wang, Balle, Kasiviswanathan 2019, theorem 27. ``z`` is sigma over the sensitivity under
    REPLACE-ONE, that is twice the clip norm; dp_accounting's text asks for sigma over the clip
    norm, which would report far too little.
    """
    import dp_accounting

    n = _checks.integer("population", population, 1)
    event = dp_accounting.SampledWithoutReplacementDpEvent(
        n,
        _checks.integer("cohort", cohort, 1, n),
        dp_accounting.GaussianDpEvent(_checks.positive("z", z)),
    )
    neighbours = dp_accounting.NeighboringRelation.REPLACE_ONE
    accountant = dp_accounting.rdp.RdpAccountant(orders, neighbours).compose(event)
    values = tuple(float(value) for value in accountant.rdp)
    if not all(value >= 0 for value in values):
        raise CertificateError(f"dp_accounting returned no divergence for {event}: {values}")
    return values
