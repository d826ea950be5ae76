import math
import pickle
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import skellam as sk
from oracles.algorithm_1 import clipped, exact_norm
from oracles.codec_specs import as_if_enough, codec_of
from skellam import SeededEntropy, SystemEntropy
from skellam.codec import (
    CentralSkellam,
    Conditional,
    DiscreteGaussianShares,
    SkellamShares,
    Unbiased,
)
from skellam.codec.arithmetic import centred, shrink
from skellam.codec.codec import TAG_BYTES
from skellam.errors import DomainError, KindError, ShapeError, ThresholdError
from skellam.vectors import Residues

PAPER = Conditional(math.exp(-0.5))


def entropy(name="test"):
    return SeededEntropy(bytes(32), name)


def spiked(value, place=0):
    x = np.zeros(1000)
    x[place] = value
    return x


ADVERSARIES = {
    "zeros": np.zeros(1000),
    "minus zero": np.full(1000, -0.0),
    "a spike": spiked(1e3, 999),
    "a spike at the clip": spiked(1.0),
    "a spike just above the clip": spiked(math.nextafter(1, 2)),
    "denormals": np.full(1000, 5e-324),
    "float32 denormals": np.full(1000, 1e-45, dtype=np.float32),
    "1e30": np.full(1000, 1e30),
    "1e30 in float32": np.full(1000, -1e30, dtype=np.float32),
    "the largest floats": np.full(1000, np.finfo(np.float64).max),
    "the largest float32": np.full(1000, np.finfo(np.float32).max),
    "the largest float16": np.full(1000, np.finfo(np.float16).max),
    "huge beside tiny": np.concatenate([np.full(500, 1e300), np.full(500, 1e-300)]),
    "flat at the clip": np.full(1000, 1 / math.sqrt(1000)),
    "flat in float32": np.full(1000, 1 / math.sqrt(1000), dtype=np.float32),
    "flat just above": np.full(1000, (1 + 1e-7) / math.sqrt(1000)),
}


def assert_within_sensitivity(codec, x):
    """What is rounded, and for conditional rounding what it is rounded to, keeps to the bounds."""
    stated = codec.sensitivity
    if isinstance(codec.spec.rounding, Conditional):
        z = centred(codec.encode(x, entropy=SystemEntropy())).astype(np.float64)
        assert exact_norm(z) <= stated.l2
        assert np.abs(z).sum() <= stated.l1
        return
    prepared = codec._prepared(codec._read(codec.vector(x)))
    y = np.concatenate(
        list(shrink(*prepared, codec.spec.radius, codec.spec.rounding.coordinate_bound))
    )
    assert exact_norm(y) <= stated.l2
    assert float(np.abs(y).max()) <= stated.coordinate_bound
    assert len(y) == stated.dimension


@pytest.mark.parametrize("size", [float(np.finfo(np.float32).max), 1e25, 1e18])
@pytest.mark.parametrize("clip", [1.0, 1e9])
def test_a_huge_float32_vector_is_clipped_and_not_lost(size, clip):
    codec = codec_of(scale=2.0**-30 / clip, clip=clip, bits=32)
    y, norm = codec._prepared(codec._read(np.full(1000, size, dtype=np.float32)))
    assert norm >= codec.spec.radius * (1 - 1e-6)
    shrunk = np.concatenate(list(shrink(y, norm, codec.spec.radius)))
    assert exact_norm(shrunk) >= codec.spec.radius * (1 - 2.0**-14)


@pytest.mark.parametrize("name", ADVERSARIES)
@pytest.mark.parametrize("rounding", [Unbiased(), Unbiased(20.0), PAPER, Conditional(0.0)])
@pytest.mark.parametrize("changes", [{}, {"padded_dim": 1008}, {"sent_dim": 300}, {"clip": 1e-9}])
def test_no_input_exceeds_the_stated_sensitivity(name, rounding, changes):
    changes = {"scale": 5e11} | changes if "clip" in changes else changes
    codec = codec_of(rounding=rounding, bits=32, **changes)
    assert_within_sensitivity(codec, ADVERSARIES[name])


@given(
    st.integers(0, 2**256 - 1),
    st.sampled_from([Unbiased(), Unbiased(20.0), PAPER]),
    st.sampled_from([0, 1, 300]),
    st.integers(0, 2**32),
)
@example(0, Unbiased(), 1, 0)
def test_no_public_seed_exceeds_it_even_if_the_input_is_made_for_it(seed, rounding, sent, place):
    """The input is the rotation's own preimage of one sent coordinate: all energy falls into J."""
    codec = codec_of(seed.to_bytes(32, "big"), rounding=rounding, sent_dim=sent, dimension=1024)
    subset = np.arange(1024) if not sent else codec._subset
    y = np.zeros(1024, dtype=np.float32)
    y[subset[place % len(subset)]] = 1
    assert_within_sensitivity(codec, codec._rotation.backward(y, 1.0, 1024))


@pytest.mark.parametrize("rounding", [Unbiased(), Unbiased(200.0), PAPER])
@pytest.mark.parametrize("padded", [1008, 1024, 4096])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_without_noise_the_clipped_sum_comes_back_within_its_rounding(rounding, padded, dtype):
    codec = codec_of(rounding=rounding, padded_dim=padded)
    rng = np.random.default_rng(1)
    xs = [(rng.normal(size=1000) * size).astype(dtype) for size in (0.001, 0.01, 0.03, 10)]
    source = entropy()
    total = codec.decode(codec.add(codec.encode(x, entropy=source) for x in xs))
    error = total.values - sum(clipped(x, 1.0) for x in xs)
    # Each of the four roundings moves a coordinate by less than one unit of 1/500.
    assert np.linalg.norm(error) <= 4 * math.sqrt(padded) / 500


@pytest.mark.parametrize("sent", [0, 6])
def test_decoding_has_no_bias(sent):
    """The mean over 2000 seeds and coins, 8 coordinates: 6 deviations, a false alarm in 6e7."""
    x = np.array([0.5, -0.25, 0.1, 0, 0.03, 0.3, -0.6, 0.01])
    found = []
    source = entropy()
    for i in range(2000):
        codec = codec_of(
            i.to_bytes(32, "big"), dimension=8, padded_dim=8, scale=4.0, sent_dim=sent, clip=2.0
        )
        found.append(codec.decode(codec.encode(x, entropy=source)).values)
    spread = np.std(found, axis=0) / math.sqrt(len(found))
    assert np.all(np.abs(np.mean(found, axis=0) - x) <= 6 * spread)


@given(st.data())
def test_modular_sums_are_the_sums_of_whole_numbers_reduced(data):
    bits = data.draw(st.integers(2, 32))
    codec = codec_of(bits=bits, dimension=3, padded_dim=4)
    rows = data.draw(
        st.lists(st.lists(st.integers(0, 2**bits - 1), min_size=4, max_size=4), min_size=1)
    )
    dtype = codec.encode(np.zeros(3), entropy=entropy()).values.dtype
    messages = [Residues(np.array(row, dtype=dtype), bits, codec.label) for row in rows]
    assert list(codec.add(messages).values) == [sum(c) % 2**bits for c in zip(*rows, strict=True)]


def test_a_sum_of_one_leaves_its_message_as_it_was():
    codec = codec_of()
    message = codec.encode(np.ones(1000), entropy=entropy())
    before = message.values.copy()
    codec.add([message, message])
    np.testing.assert_array_equal(message.values, before)


@pytest.mark.parametrize("bits", [2, 5, 8, 11, 16, 17, 32])
def test_a_message_goes_over_the_wire_in_exactly_its_bits(bits):
    codec = codec_of(bits=bits, noise=SkellamShares(50.0, 2))
    message = codec.encode(np.ones(1000), entropy=entropy())
    data = codec.pack(message)
    assert len(data) == TAG_BYTES + 1024 * bits // 8
    np.testing.assert_array_equal(codec.unpack(data).values, message.values)
    codec.add([codec.unpack(data), message])


def test_bytes_of_another_round_or_plan_are_not_unpacked():
    codec = codec_of(noise=SkellamShares(50.0, 2))
    data = codec.pack(codec.encode(np.ones(1000), entropy=entropy()))
    changed = (
        codec_of(bytes([1]) * 32, noise=SkellamShares(50.0, 2)),
        codec_of(noise=SkellamShares(50.0, 3)),
        codec_of(noise=SkellamShares(50.0, 2), clip=2.0),
    )
    for stranger in changed:
        with pytest.raises(DomainError, match="tag"):
            stranger.unpack(data)
    for wrong in (b"", data[:7], data[:-1], data + b"0"):
        with pytest.raises(ShapeError, match="bytes"):
            codec.unpack(wrong)


def test_a_sum_is_not_packed_as_if_it_were_one_message():
    codec = codec_of()
    message = codec.encode(np.ones(1000), entropy=entropy())
    with pytest.raises(DomainError, match="a sum of 2"):
        codec.pack(codec.add([message, message]))


@pytest.mark.parametrize(
    "noise", [SkellamShares(50.0, 3), DiscreteGaussianShares(2.0, 3)], ids=["Skellam", "Gaussian"]
)
def test_a_sum_with_fewer_shares_of_noise_than_the_plan_needs_is_not_decoded(noise):
    codec = codec_of(noise=noise, clip_count=noise)
    one = codec.encode(np.ones(1000), entropy=entropy())
    two, three = codec.add([one, one]), one + one + one
    assert (two.messages, three.messages, codec.add([two, three]).messages) == (2, 3, 5)
    for few in (one, two):
        for refused in (codec.decode, codec.clip_count, codec.wrap):
            with pytest.raises(ThresholdError, match=f"noise of {few.messages} messages.*of 3;"):
                refused(few)
    for enough in (three, codec.add([two, three])):
        codec.decode(enough)
        codec.clip_count(enough)
        codec.wrap(enough)


def test_messages_of_other_plans_rounds_or_lengths_are_not_added():
    codec = codec_of()
    message = codec.encode(np.ones(1000), entropy=entropy())
    strangers = {
        "round": codec_of(bytes([1]) * 32),
        "round ": codec_of(scale=501.0),
        "bits": codec_of(bits=15),
        "residues": codec_of(padded_dim=1008),
    }
    for reason, stranger in strangers.items():
        other = stranger.encode(np.ones(1000), entropy=entropy())
        for refused in (lambda m: codec.add([message, m]), codec.decode, codec.pack, codec.wrap):
            with pytest.raises(DomainError, match=reason.strip()):
                refused(other)


def test_no_messages_have_no_sum():
    with pytest.raises(ShapeError, match="at least one"):
        codec_of().add([])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_an_update_that_is_not_finite_raises_or_becomes_zeros(bad):
    codec = codec_of()
    x = spiked(bad, 12)
    with pytest.raises(DomainError, match=r"x\[12\].*encode_or_zeros"):
        codec.encode(x, entropy=entropy())
    message = codec.encode_or_zeros(x, entropy=entropy())
    assert not message.values.any()


def test_a_failing_client_still_adds_its_noise():
    codec = codec_of(noise=SkellamShares(500.0, 5))
    failed = codec.encode_or_zeros(spiked(math.nan), entropy=entropy())
    np.testing.assert_array_equal(failed.values, codec.encode_zeros(entropy=entropy()).values)
    assert failed.values.any()


def test_a_finite_update_is_encoded_all_the_same():
    codec, x = codec_of(), np.linspace(-1, 1, 1000)
    safe = codec.encode_or_zeros(x, entropy=entropy())
    np.testing.assert_array_equal(safe.values, codec.encode(x, entropy=entropy()).values)


@pytest.mark.parametrize("length", [0, 1, 999, 1001])
def test_a_vector_of_a_wrong_length_is_refused(length):
    with pytest.raises(ShapeError, match="1000"):
        codec_of().encode(np.zeros(length), entropy=entropy())


def test_integers_and_complex_numbers_are_no_update():
    for x in (np.zeros(1000, dtype=np.int64), np.zeros(1000, dtype=complex), "abc", None):
        with pytest.raises(KindError):
            codec_of().encode(x, entropy=entropy())


def test_what_was_drawn_from_a_seed_is_marked_to_the_end():
    codec = codec_of()
    secret = codec.encode(np.ones(1000), entropy=SystemEntropy())
    replayed = codec.encode(np.ones(1000), entropy=entropy())
    assert not codec.decode(codec.add([secret, secret])).replayable
    assert codec.decode(codec.add([secret, replayed])).replayable


def test_a_central_total_is_decoded_only_with_noise_and_noise_comes_once():
    codec = codec_of(noise=CentralSkellam(100.0))
    total = codec.add([codec.encode(np.ones(1000), entropy=entropy())])
    with pytest.raises(DomainError, match="add_central_noise"):
        codec.decode(total)
    noisy = codec.add_central_noise(total, entropy=entropy())
    with pytest.raises(DomainError, match="once"):
        codec.add_central_noise(noisy, entropy=entropy())
    assert len(codec.decode(noisy)) == 1000


def test_shares_leave_no_noise_to_the_server():
    codec = codec_of(noise=SkellamShares(100.0, 10))
    total = codec.encode_zeros(entropy=entropy())
    with pytest.raises(DomainError, match="no noise to the server"):
        codec.add_central_noise(total, entropy=entropy())


def test_a_codec_goes_to_another_process_whole():
    codec = codec_of(noise=SkellamShares(100.0, 10), sent_dim=500)
    twin = pickle.loads(pickle.dumps(codec))
    messages = [c.encode(np.ones(1000), entropy=entropy()) for c in (codec, twin)]
    np.testing.assert_array_equal(codec.add(messages).values, twin.add(messages).values)


def test_a_public_seed_has_32_bytes():
    with pytest.raises(ShapeError, match="public_seed"):
        codec_of(b"short")


@pytest.mark.parametrize("rounding", [Unbiased(24.0), PAPER])
@pytest.mark.parametrize("padded", [1 << 20, 33 << 15])
def test_encoding_and_decoding_take_at_most_16_bytes_a_coordinate(rounding, padded):
    codec = codec_of(
        dimension=1 << 20, padded_dim=padded, rounding=rounding, noise=SkellamShares(1e4, 100)
    )
    x = np.random.default_rng(1).normal(size=1 << 20).astype(np.float32)
    codec.encode(x, entropy=SystemEntropy())
    tracemalloc.start()
    try:
        message = codec.encode(x, entropy=SystemEntropy())
        codec.decode(as_if_enough(codec, message))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 16 * padded


def test_encoding_runs_through_nine_files_at_most(monkeypatch):
    """So that a reader can follow one call: files of this package that execute in it."""
    # Unset, Numba takes over after 2**28 elements, in the middle of whichever test comes then.
    monkeypatch.setenv("SKELLAM_KERNELS", "numpy")
    codec = codec_of(noise=SkellamShares(100.0, 10), rounding=Unbiased(20.0))
    x, source, files = np.ones(1000), SystemEntropy(), set()
    package = Path(sk.__file__).parent

    def trace(frame, _event, _argument):
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(package):
            files.add(path.relative_to(package).as_posix())

    before = sys.getprofile()
    sys.setprofile(trace)
    try:
        codec.encode(x, entropy=source)
    finally:
        sys.setprofile(before)
    assert "codec/codec.py" in files
    assert len(files) <= 9


@pytest.mark.parametrize("data", [None, 3, "0123456789"])
def test_what_is_no_bytes_is_not_unpacked(data):
    with pytest.raises(KindError, match="data must be the bytes of a message"):
        codec_of().unpack(data)
