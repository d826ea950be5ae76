import hashlib
import itertools
import json
from bisect import bisect_right
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.scripted_bits import FULL, entropy_for, steps
from skellam.entropy import SeededEntropy
from skellam.noise import DiscreteGaussianSampler, DiscreteLaplaceSampler, SkellamSampler
from skellam.noise.integer import draw_into

GOLDEN = json.loads((Path(__file__).parents[1] / "vectors/skellam_draws.json").read_text())
VARIANCES = [0.1, 0.25, 0.3, 1, 1.1, 3, 3.3, 99.9, 100, 9999.9, 1e4, 1e6, 1e6 + 0.1]
LAWS = [
    *(SkellamSampler(v) for v in VARIANCES),
    DiscreteGaussianSampler(0.3),
    DiscreteGaussianSampler(99.9),
    DiscreteLaplaceSampler(0.1),
    DiscreteLaplaceSampler(99.9),
]


@pytest.fixture(params=["numpy", "numba"])
def backend(request, monkeypatch):
    monkeypatch.setenv("SKELLAM_KERNELS", request.param)


def draw_scripted(law, uniforms):
    table = law._table
    drawn = []
    for start in range(0, len(uniforms), 1 << 16):
        block = uniforms[start : start + (1 << 16)]
        entropy = entropy_for(block, table)
        out = np.empty(len(block), dtype=law.dtype)
        draw_into(out, table, entropy=entropy)
        assert not entropy.script
        drawn += out.tolist()
    return drawn


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_every_step_of_the_cdf_and_its_neighbours_agree_with_bisect(law):
    C = steps(law._table)
    around = {0, 1, FULL - 1} | {u for c in C for u in (c - 1, c, c + 1)}
    uniforms = sorted(u for u in around if 0 <= u < FULL)
    assert draw_scripted(law, uniforms) == [bisect_right(C, u) - law.bound for u in uniforms]


@given(st.lists(st.integers(0, FULL - 1), min_size=1), st.sampled_from(LAWS))
def test_every_uniform_agrees_with_bisect(uniforms, law):
    C = steps(law._table)
    assert draw_scripted(law, uniforms) == [bisect_right(C, u) - law.bound for u in uniforms]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_steps_rise_and_mirror_each_other(law):
    C = steps(law._table)
    assert all(a <= b for a, b in itertools.pairwise(C))
    assert [FULL - c for c in reversed(C)] == C
    assert C[0] > 0


@pytest.mark.parametrize("law", [*LAWS, SkellamSampler(1e8)], ids=str)
@pytest.mark.parametrize("size", [0, 1, 1000, 300_000])
def test_both_back_ends_draw_the_same_noise_from_the_same_entropy(law, size, monkeypatch):
    drawn = []
    for name in ("numpy", "numba"):
        monkeypatch.setenv("SKELLAM_KERNELS", name)
        drawn.append(law.draw(size, entropy=SeededEntropy(bytes(32), "noise")).values)
    np.testing.assert_array_equal(*drawn, strict=True)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("row", GOLDEN["draws"], ids=lambda row: f"variance {row['variance']:g}")
def test_the_draws_of_a_seed_do_not_change_from_version_to_version(row):
    drawn = SkellamSampler(row["variance"]).draw(
        row["size"], entropy=SeededEntropy(bytes(32), "golden")
    )
    assert drawn.values[:8].tolist() == row["first"]
    octets = drawn.values.astype("<i4").tobytes()
    assert hashlib.sha256(octets).hexdigest() == row["sha256"]
