"""Rounds whose noise cancels over rounds, in one process: the same integers with masks and without.

Plans are for 12 clients in 3 groups; a round asks one group.
"""

import numpy as np
import pytest

import skellam as sk
from skellam.codec import Codec
from skellam.engines import correlated, local, two_servers
from skellam.engines.local import Round
from skellam.errors import DomainError, ProtocolError, ThresholdError
from skellam.plan import Plan

D, BAND = 300, (3, 2, 1)
WAYS = pytest.mark.parametrize("run", [correlated.unmasked, correlated.two_servers])


def plan(multiplier=2.0, **changes):
    settings = {
        "dimension": D,
        "clip": 1.0,
        "cohort": 4,
        "population": 12,
        "rounds": 9,
        "sampling": "cyclic",
        "bits": 20,
        "aggregation": "two-servers",
        "correlation": BAND,
    }
    return Plan(**{**settings, **changes}).with_noise(multiplier, delta=1e-3)


def update(number):
    return np.sin(number + np.arange(D)) / 20


def replay(number):
    return lambda context: sk.SeededEntropy(bytes(32), f"{number}/{context}")


def played(run, made, numbers=range(9), *, earlier=b"", entropy=replay):
    """Return the results of rounds ``numbers``."""
    results = []
    for number in numbers:
        members = tuple(range(number % 3, 12, 3))
        round_ = Round(number, bytes([number]) * 32, members)
        results.append(run(made, round_, update, earlier, entropy=entropy(number)))
        earlier = results[-1].later
    return results


@pytest.mark.parametrize("numbers", [range(9), (0, 1, 4, 5, 8), (2, 3, 7)])
@pytest.mark.parametrize("bits", [16, 20, 32])
def test_without_noise_both_ways_give_the_sum_of_every_round_bit_for_bit(bits, numbers):
    made = plan(0.0, noise="none", bits=bits)
    open_, safe = (
        played(run, made, numbers) for run in (correlated.unmasked, correlated.two_servers)
    )
    for number, one, other in zip(numbers, open_, safe, strict=True):
        assert np.array_equal(one.total.values, other.total.values)
        assert one.wrap == other.wrap
        assert one.survivors == other.survivors == tuple(range(number % 3, 12, 3))
        exact = sum(update(n) for n in one.survivors)
        assert np.allclose(one.total.values, exact, atol=4 * 20 / made.scale)


def test_with_the_noise_of_the_protocol_the_simulation_opens_the_same_integers(monkeypatch):
    """The two differ by the servers' noise alone: 10 deviations are exceeded once in 1e20."""
    made = plan()
    opened = []
    original = correlated.opened

    def noted(plan, codec, release):
        opened.append(release)
        return original(plan, codec, release)

    monkeypatch.setattr(correlated, "opened", noted)
    safe = played(correlated.two_servers, made)
    totals = iter([release.total.values for release in opened])

    def with_that_noise(codec, total, *, entropy):
        seen = next(totals)
        noise = (seen.astype(np.int64) - total.values + (1 << 19)) % (1 << 20) - (1 << 19)
        assert 0 < np.abs(noise).max() < 10 * np.sqrt(made.total_variance)
        return local.replace(total, values=seen, label=codec.final_label)

    monkeypatch.setattr(Codec, "add_central_noise", with_that_noise)
    open_ = played(correlated.unmasked, made)
    for one, other in zip(open_, safe, strict=True):
        assert np.array_equal(one.total.values, other.total.values)
        assert one.wrap == other.wrap


@WAYS
def test_the_same_bits_open_the_same_numbers_from_what_earlier_rounds_left(run):
    made = plan()
    whole = played(run, made)
    again = played(run, made, range(5, 9), earlier=whole[4].later)
    for one, other in zip(whole[5:], again, strict=True):
        assert np.array_equal(one.total.values, other.total.values)
        assert one.total.replayable


@WAYS
def test_secret_noise_cancels_in_the_sum_of_estimates(run):
    """Over nine rounds (3, 2, 1) leaves less noise in the sum than in its parts: 0.37 of it."""
    made = plan(8.0)
    results = played(run, made, entropy=lambda _: lambda __: sk.SystemEntropy())
    errors = np.array([r.total.values - sum(update(n) for n in r.survivors) for r in results])
    ratio = errors.sum(axis=0).var() / (errors**2).mean(axis=1).sum()
    # Of 300 coordinates the ratio has a relative deviation of 0.09; 0.7 is ten of them away.
    assert ratio < 0.7
    assert not results[0].total.replayable


@WAYS
def test_a_round_with_too_few_clients_leaves_what_was_there(run):
    made = plan(min_cohort=3)
    (first,) = played(run, made, [0])
    few = Round(1, bytes(32), (1, 4, 7, 10), dropouts=(4, 7))
    with pytest.raises(ThresholdError):
        run(made, few, update, first.later, entropy=replay(1))
    assert len(played(run, made, [2], earlier=first.later)) == 1


@WAYS
def test_it_is_spent_before_anything_opens(run):
    made = plan()

    def spend():
        raise InterruptedError

    with pytest.raises(InterruptedError):
        run(made, Round(0, bytes(32), (0, 3)), update, b"", entropy=replay(0), spend=spend)


def test_clients_and_helper_keep_rounds_of_a_client_apart_whatever_the_caller_does():
    made = plan()
    first = played(correlated.two_servers, made, [0])[0]
    again = Round(1, bytes(32), (0, 3, 6, 9))
    with pytest.raises(ProtocolError, match="too soon"):
        correlated.two_servers(made, again, update, first.later, entropy=replay(1))


def test_what_one_way_left_is_nothing_to_the_other():
    made = plan()
    first = played(correlated.unmasked, made, [0])[0]
    with pytest.raises(ProtocolError):
        played(correlated.two_servers, made, [1], earlier=first.later)
    with pytest.raises(ProtocolError):
        played(correlated.unmasked, made, [1], earlier=first.later[:-1])


@pytest.mark.parametrize("run", [local.unmasked, two_servers.two_servers])
def test_rounds_of_a_band_cannot_be_run_one_by_one(run):
    with pytest.raises(DomainError, match="cancels over rounds"):
        run(plan(), Round(0, bytes(32), (0, 3, 6, 9)), update, entropy=replay(0))


def test_constants_have_the_band_and_a_bound_that_prices_one_participation():
    made = plan()
    agreed = two_servers.constants(made, run_id=bytes(32))
    assert (agreed.band, agreed.separation, agreed.participations) == (BAND, 3, 3)
    expected = made.effective_multiplier / np.sqrt(made.participations)
    assert agreed.noise_multiplier == pytest.approx(expected, rel=1e-6)
