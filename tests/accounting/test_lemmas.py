"""The lemmas of the paper, held against thirty digits on a wide grid.

I_k(mu) is written as the probability of k under Sk(mu): the factor exp(-mu) cancels in every ratio.
"""

import functools
import itertools
import math

import mpmath
import pytest

from oracles import integer_laws

VARIANCES = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 17.0, 60.0, 250.0, 1000.0)
REACH = 160


@functools.lru_cache
def _logs(variance):
    with mpmath.workdps(30):
        return [mpmath.log(p) for p in integer_laws.skellam(variance, REACH)]


def _delta(kind, order, x):
    shifted = order + (kind - 1) / mpmath.mpf(2)
    return (order - mpmath.mpf(1) / 2) / x + shifted / (2 * x * mpmath.sqrt(shifted**2 + x**2))


@pytest.mark.parametrize("variance", VARIANCES)
def test_bessel_ratios_lie_between_the_bounds_of_ruiz_antolin_and_segura(variance):
    """arcsinh(delta_0) <= log(I_(k-1) / I_k) <= arcsinh(delta_2), k >= 1."""
    logs, x = _logs(variance), mpmath.mpf(variance)
    with mpmath.workdps(30):
        for k in range(1, REACH + 1):
            ratio = logs[k - 1] - logs[k]
            assert mpmath.asinh(_delta(0, k, x)) <= ratio <= mpmath.asinh(_delta(2, k, x))


@pytest.mark.parametrize("variance", VARIANCES)
def test_bessel_ratios_lie_between_the_standard_bounds(variance):
    logs, x = _logs(variance), mpmath.mpf(variance)
    for k in range(1, REACH + 1):
        ratio = logs[k - 1] - logs[k]
        assert mpmath.asinh((k - 0.5) / x) <= ratio <= mpmath.asinh(k / x)


@pytest.mark.parametrize("variance", VARIANCES)
def test_bessel_functions_fall_and_their_ratios_rise_with_the_order(variance):
    logs = _logs(variance)
    ratios = [a - b for a, b in itertools.pairwise(logs)]
    assert ratios[0] > 0
    assert all(a < b for a, b in itertools.pairwise(ratios))


@pytest.mark.parametrize("variance", VARIANCES)
def test_differences_of_the_deltas_are_bounded(variance):
    """delta_2(u) - delta_0(v) <= (u - v)/x + min((u - v + 1)/x, 1)/(2x), u >= v."""
    x = mpmath.mpf(variance)
    for v in (1, 2, 5, 20, 100):
        for u in (v, v + 1, v + 3, v + 40):
            bound = (u - v) / x + min((u - v + 1) / x, mpmath.mpf(1)) / (2 * x)
            assert _delta(2, u, x) - _delta(0, v, x) <= bound


@pytest.mark.parametrize("variance", VARIANCES)
def test_the_deltas_themselves_are_bounded(variance):
    x, half = mpmath.mpf(variance), mpmath.mpf(1) / 2
    for v in (1, 2, 5, 20, 100):
        plain = (v - half) / x
        upper = min(plain * (1 + half / x) + half / x**2, plain + half / x)
        assert plain <= _delta(0, v, x) <= _delta(2, v, x) <= upper


@pytest.mark.parametrize("variance", VARIANCES)
def test_ratios_of_bessel_functions_whose_orders_differ_by_more_than_one(variance):
    """Sums of the bounds for neighbours, and the closed form that the paper bounds them with."""
    logs, x = _logs(variance), mpmath.mpf(variance)
    with mpmath.workdps(30):
        for v, steps in itertools.product((0, 1, 4, 30), (1, 2, 7, 40)):
            orders = range(v + 1, v + steps + 1)
            lower, upper = (sum(mpmath.asinh(_delta(a, j, x)) for j in orders) for a in (0, 2))
            main = (steps**2 + 2 * v * steps) / (2 * x)
            closed = min(main * (1 + 1 / (2 * x)) + steps / (2 * x**2), main + steps / (2 * x))
            assert lower <= logs[v] - logs[v + steps] <= upper <= closed


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("order", [2, 3, 5, 8, 16])
@pytest.mark.parametrize("shift", [1, 2, 5, -1, -4])
def test_the_phi_bound_holds_for_every_integer_x(variance, order, shift):
    """Over the integers, not only the naturals that the paper's statement names."""
    logs, mu = _logs(variance), mpmath.mpf(variance)
    tail = min(
        ((2 * order - 1) * shift**2 / mpmath.mpf(4) + 1.5 * abs(shift)) / mu**2,
        1.5 * abs(shift) / mu,
    )
    bound = (order - 1) * (order * shift**2 / (2 * mu) + tail)
    reach = REACH - order * abs(shift)
    for x in range(-reach, reach + 1):
        phi = (
            order * logs[abs(x - shift)] - logs[abs(x - order * shift)] - (order - 1) * logs[abs(x)]
        )
        assert phi <= bound


def test_the_theorem_follows_from_the_phi_bound_at_its_fixed_point():
    """Shift 1, variance 2500, order 2: 4.0036e-4, against 4e-4 for the Gaussian."""
    mu = 2500.0
    value = 2 / (2 * mu) + min((3 + 6) / (4 * mu**2), 3 / (2 * mu))
    assert math.isclose(value, 4.0036e-4, rel_tol=1e-5)
