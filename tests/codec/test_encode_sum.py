"""Several short vectors in one call: the sum of what they are one by one, bit for bit."""

import math

import numpy as np
import pytest

from oracles.codec_specs import codec_of
from skellam import SeededEntropy, SystemEntropy, _kernels
from skellam.codec import (
    CentralSkellam,
    Conditional,
    DiscreteGaussianShares,
    Integer,
    NoNoise,
    SkellamShares,
    Unbiased,
)
from skellam.errors import DomainError, ShapeError

SHARES = SkellamShares(variance=900.0, shares=9)
REMOVABLE = SkellamShares(variance=900.0, shares=9, removable=True)
SPECS = {
    "unbiased": {},
    "coordinates cut to a small bound": {"rounding": Unbiased(40.0)},
    "coordinates cut to a large bound": {"rounding": Unbiased(20_000.0), "scale": 30_000.0},
    "conditional": {"rounding": Conditional(math.exp(-0.5)), "scale": 30.0},
    "conditional, often tried again": {"rounding": Conditional(0.99), "scale": 3.0},
    "no noise": {"noise": NoNoise()},
    "noise of the server": {"noise": CentralSkellam(variance=900.0)},
    "wide noise": {"noise": SkellamShares(variance=9e6, shares=9), "bits": 24},
    "discrete Gaussian": {"noise": DiscreteGaussianShares(sigma=10.0, shares=9)},
    "8 bits": {"bits": 8, "scale": 20.0},
    "13 blocks": {"dimension": 100, "padded_dim": 104},
    "5 long blocks": {"dimension": 10_000, "padded_dim": 10_240},
    "no multiple of 256": {"dimension": 1000, "padded_dim": 1008},
    "a subset": {"sent_dim": 300},
    "clip count": {"clip_count": SHARES},
    "removable": {"noise": REMOVABLE},
    "removable with clip count": {"noise": REMOVABLE, "clip_count": REMOVABLE},
}


def vectors(dimension):
    """Short and long, of both types, and what `encode` refuses."""
    drawn = np.random.default_rng(1).normal(size=(6, dimension)) / math.sqrt(dimension)
    spike = np.zeros(dimension, dtype=np.float32)
    spike[-1] = 1e30
    return [
        drawn[0],
        drawn[1].astype(np.float32) / 2,
        None,
        5 * drawn[2].astype(np.float32),
        spike,
        np.full(dimension, 1e300),
        np.full(dimension, np.nan),
        np.full(dimension, 1e-45, dtype=np.float32),
        -np.full(dimension, 1e-45, dtype=np.float32),
        drawn[3].astype(np.float16),
        *drawn[4:] * 1e-3,
    ]


def streams(count):
    return [SeededEntropy(bytes(32), f"client/{i}") for i in range(count)]


def one_by_one(codec, xs, entropies, seeds):
    return codec.add(
        codec.encode_or_zeros(x, entropy=entropy, noise_seed=seed)
        for x, entropy, seed in zip(xs, entropies, seeds, strict=True)
    )


def same(a, b):
    return (a.values.tobytes(), a.bits, a.label, a.replayable, a.messages) == (
        b.values.tobytes(),
        b.bits,
        b.label,
        b.replayable,
        b.messages,
    )


@pytest.mark.parametrize("backend", ["numpy", "numba"])
@pytest.mark.parametrize("name", SPECS)
def test_it_is_the_sum_of_what_they_are_one_by_one(name, backend, monkeypatch):
    monkeypatch.setenv(_kernels.VARIABLE, backend)
    codec = codec_of(**{"noise": SHARES} | SPECS[name])
    xs = vectors(codec.spec.dimension)
    assert len(xs) <= codec.together
    seeds = [bytes([i]) * 32 if codec.spec.removable else None for i in range(len(xs))]
    for each in (codec, codec.without_noise()):
        together = each.encode_sum(iter(xs), entropies=streams(len(xs)), noise_seeds=seeds)
        assert same(together, one_by_one(each, xs, streams(len(xs)), seeds))


def test_vectors_of_integers_add_up_to_the_same():
    codec = codec_of(
        dimension=50,
        padded_dim=50,
        scale=1.0,
        rounding=Integer(coordinate_bound=3, l1=3),
        noise=SHARES,
    )
    xs = [np.eye(50, dtype=np.int64)[7], np.full(50, 3), np.eye(50)[3], None, np.eye(50)[4] / 2]
    together = codec.encode_sum(xs, entropies=streams(5))
    assert same(together, one_by_one(codec, xs, streams(5), [None] * 5))


def test_clients_that_share_a_replayable_entropy_draw_in_turn():
    codec, xs = codec_of(noise=SHARES), vectors(1000)
    one, other = streams(1), streams(1)
    together = codec.encode_sum(xs, entropies=one * len(xs))
    assert same(together, one_by_one(codec, xs, other * len(xs), [None] * len(xs)))


def test_a_vector_is_read_before_the_next_is_asked_for():
    codec, buffer = codec_of(), np.zeros(1000)

    def reused():
        for i in range(4):
            buffer[:] = 1e300 if i == 2 else i / 1000
            yield buffer

    copies = [x.copy() for x in reused()]
    together = codec.encode_sum(reused(), entropies=streams(4))
    assert same(together, codec.encode_sum(copies, entropies=streams(4)))


def test_noise_of_the_system_is_fresh_in_every_row():
    codec = codec_of(noise=SkellamShares(variance=9e4, shares=9), bits=20)
    entropy = SystemEntropy()
    total = codec.encode_sum([None] * 9, entropies=[entropy] * 9)
    assert not total.replayable
    assert total.messages == 9
    # Equal rows would give nine times the deviation of one share, 900; independent ones give 300.
    # The sample deviation of 1,024 is within 15 % but with probability below 1e-10.
    assert codec.decode(total).values.std() * 500 == pytest.approx(300, rel=0.15)


def test_more_than_fit_at_once_are_encoded_one_by_one():
    codec = codec_of(dimension=60_000, padded_dim=65_536)
    assert codec.together == 2
    xs = [np.full(60_000, i / 1e4) for i in range(3)]
    together = codec.encode_sum(xs, entropies=streams(3))
    assert same(together, one_by_one(codec, xs, streams(3), [None] * 3))


@pytest.mark.parametrize("count", [0, 2, 4])
@pytest.mark.parametrize("shared", [False, True])
def test_there_must_be_as_many_vectors_as_entropies(count, shared):
    entropies = streams(1) * 3 if shared else streams(3)
    with pytest.raises(ShapeError, match=f"3 entropies, got {count}"):
        codec_of().encode_sum([None] * count, entropies=entropies)


def test_every_client_needs_its_noise_seed():
    with pytest.raises(DomainError, match="noise_seed is required"):
        codec_of(noise=REMOVABLE).encode_sum([None] * 3, entropies=streams(3))
