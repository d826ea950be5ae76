"""Result B': blocks of coordinates, against direct convolutions and exact sums."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from oracles import exact_profile, rounded_release
from skellam.accounting.curves import GdpCurve, Slack
from skellam.accounting.gdp import certificate_of_rounding, kappa, steepest
from skellam.accounting.laws import skellam_law
from skellam.errors import CertificateError

BLOCKS = (1, 16, 64, 256, 1024)
PRINTED = {
    10.0: (1.403, 1.108, 1.055, 1.029, 1.016),
    31.5: (1.134, 1.034, 1.017, 1.009, 1.005),
    42.0: (1.101, 1.025, 1.013, 1.0065, 1.004),
}
"""kappa_B times the deviation at tail 1e-17, as first measured, at y = 0.01."""
CELLS = [(deviation, block) for deviation in PRINTED for block in BLOCKS]


def _printed(deviation, block):
    return PRINTED[deviation][BLOCKS.index(block)]


@pytest.mark.parametrize(("deviation", "block"), CELLS)
def test_kappa_is_the_limit_of_the_printed_table_from_above(deviation, block):
    """The table was taken at y = 0.01; the supremum is at y -> 0, higher by up to 0.0014 in blocks
    and by 0.008 for single coordinates.
    """
    found = kappa(deviation**2, tail=1e-17, block=block, coordinate_bound=1.0) * deviation
    over = 0.008 if block == 1 else 0.0015
    assert _printed(deviation, block) - 6e-4 <= found <= _printed(deviation, block) + over


@pytest.mark.parametrize(("deviation", "block"), CELLS)
def test_at_y_0_01_a_direct_convolution_gives_the_whole_printed_table(deviation, block):
    points = 100 if block <= 64 else 25
    found = rounded_release.block_slope(deviation**2, block, 0.01, 1e-17, points) * deviation
    assert found == pytest.approx(_printed(deviation, block), abs=1e-3)
    assert found <= kappa(deviation**2, tail=1e-17, block=block, coordinate_bound=1.0) * deviation


@pytest.mark.parametrize("variance", [1.0, 12.0, 100.0])
@pytest.mark.parametrize("block", [2, 16])
def test_no_value_has_a_steeper_block_than_kappa(variance, block):
    bound = kappa(variance, tail=1e-12, block=block, coordinate_bound=3.0)
    for y in (0.003, 0.03, 0.2, 0.5, 0.8, 1.0, 1.4, 2.5):
        assert rounded_release.block_slope(variance, block, y, 1e-12) <= bound


@pytest.mark.parametrize("variance", [1.0, 100.0])
def test_for_small_values_kappa_is_tight(variance):
    found = rounded_release.block_slope(variance, 16, 1e-3, 1e-12, points=200)
    assert found == pytest.approx(
        kappa(variance, tail=1e-12, block=16, coordinate_bound=1.0), rel=4e-3
    )


@pytest.mark.parametrize("variance", [0.3, 5.0, 1764.0])
@pytest.mark.parametrize("block", [4, 64, 1024])
@pytest.mark.parametrize("cell", [(0.0, 1 / 128), (0.1, 0.3)])
def test_a_finer_grid_never_gives_a_larger_bound(variance, block, cell):
    law = skellam_law(variance)
    rough, fine, finer = (steepest(law, 1e-15, block, cell, step=s) for s in (0.16, 0.08, 0.04))
    assert finer <= fine * (1 + 1e-9) <= rough * (1 + 2e-9)


def test_narrower_cells_never_give_a_larger_bound():
    law = skellam_law(25.0)
    wide = steepest(law, 1e-15, 64, (0.1, 0.4))
    parts = [steepest(law, 1e-15, 64, cell) for cell in ((0.1, 0.2), (0.2, 0.4))]
    assert max(parts) <= wide * (1 + 1e-3)


@pytest.mark.parametrize("deviation", [5.0, 42.0, 682.0])
def test_larger_blocks_have_a_smaller_kappa(deviation):
    found = [kappa(deviation**2, tail=1e-17, block=b, coordinate_bound=0.7) for b in BLOCKS]
    assert found == sorted(found, reverse=True)
    assert found[-1] * deviation > 1


@settings(max_examples=12)
@given(
    st.floats(-2, 0.6).map(math.exp),
    st.lists(st.floats(-1.6, 1.6), min_size=4, max_size=4).filter(lambda v: math.hypot(*v) > 0.01),
    st.sampled_from([2, 4]),
    st.sampled_from([1e-4, 1e-7, 1e-12]),
)
def test_in_four_dimensions_no_real_vector_costs_more(variance, vector, block, tail):
    moved, plain = rounded_release.pair(variance, vector, 9 + int(4 * math.sqrt(variance)))
    eta, rare = certificate_of_rounding(
        variance,
        l2=math.hypot(*vector),
        dimension=4,
        tail=tail,
        block=block,
        coordinate_bound=max(map(abs, vector)),
    )
    curve = GdpCurve(eta, Slack(rare=rare))
    for epsilon in (0.0, 0.3, 1.0, 3.0, 8.0):
        for pair in ((moved, plain), (plain, moved)):
            assert exact_profile.profile(*pair, epsilon) <= curve.delta(epsilon) + 1e-14


@pytest.mark.parametrize("tail", [1e-3, 1e-5])
@pytest.mark.parametrize("variance", [0.2, 1.0, 2.5])
def test_equal_values_in_four_dimensions_stay_under_one_block(tail, variance):
    """No sorting and no inflation by the largest value here: a block alone, close to its bound."""
    for y in (0.05, 0.5, 1.0, 1.3):
        moved, plain = rounded_release.pair(variance, [y, -y, y, -y], 10)
        eta = kappa(variance, tail=tail, block=4, coordinate_bound=y) * 2 * y
        rare = 2 * norm.cdf(norm.ppf(tail) + eta)
        curve = GdpCurve(eta, Slack(rare=rare))
        for epsilon in np.linspace(0, 6, 13):
            for pair in ((moved, plain), (plain, moved)):
                exact = exact_profile.profile(*pair, float(epsilon))
                assert exact <= curve.delta(float(epsilon)) + 1e-14


@pytest.mark.parametrize("tail", [1e-40, 1e-160, 1e-290])
def test_the_faintest_tails_are_certified_too(tail):
    near = kappa(100.0, tail=1e-20, block=64, coordinate_bound=1.0)
    assert near < kappa(100.0, tail=tail, block=64, coordinate_bound=1.0) < kappa(100.0, tail=tail)


def test_noise_so_small_that_no_bound_is_of_use_is_refused_at_once():
    """Its scores spread over millions of points of the grid: seconds for a bound of no use."""
    assert kappa(1e-3, tail=5e-11, block=64, coordinate_bound=2e-4) < 200
    with pytest.raises(CertificateError, match="too wide for a table"):
        kappa(1e-10, tail=5e-11, block=64, coordinate_bound=2e-4)
