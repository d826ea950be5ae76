"""The ideal integer laws to eighty digits: slow, and obviously right."""

import mpmath

DIGITS = 80


def skellam(variance: float, bound: int) -> list[mpmath.mpf]:
    """Return P(X = 0), ..., P(X = bound) by Miller's algorithm from three times as far.

    I[k-1] = I[k+1] + (2k/v) I[k] downwards forgets its start, by exp(-8 bound^2 / v) at ``bound``.
    At k = 0 the result must meet the Bessel function itself.
    """
    with mpmath.workdps(DIGITS):
        v = mpmath.mpf(variance)
        above, here = mpmath.mpf(0), mpmath.mpf(1)
        falling = [here]
        for k in range(3 * bound + 50, 0, -1):
            above, here = here, above + 2 * k / v * here
            falling.append(here)
        total = 2 * mpmath.fsum(falling) - here
        true = mpmath.exp(-v) * mpmath.besseli(0, v)
        assert mpmath.almosteq(here / total, true, rel_eps=mpmath.mpf(10) ** -60)
        return [weight / total for weight in falling[: -bound - 2 : -1]]


def discrete_gaussian(sigma: float, bound: int) -> list[mpmath.mpf]:
    with mpmath.workdps(DIGITS):
        twice = 2 * mpmath.mpf(sigma) ** 2
        total = mpmath.jtheta(3, 0, mpmath.exp(-1 / twice)) if sigma < 2 else _gaussian_mass(twice)
        return [mpmath.exp(-(mpmath.mpf(k) ** 2) / twice) / total for k in range(bound + 1)]


def _gaussian_mass(twice: mpmath.mpf) -> mpmath.mpf:
    """Poisson summation: the same theta function where its own series is long."""
    return mpmath.sqrt(mpmath.pi * twice) * mpmath.jtheta(3, 0, mpmath.exp(-(mpmath.pi**2) * twice))


def discrete_laplace(scale: float, bound: int) -> list[mpmath.mpf]:
    with mpmath.workdps(DIGITS):
        q = mpmath.exp(-1 / mpmath.mpf(scale))
        return [(1 - q) / (1 + q) * q**k for k in range(bound + 1)]
