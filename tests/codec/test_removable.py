"""Whole shares: what a client draws from its noise seed, and what opening the seed takes away."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import codec_specs
from skellam import SeededEntropy, SystemEntropy
from skellam.codec import Codec, DiscreteGaussianShares, NoNoise, SkellamShares
from skellam.codec.arithmetic import centred
from skellam.errors import DomainError, ShapeError, ThresholdError

DIMENSION = (1 << 16) + 100
"""More than one chunk, so that noise must be drawn again across a border."""
NOISES = [
    SkellamShares(1000.0, 10, removable=True),
    DiscreteGaussianShares(5.0, 10, removable=True),
]


def codec_of(noise, bits=16, **changes):
    changes = {"dimension": DIMENSION, "padded_dim": 33 << 11} | changes
    return codec_specs.codec_of(noise=noise, bits=bits, **changes)


def small(noise, **changes):
    return codec_of(noise, dimension=1000, padded_dim=1024, **changes)


def seed(number):
    return number.to_bytes(32, "big")


@pytest.mark.parametrize("bits", [12, 16, 20])
@pytest.mark.parametrize("noise", NOISES, ids=["Skellam", "Gaussian"])
def test_removing_a_seed_leaves_the_message_without_noise(noise, bits):
    codec = codec_of(noise, bits)
    x = np.linspace(-1, 1, DIMENSION)
    own, again = (SeededEntropy(bytes(32), "own") for _ in range(2))
    message = codec.encode(x, entropy=own, noise_seed=seed(1))
    bare = codec_of(NoNoise(), bits).encode(x, entropy=again)
    assert np.any(message.values != bare.values)
    np.testing.assert_array_equal(codec.remove(message, [seed(1)]).values, bare.values)


@pytest.mark.parametrize("noise", NOISES, ids=["Skellam", "Gaussian"])
def test_the_noise_comes_from_the_seed_alone_and_the_coins_from_the_entropy_alone(noise):
    codec = small(noise)
    x = np.linspace(-1, 1, 1000)
    coins = [SeededEntropy(bytes(32), name) for name in ("a", "a", "b")]
    one, same, other = (codec.encode(x, entropy=source, noise_seed=seed(1)) for source in coins)
    np.testing.assert_array_equal(one.values, same.values)
    moved = centred(codec.remove(one, [seed(1)])) - centred(codec.remove(other, [seed(1)]))
    assert set(np.unique(moved)) == {-1, 0, 1}
    zeros = [
        codec.encode_zeros(entropy=SystemEntropy(), noise_seed=seed(1)).values for _ in range(2)
    ]
    np.testing.assert_array_equal(*zeros)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 12), st.integers(0, 8), st.data())
def test_a_sum_is_decoded_exactly_when_its_surplus_is_removed(shares, surplus, data):
    noise = SkellamShares(30.0, shares, removable=True)
    codec = codec_of(noise, dimension=5, padded_dim=8, clip_count=noise)
    source = SeededEntropy(bytes(32), "clients")
    seeds = [seed(i) for i in range(shares + surplus)]
    total = codec.add(codec.encode_zeros(entropy=source, noise_seed=own) for own in seeds)
    assert total.messages == shares + surplus
    opened = data.draw(st.integers(0, len(seeds)))
    left = codec.remove(total, seeds[len(seeds) - opened :])
    kept = codec.add([codec.encode_zeros(entropy=source, noise_seed=s) for s in seeds])
    assert left.messages == len(seeds) - opened
    if opened == surplus:
        kept = codec.add(codec.encode_zeros(entropy=source, noise_seed=s) for s in seeds[:shares])
        np.testing.assert_array_equal(codec.decode(left).values, codec.decode(kept).values)
        assert codec.clip_count(left) == codec.clip_count(kept)
        codec.wrap(left)
        return
    error = ThresholdError if opened > surplus else DomainError
    for refused in (codec.decode, codec.clip_count, codec.wrap):
        with pytest.raises(error, match="noise of"):
            refused(left)


def test_noise_of_one_seed_differs_by_round_plan_and_between_vector_and_clip_count():
    noise = SkellamShares(4e6, 10, removable=True)
    codec = small(noise, clip_count=noise, bits=24)
    zero = codec.encode_zeros(entropy=SystemEntropy(), noise_seed=seed(1)).values
    others = [
        Codec(codec.spec, public_seed=bytes([1]) * 32),
        small(noise, clip_count=noise, bits=24, clip=2.0),
    ]
    for other in others:
        moved = other.encode_zeros(entropy=SystemEntropy(), noise_seed=seed(1)).values
        assert np.mean(moved == zero) < 0.05
        assert moved[-1] != zero[-1] or other.spec.clip != codec.spec.clip
    assert zero[0] != zero[-1]


def test_the_clip_count_of_a_removed_message_is_left_without_noise():
    noise = SkellamShares(4e6, 1, removable=True)
    codec = small(noise, clip_count=noise, bits=24)
    both = [
        codec.encode(x, entropy=SystemEntropy(), noise_seed=seed(i))
        for i, x in enumerate((np.zeros(1000), np.ones(1000), np.zeros(1000)))
    ]
    inside, beyond = codec.remove(both[0], [seed(0)]), codec.remove(both[1], [seed(1)])
    assert [centred(m)[-1] for m in (inside, beyond)] == [1, -1]


def test_seeds_are_fresh():
    codec = small(NOISES[0])
    seeds = [codec.new_noise_seed(entropy=SystemEntropy()) for _ in range(4)]
    assert len(set(seeds)) == 4
    assert {len(own) for own in seeds} == {32}


def test_the_mark_of_a_replay_follows_the_clients_own_entropy():
    codec = small(NOISES[0])
    own = codec.new_noise_seed(entropy=SystemEntropy())
    assert not codec.encode_zeros(entropy=SystemEntropy(), noise_seed=own).replayable
    seeded = SeededEntropy(bytes(32), "replay")
    assert codec.encode_zeros(entropy=seeded, noise_seed=own).replayable


def test_a_seed_is_required_where_noise_is_removable_and_refused_where_it_is_not():
    x = np.zeros(1000)
    removable = small(NOISES[0])
    for encode in (removable.encode, removable.encode_or_zeros):
        with pytest.raises(DomainError, match="noise_seed is required"):
            encode(x, entropy=SystemEntropy())
    with pytest.raises(ShapeError, match="32 bytes"):
        removable.encode(x, entropy=SystemEntropy(), noise_seed=b"short")
    for noise in (NoNoise(), SkellamShares(1000.0, 10)):
        codec = small(noise)
        with pytest.raises(DomainError, match="noise_seed must be None"):
            codec.encode_zeros(entropy=SystemEntropy(), noise_seed=seed(1))
        with pytest.raises(DomainError, match="cannot be removed"):
            codec.remove(codec.encode_zeros(entropy=SystemEntropy()), [seed(1)])


def test_short_repeated_and_surplus_seeds_are_refused():
    codec = small(NOISES[0])
    total = codec.encode_zeros(entropy=SystemEntropy(), noise_seed=seed(1))
    with pytest.raises(ShapeError, match="seed"):
        codec.remove(total, [b"short"])
    with pytest.raises(DomainError, match="twice"):
        codec.remove(total, [seed(1), seed(1)])
    with pytest.raises(DomainError, match="2 noise seeds"):
        codec.remove(total, [seed(1), seed(2)])


def test_a_message_without_noise_counts_as_none_and_leaves_no_client():
    for noise in (NOISES[0], SkellamShares(1000.0, 10)):
        codec = small(noise)
        bare = codec.without_noise().encode_zeros(entropy=SystemEntropy())
        assert bare.messages == 0
        assert not bare.values.any()
        with pytest.raises(DomainError, match="bytes carry one message"):
            codec.pack(bare)
        with pytest.raises(ThresholdError, match="noise of 0 messages"):
            codec.decode(codec.add([bare] * 20))


def test_shares_that_are_drawn_at_once_count_as_so_many_messages():
    codec = small(SkellamShares(1000.0, 10))
    bare = codec.without_noise().encode_zeros(entropy=SystemEntropy())
    total = codec.add_shares(bare, 10, entropy=SystemEntropy())
    assert total.messages == 10
    # Ten shares are 1000; 1024 squares average within 6 deviations of it but for 1e-8.
    assert abs(np.mean(centred(total).astype(float) ** 2) / 1000 - 1) < 6 * (2 / 1024) ** 0.5
    with pytest.raises(ThresholdError, match="noise of 9 messages"):
        codec.decode(codec.add_shares(bare, 9, entropy=SystemEntropy()))
    with pytest.raises(DomainError, match="no shares that add up"):
        small(DiscreteGaussianShares(5.0, 10)).add_shares(
            small(DiscreteGaussianShares(5.0, 10)).encode_zeros(entropy=SystemEntropy()),
            1,
            entropy=SystemEntropy(),
        )
