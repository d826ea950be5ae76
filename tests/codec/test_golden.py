"""Fixed entropy, fixed input, fixed output, for each back end of the kernels.

``tests/vectors/codec.json`` was written by this codec (`record`) and agrees with the oracle in
``tests/oracles/algorithm_1.py``, which uses dense matrices and Python integers. Its ``origin`` says
what changed with each version of the format.
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
from skellam.codec.arithmetic import sampler_of

SEED = bytes(range(32))
GOLDEN = Path(__file__).parents[1] / "vectors" / "codec.json"


def spec_of(**changes):
    small = {"dimension": 24, "clip": 10.0, "scale": 8.0, "padded_dim": 32}
    return codec_specs.spec_of(**(small | changes))


CASES = {
    "unbiased": spec_of(),
    "cut": spec_of(rounding=Unbiased(2.5)),
    "conditional": spec_of(rounding=Conditional(0.6), clip=0.5),
    "Skellam": spec_of(noise=SkellamShares(400.0, 10), bits=12),
    "removable": spec_of(noise=SkellamShares(400.0, 10, removable=True), bits=10),
    "discrete Gaussian": spec_of(noise=DiscreteGaussianShares(3.0, 10), bits=8),
    "blocks": spec_of(padded_dim=24),
    "subset": spec_of(sent_dim=12, noise=SkellamShares(40.0, 10)),
    "clip count": spec_of(
        noise=SkellamShares(400.0, 10, removable=True),
        clip_count=SkellamShares(30.0, 10, removable=True),
        bits=10,
    ),
    "clipped": spec_of(clip=0.25, bits=7),
    "wide": spec_of(scale=1e3, bits=32),
}


def update(dimension=24):
    return np.sin(np.arange(dimension) + 1.0) / 2


def encoded(spec, x):
    codec = Codec(spec, public_seed=SEED)
    seed = bytes([7]) * 32 if spec.removable else None
    return codec.encode(x, entropy=SeededEntropy(SEED, "client"), noise_seed=seed), codec


def results(spec):
    message, codec = encoded(spec, update())
    decoded = codec.decode(codec_specs.as_if_enough(codec, message)).values
    return message, codec, decoded


def record():
    """Write the vectors anew: only where the format itself changes, with its version."""
    golden = {
        "origin": "version 2 (skellam 0.2): shares of exact variance, one seed for all removable "
        "noise and the clip count, the version in the label; written by record() in "
        "tests/codec/test_golden.py",
    }
    for name, spec in CASES.items():
        message, codec, decoded = results(spec)
        golden[name] = {
            "label": codec.label.hex(),
            "residues": message.values.tolist(),
            "decoded": [round(float(v), 7) for v in decoded],
        }
    lines = [f" {json.dumps(name)}: {json.dumps(case)}" for name, case in golden.items()]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")


@pytest.fixture(params=["numpy", "numba"])
def kernels(request, monkeypatch):
    monkeypatch.setenv("SKELLAM_KERNELS", request.param)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("name", CASES)
def test_a_message_is_the_same_on_every_run_and_back_end(name):
    golden = json.loads(GOLDEN.read_text())[name]
    message, codec, decoded = results(CASES[name])
    assert codec.label.hex() == golden["label"]
    assert message.values.tolist() == golden["residues"]
    np.testing.assert_allclose(decoded, golden["decoded"], atol=1e-5)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(
    "name", ["unbiased", "blocks", "clipped", "wide", "Skellam", "discrete Gaussian", "subset"]
)
def test_a_message_is_the_oracles(name):
    spec = CASES[name]
    source = SeededEntropy(SEED, "client")
    coins = np.empty(spec.message_len, dtype=np.uint32)
    source.fill(coins)
    law = sampler_of(spec.noise)
    noise = law.draw(spec.message_len, entropy=source).values if law else [0] * spec.message_len
    expected = algorithm_1.encode(update(), spec, SEED, coins, noise)
    assert encoded(spec, update())[0].values.tolist() == expected


@pytest.mark.usefixtures("kernels")
def test_a_message_with_few_coins_is_the_oracles():
    """16 bits each; that one of 32 is left undecided by them has probability 2**-11."""
    spec = CASES["cut"]
    coins = np.empty(spec.message_len, dtype=np.uint16)
    SeededEntropy(SEED, "client").fill(coins)
    whole = [int(coin) << 32 for coin in coins]
    expected = algorithm_1.encode(update(), spec, SEED, whole, [0] * spec.message_len, width=48)
    assert encoded(spec, update())[0].values.tolist() == expected


@pytest.mark.parametrize("padded", [1 << 10, 1 << 17])
def test_where_the_rotation_is_exact_both_back_ends_give_the_same_bytes(padded, monkeypatch):
    """Small integers, power-of-two scale and even exponent: no float32 operation rounds."""
    exact = padded if padded.bit_length() % 2 else padded * 2
    spec = spec_of(
        dimension=padded,
        padded_dim=exact,
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
