"""Sums are exact: with the noise off, bit for bit the plain sum modulo a power of two."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.two_servers import begin, centred, entropy, plain_sum, vectors
from skellam.twoserver import simulation


def opened(n, length, bits, round_=0):
    run = begin(n, length=length, bits=bits, variance=0.0, min_cohort=1)
    given = vectors(run, round_)
    run = simulation.run_round(run, round_, given, entropy=entropy("sums"))
    return run.release, plain_sum(given, bits)


@pytest.mark.parametrize("bits", range(4, 33))
def test_the_sum_of_three_is_exact_at_every_width(bits):
    release, expected = opened(3, 5, bits)
    assert np.array_equal(release.total.values, expected)
    assert np.array_equal(release.estimate.values, centred(expected, bits))


@pytest.mark.parametrize(
    ("n", "length", "bits"),
    [
        (1, 1, 2),
        (3, 1, 4),
        (3, 1, 32),
        (100, 1 << 14, 12),
        (100, 1 << 14, 21),
        (1000, 64, 8),
        pytest.param(10, 1 << 20, 16, marks=pytest.mark.slow),
        pytest.param(10, 1 << 20, 31, marks=pytest.mark.slow),
    ],
)
def test_the_sum_is_exact_whatever_the_size(n, length, bits):
    release, expected = opened(n, length, bits)
    assert np.array_equal(release.total.values, expected)
    assert len(release.participants) == n
    assert release.total.bits == bits


@settings(max_examples=25)
@given(
    n=st.integers(1, 5),
    length=st.integers(1, 40),
    bits=st.integers(2, 32),
    round_=st.integers(0, 7),
)
def test_any_small_round_is_exact(n, length, bits, round_):
    release, expected = opened(n, length, bits, round_)
    assert np.array_equal(release.total.values, expected)


def test_the_release_carries_label_round_and_mark():
    run = begin(3)
    run = simulation.run_round(run, 2, vectors(run, 2), entropy=entropy("marks"))
    release = run.release
    assert release.round_ == 2
    assert release.total.label == b"the plan's label"
    assert release.total.replayable
    assert release.estimate.replayable
    assert release.participants.tolist() == list(run.clients)
    assert release.rejections == ()


def test_what_is_drawn_from_the_system_is_not_marked_replayable():
    from oracles.two_servers import constants
    from skellam.entropy import SystemEntropy
    from skellam.protocol.identity import Identity

    source = SystemEntropy()
    members = [Identity.generate(i, entropy=source) for i in range(2)]
    run = simulation.begin(constants(), members, entropy=source)
    run = simulation.run_round(run, 0, vectors(run, 0), entropy=source)
    assert not run.release.total.replayable


def test_nothing_is_opened_before_the_first_round():
    from skellam.errors import ProtocolError

    run = begin(2)
    assert run.leader.release is None
    with pytest.raises(ProtocolError, match="nothing was opened"):
        run.release  # noqa: B018
