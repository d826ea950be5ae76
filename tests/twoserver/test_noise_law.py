"""The law of what is opened: the exact sum plus Sk(V) or Sk(2V), independent over rounds."""

import numpy as np
import pytest
from scipy import stats

from oracles.two_servers import INPUT, begin, centred, entropy, plain_sum, play, vectors
from skellam.noise import SkellamSampler
from skellam.twoserver import ring, simulation
from skellam.twoserver.messages import Answer, Job, seed_info

FALSE_ALARM = 1e-6
LENGTH = 1 << 16


def noise_of(run, round_):
    given = vectors(run, round_)
    run = simulation.run_round(run, round_, given, entropy=entropy(f"law/{round_}"))
    bits = run.leader.constants.bits
    difference = run.release.total.values.astype(np.int64) - plain_sum(given, bits)
    return run, centred(difference, bits)


def p_value(values, variance):
    """Return the chi-square p-value of ``values`` against Sk(variance), cells of 25 and more."""
    law = SkellamSampler(variance)
    k = np.arange(-law.bound, law.bound + 1)
    expected = law.pmf(k) * len(values)
    inner = k[expected >= 25]
    low, high = inner[0], inner[-1]
    cells = np.clip(k, low, high) - low
    expected = np.bincount(cells, weights=expected)
    found = np.bincount(np.clip(values, low, high) - low, minlength=len(expected))
    return stats.chisquare(found, expected * found.sum() / expected.sum()).pvalue


@pytest.mark.parametrize("variance", [0.7, 20.0, 1500.0])
@pytest.mark.parametrize(("noise_by", "servers"), [("helper", 1), ("both", 2)])
def test_the_noise_is_skellam_with_the_agreed_variance(variance, noise_by, servers):
    """False alarm at most 3e-6 a case, over seeds; half or twice the variance is refused."""
    run = begin(3, length=LENGTH, bits=20, variance=variance, noise_by=noise_by, context="law")
    run, first = noise_of(run, 0)
    run, second = noise_of(run, 3)
    assert p_value(first, servers * variance) > FALSE_ALARM
    assert p_value(second, servers * variance) > FALSE_ALARM
    correlation = np.corrcoef(first, second)[0, 1] * np.sqrt(LENGTH)
    assert abs(correlation) < stats.norm.isf(FALSE_ALARM / 2)
    assert p_value(first, (3 - servers) * variance) < 1e-12


def test_one_hidden_vector_has_one_noise_and_another_one_an_independent_noise():
    """False alarm at most 1e-6, over seeds."""
    constants = begin(3, length=LENGTH, variance=50.0).leader.constants
    bound = constants.round_digest(0, bytes(32))
    one = ring.zeros(constants)
    other = one.copy()
    other[17] = 1
    a, again = (centred(ring.noise(b"k" * 32, one, bound, constants), 12) for _ in range(2))
    b = centred(ring.noise(b"k" * 32, other, bound, constants), 12)
    assert np.array_equal(a, again)
    assert abs(np.corrcoef(a, b)[0, 1]) * np.sqrt(LENGTH) < stats.norm.isf(FALSE_ALARM / 2)
    elsewhere = ring.noise(b"k" * 32, one, constants.round_digest(1, bytes(32)), constants)
    other_key = ring.noise(b"K" * 32, one, bound, constants)
    assert not np.array_equal(a, centred(elsewhere, 12))
    assert not np.array_equal(a, centred(other_key, 12))


@pytest.mark.parametrize(("noise_by", "known"), [("helper", True), ("both", False)])
def test_the_helper_can_take_off_its_own_noise_alone(noise_by, known):
    run = begin(3, noise_by=noise_by, variance=9.0, length=400)
    given = vectors(run, 0)
    played = play(run, 0, given)
    constants, bound = run.leader.constants, run.leader.constants.round_digest(0, INPUT)
    key = run.helper.secrets.key
    keys = [
        ring.mask_key(
            key.unseal(row["sealed"].tobytes(), seed_info(bound, int(row["sender"]))),
            bound,
            int(row["sender"]),
        )
        for row in Job.decode(played.job).entries
    ]
    masks = ring.masked(ring.zeros(constants), keys, constants)
    noise = ring.noise(run.helper.secrets.noise, masks, bound, constants)
    answer = ring.from_wire(Answer.decode(played.answer().reply).vector, constants)
    assert np.array_equal(answer, ring.subtract(masks, noise, constants))
    seen = ring.subtract(played.after().release.total.values, noise, constants)
    assert np.array_equal(seen, plain_sum(given, constants.bits)) == known
