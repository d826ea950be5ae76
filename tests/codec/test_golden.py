"""Fixed entropy, fixed input, fixed output, for each back end of the kernels.

``tests/vectors/codec.json`` was written by this codec and agrees with the oracle in
``tests/oracles/algorithm_1.py``, which uses dense matrices and Python integers.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from oracles import algorithm_1, codec_specs
from skellam import SeededEntropy
from skellam.codec import (
    Codec,
    Conditional,
    DiscreteGaussianShares,
    SkellamShares,
    Unbiased,
)
from skellam.codec.shares import samplers_of

SEED = bytes(range(32))
GOLDEN = json.loads((Path(__file__).parents[1] / "vectors" / "codec.json").read_text())


def spec_of(**changes):
    small = {"dimension": 24, "clip": 10.0, "scale": 8.0, "padded": 32}
    return codec_specs.spec_of(**(small | changes))


CASES = {
    "unbiased": spec_of(),
    "cut": spec_of(rounding=Unbiased(2.5)),
    "conditional": spec_of(rounding=Conditional(0.6), clip=0.5),
    "Skellam": spec_of(noise=SkellamShares(400.0, 10), bits=12),
    "removable": spec_of(noise=SkellamShares(400.0, 10, components=3), bits=10),
    "discrete Gaussian": spec_of(noise=DiscreteGaussianShares(3.0), bits=8),
    "blocks": spec_of(padded=24),
    "kept": spec_of(kept=12, noise=SkellamShares(40.0, 10)),
    "clipped": spec_of(clip=0.25, bits=7),
    "wide": spec_of(scale=1e3, bits=32),
}


def update(dimension=24):
    return np.sin(np.arange(dimension) + 1.0) / 2


def encoded(spec, x):
    codec = Codec(spec, public_seed=SEED)
    seeds = [bytes([j]) * 32 for j in range(getattr(spec.noise, "components", 0))]
    return codec.encode(x, entropy=SeededEntropy(SEED, "client"), removable=seeds), codec


@pytest.fixture(params=["numpy", "numba"])
def kernels(request, monkeypatch):
    monkeypatch.setenv("SKELLAM_KERNELS", request.param)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("name", CASES)
def test_a_message_is_the_same_on_every_run_and_back_end(name):
    message, codec = encoded(CASES[name], update())
    assert message.values.tolist() == GOLDEN[name]["residues"]
    decoded = codec.decode(message).values
    np.testing.assert_allclose(decoded, GOLDEN[name]["decoded"], atol=1e-5)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(
    "name", ["unbiased", "blocks", "clipped", "wide", "Skellam", "discrete Gaussian", "kept"]
)
def test_a_message_is_the_oracles(name):
    spec = CASES[name]
    source = SeededEntropy(SEED, "client")
    coins = np.empty(spec.length, dtype=np.uint32)
    source.fill(coins)
    law = samplers_of(spec.noise).client
    noise = law.draw(spec.length, entropy=source).values if law else [0] * spec.length
    expected = algorithm_1.encode(update(), spec, SEED, coins, noise)
    assert encoded(spec, update())[0].values.tolist() == expected


@pytest.mark.usefixtures("kernels")
def test_a_message_with_few_coins_is_the_oracles():
    """16 bits each; that one of 32 is left undecided by them has probability 2**-11."""
    spec = CASES["cut"]
    coins = np.empty(spec.length, dtype=np.uint16)
    SeededEntropy(SEED, "client").fill(coins)
    whole = [int(coin) << 32 for coin in coins]
    expected = algorithm_1.encode(update(), spec, SEED, whole, [0] * spec.length, width=48)
    assert encoded(spec, update())[0].values.tolist() == expected


@pytest.mark.parametrize("padded", [1 << 10, 1 << 17])
def test_where_the_rotation_is_exact_both_back_ends_give_the_same_bytes(padded, monkeypatch):
    """Small integers, power-of-two scale and even exponent: no float32 operation rounds."""
    exact = padded if padded.bit_length() % 2 else padded * 2
    spec = spec_of(
        dimension=padded,
        padded=exact,
        clip=2.0**12,
        scale=2.0**-2,
        noise=SkellamShares(400.0, 10),
    )
    x = (np.arange(padded) * 7 % 15 - 7).astype(np.float32)
    packed = []
    for kernels in ("numpy", "numba"):
        monkeypatch.setenv("SKELLAM_KERNELS", kernels)
        message, codec = encoded(spec, x)
        packed.append(codec.pack(message))
    assert packed[0] == packed[1]
