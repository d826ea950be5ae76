import numpy as np
import pytest

from oracles import codec_specs
from skellam import SeededEntropy, SystemEntropy
from skellam.codec import Codec, NoNoise, SkellamShares
from skellam.errors import DomainError, ShapeError

DIMENSION = (1 << 16) + 100
"""More than one chunk, so that a component must be drawn again across a border."""


def codec_of(noise, bits=16):
    return codec_specs.codec_of(noise=noise, bits=bits, dimension=DIMENSION, padded=33 << 11)


def seeds(count, start=0):
    return tuple(bytes([start + i]) * 32 for i in range(count))


@pytest.mark.parametrize("bits", [12, 16, 20])
def test_removing_every_component_leaves_the_base_share_alone(bits):
    with_components = codec_of(SkellamShares(1000.0, 10, components=3), bits)
    x = np.linspace(-1, 1, DIMENSION)
    own, again = (SeededEntropy(bytes(32), "own") for _ in range(2))
    message = with_components.encode(x, entropy=own, removable=seeds(3))
    bare = codec_of(SkellamShares(1000.0, 10), bits).encode(x, entropy=again)
    assert np.any(message.values != bare.values)
    total = with_components.remove(with_components.add([message]), enumerate(seeds(3)))
    np.testing.assert_array_equal(total.values, bare.values)


def test_survivors_reveal_what_is_superfluous_and_the_rest_stays():
    noise = SkellamShares(400.0, 10, components=6)
    codec = codec_of(noise)
    source = SeededEntropy(bytes(32), "clients")
    survivors = [codec.removable_seeds(entropy=source) for _ in range(8)]
    total = codec.add(codec.encode_zeros(entropy=source, removable=own) for own in survivors)
    revealed = [(j, own[j]) for own in survivors for j in noise.superfluous(2)]
    left = codec.remove(total, revealed)
    # 2 of 10 dropped: 25 hundredths stay, so the variance is 8 * 40 * 1.25 = 400.
    # Chi-square with 67584 degrees of freedom: 6 deviations, a false alarm in 5e8.
    deviation = np.sqrt(2 / codec.spec.padded)
    square = np.mean(left.values.astype(np.int16).astype(float) ** 2)
    assert abs(square / 400 - 1) <= 6 * deviation
    everything = np.mean(total.values.astype(np.int16).astype(float) ** 2)
    assert abs(everything / (8 * 40 * 1.63) - 1) <= 6 * deviation


def test_components_of_one_seed_in_other_places_or_rounds_differ():
    noise = SkellamShares(40000.0, 10, components=2)
    codec = codec_of(noise)
    zero = codec.encode_zeros(entropy=SystemEntropy(), removable=seeds(2))
    first, second = (codec.remove(zero, [(j, bytes(32))]).values for j in range(2))
    assert np.any(first != second)
    other = Codec(codec.spec, public_seed=bytes([1]) * 32)
    moved = other.remove(other.unpack(codec.pack(zero)), [(0, bytes(32))]).values
    assert np.any(moved != first)


def test_seeds_are_fresh_and_as_many_as_components():
    codec = codec_of(SkellamShares(1000.0, 10, components=4))
    own = codec.removable_seeds(entropy=SystemEntropy())
    assert len(set(own)) == 4
    assert {len(seed) for seed in own} == {32}


def test_the_mark_of_a_replay_follows_the_clients_own_entropy():
    codec = codec_of(SkellamShares(1000.0, 10, components=1))
    own = codec.removable_seeds(entropy=SystemEntropy())
    assert not codec.encode_zeros(entropy=SystemEntropy(), removable=own).replayable
    seeded = SeededEntropy(bytes(32), "replay")
    assert codec.encode_zeros(entropy=seeded, removable=own).replayable


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_wrong_number_of_seeds_is_refused(count):
    codec = codec_of(SkellamShares(1000.0, 10, components=2))
    with pytest.raises(ShapeError, match="removable must hold 2 seeds"):
        codec.encode_zeros(entropy=SystemEntropy(), removable=seeds(count))
    with pytest.raises(ShapeError, match="removable must hold 0 seeds"):
        codec_of(NoNoise()).encode_zeros(entropy=SystemEntropy(), removable=seeds(1))


def test_a_component_that_is_not_there_or_a_short_seed_is_refused():
    codec = codec_of(SkellamShares(1000.0, 10, components=2))
    total = codec.encode_zeros(entropy=SystemEntropy(), removable=seeds(2))
    with pytest.raises(DomainError, match="component"):
        codec.remove(total, [(2, bytes(32))])
    with pytest.raises(ShapeError, match="seed"):
        codec.remove(total, [(0, b"short")])
    with pytest.raises(DomainError, match="twice"):
        codec.remove(total, [(0, bytes(32)), (1, bytes(32)), (0, bytes(32))])


def test_the_total_variation_counts_every_component():
    bare, rich = (codec_of(SkellamShares(1000.0, 10, n)).total_variation for n in (0, 6))
    assert 0 < bare < rich < 2.0**-95
