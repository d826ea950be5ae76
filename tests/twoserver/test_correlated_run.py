"""Sixty correlated rounds of 65,536 coordinates through the protocol, at the planned size."""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats
from scipy.signal import lfilter

from oracles.two_servers import begin, centred, entropy, plain_sum, vectors
from skellam import bands
from skellam.plan import correlation
from skellam.twoserver import simulation
from skellam.vectors import Residues, residue_dtype

ROUNDS, LENGTH, CLIENTS = 60, 1 << 16, 2
VARIANCE = 900.0
SIGNAL = 30.0
"""Deviation of a coordinate of one client's vector."""
RUN = correlation.CorrelatedRun(rounds=ROUNDS, participations=5, separation=13)


class Run(NamedTuple):
    band: tuple
    bits: int
    errors: np.ndarray
    """Estimates minus sums, a row for each round."""
    noise: np.ndarray
    """Opened sums minus the band's sums, centred: the noise of both servers."""
    wraps: int


def played(band, bits, rounds=ROUNDS):
    run = begin(
        CLIENTS,
        band=band,
        variance=VARIANCE,
        bits=bits,
        length=LENGTH,
        rounds=ROUNDS,
        participations=ROUNDS,
        context="sixty rounds",
    )

    def signal(constants, seed):
        values = np.rint(np.random.default_rng(seed).normal(0, SIGNAL, constants.length))
        wrapped = values.astype(np.int64) % (1 << bits)
        return Residues(wrapped.astype(residue_dtype(bits)), bits, label=b"the plan's label")

    errors, noise = (np.empty((rounds, LENGTH)) for _ in range(2))
    sums = {}
    for t in range(rounds):
        given = vectors(run, t, make=signal)
        run = simulation.run_round(run, t, given, entropy=entropy(f"sixty/{t}"))
        sums[t] = centred(plain_sum(given, bits), bits)
        expected = sum(c * sums.get(t - j, 0) for j, c in enumerate(band))
        noise[t] = centred(run.release.total.values.astype(np.int64) - expected, bits)
        errors[t] = run.release.estimate.values - sums[t]
    ideal = np.array([bands.responses(band, column) for column in noise.T[:, :rounds]]).T
    wrong = np.abs(errors - ideal) > 1e-6
    return Run(band, bits, errors, noise, int(wrong.any(axis=0).sum()))


def planned():
    band = correlation.best_band(RUN).band
    bits = correlation.ring_bits(
        band,
        rounds=ROUNDS,
        coordinates=LENGTH,
        signal_variance=CLIENTS * SIGNAL**2,
        noise_variance=2 * VARIANCE,
    )
    return band, bits


@pytest.fixture(scope="module")
def run():
    return played(*planned())


def test_nothing_wraps_at_the_planned_size(run):
    """By chance at most one run in a thousand has a wrap: the planner's own bound."""
    assert len(run.band) == 13
    assert run.wraps == 0


def test_a_ring_of_two_bits_less_wraps():
    band, bits = planned()
    assert played(band, bits - 2, rounds=8).wraps > 100


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_predicted_error_is_the_measured_one(run, momentum):
    """Within 3 % over all rounds; the mean over coordinates has a deviation of at most 0.55 %."""
    models = lfilter([1.0], [1.0, -(1 + momentum), momentum], run.errors, axis=0)
    measured = float((models**2).mean())
    predicted = 2 * VARIANCE * bands.model_variances(run.band, rounds=ROUNDS, momentum=momentum)
    assert measured == pytest.approx(predicted.mean(), rel=0.03)
    asked = replace(RUN, momentum=momentum)
    independent = VARIANCE * bands.model_variances((1,), rounds=ROUNDS, momentum=momentum).mean()
    noisier = RUN.sensitivity(run.band) / RUN.sensitivity((1,))
    gain = math.sqrt(independent / measured) / noisier
    assert gain == pytest.approx(correlation.chosen(asked, run.band).gain, rel=0.015)


def test_errors_have_the_covariance_of_the_inverse_band_over_all_rounds(run):
    """All 1,830 entries of sixty rounds; false alarm at most 1e-5, over seeds.

    e = C^-1 Z with Z of variance 2V: Cov(e_s, e_t) = 2V sum_i r_{s-i} r_{t-i}. An entry's estimate
    is normal, its variance (C_ss C_tt + C_st^2) / d, and 1 + 1/(2V) times that for the excess.
    """
    response = bands.responses(run.band, np.eye(1, ROUNDS)[0])
    inverse = sum(response[i] * np.eye(ROUNDS, k=-i) for i in range(ROUNDS))
    expected = 2 * VARIANCE * inverse @ inverse.T
    found = run.errors @ run.errors.T / LENGTH
    scale = np.outer(np.diag(expected), np.diag(expected))
    spread = np.sqrt((scale + expected**2) / LENGTH) * (1 + 1 / VARIANCE)
    z = stats.norm.isf(1e-5 / (ROUNDS * (ROUNDS + 1)))
    assert (np.abs(found - expected) < z * spread).all()
    uncorrelated = np.diag(np.diag(expected))
    assert (np.abs(found - uncorrelated) > 10 * z * spread).any()


def test_the_noise_itself_is_independent_over_rounds(run):
    """All pairs of rounds; false alarm at most 1e-5, over seeds."""
    correlations = np.corrcoef(run.noise)[np.triu_indices(ROUNDS, 1)] * math.sqrt(LENGTH)
    assert np.abs(correlations).max() < 1.02 * stats.norm.isf(1e-5 / 2 / correlations.size)
    assert run.noise.var() == pytest.approx(2 * VARIANCE, rel=0.01)
