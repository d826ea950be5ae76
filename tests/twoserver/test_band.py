"""Sums over a band of rounds: Y_t = sum_j c_j X_{t-j} + Z_t, estimates of X_t, and forgetting."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from oracles.two_servers import banded, begin, centred, entropy, plain_sum, play, small, vectors
from skellam.errors import PhaseError, TamperError
from skellam.twoserver import helper, ring, simulation

BANDS = [(1,), (2, 1), (3, 2, 1), (4, 3, 2, 2, 1), (1, 0), (5, 1, 0, 0)]


def forget(run, forgetting):
    """Return the run after both servers have dealt with ``forgetting``."""
    message = forgetting.message(setting=run.leader_setting)
    answered = helper.handle(run.helper, message, setting=run.helper_setting)
    idle = forgetting.done(answered.reply, setting=run.leader_setting)
    return replace(run, leader=idle, helper=answered.state)


@pytest.mark.parametrize("band", BANDS)
@pytest.mark.parametrize("rounds", [range(8), (0, 1, 3, 4, 7), (2, 5, 6)])
def test_each_round_opens_the_weighted_sum_of_the_last_rounds(band, rounds):
    run = begin(3, band=band, variance=0.0, participations=8)
    sums = {}
    for t in rounds:
        given = vectors(run, t)
        run = simulation.run_round(run, t, given, entropy=entropy(f"band/{t}"))
        sums[t] = plain_sum(given, 12)
        assert np.array_equal(run.release.total.values, banded(band, sums, t, 12))


@settings(max_examples=20)
@given(
    tail=st.lists(st.integers(0, 9), max_size=4),
    bits=st.integers(10, 32),
    rounds=st.sets(st.integers(0, 7), min_size=2),
)
def test_without_noise_estimates_are_the_sums_for_any_band_and_any_skipped_rounds(
    tail, bits, rounds
):
    tail = sorted(tail, reverse=True)
    head = max([1, *(c + 1 for c in tail)])
    band = (head, *tail)
    divisor = np.gcd.reduce(band)
    band = tuple(int(c // divisor) for c in band)
    run = begin(2, band=band, variance=0.0, bits=bits, participations=8)
    for t in sorted(rounds):
        given = vectors(run, t, make=small)
        run = simulation.run_round(run, t, given, entropy=entropy(f"any/{t}"))
        expected = centred(plain_sum(given, bits), bits)
        assert np.allclose(run.release.estimate.values, expected, atol=1e-9)


def test_estimates_hold_although_the_running_sum_wraps_many_times():
    """Each c_0 X_t fits into ten bits; the sums over the band do not."""
    run = begin(2, band=(3, 2, 2, 2), variance=0.0, bits=10, participations=8)
    for t in range(8):
        given = {n: small(run.leader.constants, [t, n], bound=80) for n in run.clients}
        run = simulation.run_round(run, t, given, entropy=entropy(f"wrap/{t}"))
        assert np.allclose(run.release.estimate.values, centred(plain_sum(given, 10), 10))


def impulse_response(band, rounds):
    r = np.zeros(rounds)
    r[0] = 1 / band[0]
    for t in range(1, rounds):
        r[t] = -sum(band[j] * r[t - j] for j in range(1, min(len(band), t + 1))) / band[0]
    return r


@pytest.mark.parametrize(("noise_by", "servers"), [("helper", 1), ("both", 2)])
@pytest.mark.parametrize("band", [(2, 1), (4, 3, 2, 2, 1)])
def test_the_errors_of_estimates_have_the_covariance_of_the_inverse_band(band, noise_by, servers):
    """Every entry of the covariance over six rounds; false alarm at most 1e-5 a case, over seeds.

    e = C^-1 Z with Z of variance V_tot, so Cov(e_s, e_t) = V_tot sum_i r_{s-i} r_{t-i}. Excess
    kurtosis 1/V widens the bounds by less than the factor allowed.
    """
    rounds, length, variance = 6, 1 << 14, 40.0
    run = begin(
        2,
        band=band,
        variance=variance,
        noise_by=noise_by,
        bits=16,
        length=length,
        rounds=rounds,
        participations=rounds,
        context=f"covariance/{band}/{noise_by}",
    )
    errors = np.empty((rounds, length))
    for t in range(rounds):
        given = vectors(run, t, make=small)
        run = simulation.run_round(run, t, given, entropy=entropy(f"covariance/{t}"))
        errors[t] = run.release.estimate.values - centred(plain_sum(given, 16), 16)
    r = impulse_response(band, rounds)
    inverse = np.array(
        [[r[t - i] if i <= t else 0.0 for i in range(rounds)] for t in range(rounds)]
    )
    expected = servers * variance * inverse @ inverse.T
    found = errors @ errors.T / length
    spread = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / length)
    tests = rounds * (rounds + 1) // 2
    z = 1.02 * stats.norm.isf(1e-5 / tests / 2)
    assert (np.abs(found - expected) < z * spread).all()
    assert (np.abs(found - expected / servers * (3 - servers)) > z * spread).any()


def test_noise_cancels_over_rounds_in_the_sum_of_estimates():
    """The last prefix sum has less noise than with independent noise of the same size."""
    rounds, length = 8, 1 << 12
    prefix = {}
    for band in [(1,), (8, 4, 3, 3, 2, 2, 2, 2)]:
        run = begin(2, band=band, variance=64.0, bits=24, length=length, participations=8)
        total = np.zeros(length)
        for t in range(rounds):
            given = vectors(run, t, make=small)
            run = simulation.run_round(run, t, given, entropy=entropy(f"prefix/{t}"))
            total += run.release.estimate.values - centred(plain_sum(given, 24), 24)
        prefix[band] = float(np.std(total))
    independent, correlated = prefix.values()
    a = np.cumsum(impulse_response(band, rounds))
    assert correlated == pytest.approx(np.sqrt(128 * np.sum(a**2)), rel=0.06)
    assert independent == pytest.approx(np.sqrt(128 * rounds), rel=0.06)


def test_a_forgotten_round_is_empty_on_both_sides():
    band = (3, 2, 1)
    run = begin(3, band=band, variance=0.0, participations=8)
    sums = {}
    for t in (0, 1):
        given = vectors(run, t, make=small)
        run = simulation.run_round(run, t, given, entropy=entropy(f"forget/{t}"))
        sums[t] = plain_sum(given, 12)
    run = forget(run, run.leader.forget(1))
    assert run.leader.release is None
    assert ring.rounds(run.helper.window) == ring.rounds(run.leader.run.sums) == (0,)
    del sums[1]
    for t in (2, 3, 4):
        given = vectors(run, t, make=small)
        run = simulation.run_round(run, t, given, entropy=entropy(f"forget/{t}"))
        sums[t] = plain_sum(given, 12)
        assert np.array_equal(run.release.total.values, banded(band, sums, t, 12))
        assert np.allclose(run.release.estimate.values, centred(sums[t], 12))


def test_a_spoiled_round_spoils_those_after_it_until_it_is_forgotten():
    """A wrap of c_0 X_0 stays in its coordinate; about half of them wrap here."""
    run = begin(3, band=(2, 1), variance=0.0, participations=8, length=200)
    played = play(run, 0, vectors(run, 0))
    run = replace(played.after(), clients=played.states)
    for forgotten in (False, True):
        after = forget(run, run.leader.forget(0)) if forgotten else run
        given = vectors(after, 1, make=small)
        after = simulation.run_round(after, 1, given, entropy=entropy("spoiled"))
        wrong = after.release.estimate.values != centred(plain_sum(given, 12), 12)
        assert wrong.sum() == 0 if forgotten else 60 < wrong.sum() < 140


def test_an_abandoned_round_leaves_both_sides_alike_whether_or_not_it_was_answered():
    band = (3, 2)
    for answered in (False, True):
        run = begin(3, band=band, variance=0.0, participations=8)
        played = play(run, 0, vectors(run, 0, make=small))
        if answered:
            run = replace(run, helper=played.answer().state)
        run = replace(run, clients=played.states)
        run = forget(run, played.waiting.abandon())
        assert run.leader.next_round == run.helper.next_round == 1
        given = vectors(run, 1, make=small)
        run = simulation.run_round(run, 1, given, entropy=entropy("abandoned"))
        assert np.array_equal(run.release.total.values, 3 * plain_sum(given, 12) % 4096)


def test_a_round_given_up_before_its_job_is_empty_and_its_clients_count_as_having_taken_part():
    run = begin(3, band=(3, 2), variance=0.0, separation=2)
    played = play(run, 0, vectors(run, 0, make=small))
    idle = played.collecting.add(played.reports.values(), setting=run.leader_setting).skip()
    assert idle.next_round == 1
    objection = idle.run.participations.objection(100, 1, run.leader.constants)
    assert "too soon" in objection


def test_a_leader_that_lost_an_answer_and_its_job_agrees_with_the_helper_again():
    """The leader restores the state before the round; the helper has answered it."""
    band = (3, 2, 1)
    run = begin(3, band=band, variance=0.0, participations=8)
    given = vectors(run, 0, make=small)
    run = simulation.run_round(run, 0, given, entropy=entropy("lost/0"))
    sums = {0: plain_sum(given, 12)}
    ahead = simulation.run_round(run, 1, vectors(run, 1), entropy=entropy("lost/1"))
    run = replace(run, helper=ahead.helper, clients=ahead.clients)
    with pytest.raises(PhaseError, match="round 1 is closed"):
        play(
            replace(run, clients=dict.fromkeys(run.clients, type(run.clients[100])())), 1, given
        ).answer()
    with pytest.raises(TamperError, match="an answer was lost"):
        play(run, 2, vectors(run, 2)).answer()
    run = forget(run, run.leader.forget())
    assert run.leader.next_round == 2
    given = vectors(run, 2, make=small)
    run = simulation.run_round(run, 2, given, entropy=entropy("lost/2"))
    sums[2] = plain_sum(given, 12)
    assert np.array_equal(run.release.total.values, banded(band, sums, 2, 12))
    assert np.allclose(run.release.estimate.values, centred(sums[2], 12))


def test_a_closed_round_does_not_begin_again():
    run = begin(3)
    run = simulation.run_round(run, 3, vectors(run, 3), entropy=entropy("closed"))
    for t in (0, 3):
        with pytest.raises(PhaseError, match="rounds from 4 on"):
            run.leader.begin(t, bytes(32))
