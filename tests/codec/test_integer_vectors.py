import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skellam import SeededEntropy, SystemEntropy
from skellam.codec import Codec, CodecSpec, Integer, IntegerSensitivity, NoNoise, SkellamShares
from skellam.codec.arithmetic import centred, integer_vector
from skellam.codec.spec import integer_norm
from skellam.errors import DomainError, KindError, ShapeError

SEED = bytes(32)


def spec_of(**changes):
    settings = {
        "dimension": 5,
        "clip": np.sqrt(3),
        "scale": 1.0,
        "bits": 10,
        "rounding": Integer(coordinate_bound=2, l1=3),
        "noise": NoNoise(),
        "padded_dim": 5,
    }
    return CodecSpec(**{**settings, **changes})


def codec_of(**changes):
    return Codec(spec_of(**changes), public_seed=SEED)


def test_integers_come_back_as_they_were():
    codec = codec_of()
    vectors = [[1, -1, 0, 0, 1], [0, 0, 0, 0, 0], [0, 1, 0, -1, 0]]
    messages = [codec.encode(np.array(v), entropy=SystemEntropy()) for v in vectors]
    total = codec.decode(codec.add(messages))
    assert total.values.tolist() == np.sum(vectors, axis=0).tolist()


def test_sums_beyond_the_precision_of_float32_are_exact():
    most = 2**24 + 1
    codec = codec_of(bits=32, clip=most, rounding=Integer(coordinate_bound=most, l1=most))
    x = np.array([most, 0, 0, 0, 0])
    assert codec.decode(codec.encode(x, entropy=SystemEntropy())).values[0] == most


def test_the_message_is_the_vector_and_its_noise():
    noise = SkellamShares(400.0, 10)
    bare, noisy = codec_of(), codec_of(noise=noise)
    x = np.array([1, 0, 0, -1, 0])
    alone = bare.encode(x, entropy=SeededEntropy(SEED, "client"))
    sent = noisy.encode(x, entropy=SeededEntropy(SEED, "client"))
    zeros = noisy.encode_zeros(entropy=SeededEntropy(SEED, "client"))
    assert (centred(sent) - centred(zeros)).tolist() == centred(alone).tolist()


BAD = [
    ([3, 0, 0, 0, 0], "entry of 3"),
    ([0, -3, 0, 0, 0], "entry of 3"),
    ([1, 1, 1, 1, 0], "L1 norm of 4"),
    ([2, 0, 0, 0, 0], "L2 norm"),
    ([-(2**63), 0, 0, 0, 0], "entry of"),
]


@pytest.mark.parametrize(("x", "why"), BAD)
def test_a_vector_beyond_its_bounds_is_refused(x, why):
    with pytest.raises(DomainError, match=why):
        codec_of().encode(np.array(x), entropy=SystemEntropy())


@pytest.mark.parametrize("x", [x for x, _ in BAD])
def test_a_client_that_must_not_drop_out_sends_zeros_with_its_noise(x):
    codec = codec_of(noise=SkellamShares(400.0, 10))
    sent = codec.encode_or_zeros(np.array(x), entropy=SeededEntropy(SEED, "client"))
    zeros = codec.encode_zeros(entropy=SeededEntropy(SEED, "client"))
    assert np.array_equal(sent.values, zeros.values)


@pytest.mark.parametrize("square", [2, 3, 5, 6, 7, 10, 99, 2**40 + 1])
def test_a_vector_at_its_bound_is_never_refused_for_a_rounded_root(square):
    codec = codec_of(
        dimension=square if square < 100 else 2,
        padded_dim=square if square < 100 else 2,
        clip=np.sqrt(square),
        bits=32,
        rounding=Integer(coordinate_bound=2**20, l1=2**30),
    )
    x = np.ones(square, dtype=int) if square < 100 else np.array([2**20, 1])
    assert len(codec.encode(x, entropy=SystemEntropy())) == len(x)


def test_the_sensitivity_is_the_stated_one():
    bound = codec_of().sensitivity
    assert isinstance(bound, IntegerSensitivity)
    assert (bound.l1, bound.l2, bound.dimension) == (3, integer_norm(np.sqrt(3)), 5)
    assert codec_of(clip=1.0, rounding=Integer(1, 1)).sensitivity.l2 == 1


@given(st.lists(st.integers(-4, 4), min_size=5, max_size=5))
def test_what_is_sent_keeps_to_the_stated_sensitivity(x):
    codec = codec_of(clip=2.0, rounding=Integer(coordinate_bound=2, l1=3))
    sent = codec.encode_or_zeros(np.array(x), entropy=SystemEntropy())
    values = codec.decode(sent).values
    bound = codec.sensitivity
    assert np.abs(values).sum() <= bound.l1
    assert np.linalg.norm(values) <= bound.l2
    within = max(map(abs, x)) <= 2 and sum(map(abs, x)) <= 3 and np.dot(x, x) <= 4
    assert values.tolist() == (x if within else [0] * 5)


def test_floats_pass_where_they_are_whole():
    codec = codec_of()
    x = np.array([1.0, 0, -1, 0, 0], dtype=np.float32)
    assert codec.decode(codec.encode(x, entropy=SystemEntropy())).values.tolist() == x.tolist()


@pytest.mark.parametrize("bad", [0.5, np.nan, np.inf])
def test_floats_that_are_no_integers_are_refused(bad):
    codec, x = codec_of(), np.array([bad, 0, 0, 0, 0])
    with pytest.raises(DomainError, match="not integers"):
        codec.encode(x, entropy=SystemEntropy())
    sent = codec.encode_or_zeros(x, entropy=SystemEntropy())
    assert not codec.decode(sent).values.any()


def test_strings_and_wrong_lengths_are_refused():
    with pytest.raises(KindError, match="array of integers"):
        codec_of().encode(np.array(["a"] * 5), entropy=SystemEntropy())
    with pytest.raises(ShapeError, match="5 numbers"):
        codec_of().encode(np.zeros(4, dtype=int), entropy=SystemEntropy())


@pytest.mark.parametrize("changes", [{"scale": 2.0}, {"padded_dim": 8}, {"sent_dim": 3}])
def test_integers_are_neither_scaled_nor_padded_nor_left_out(changes):
    with pytest.raises(DomainError, match="as they are"):
        spec_of(**changes)


@pytest.mark.parametrize(("largest", "l1"), [(0, 1), (2, 1), (2**31, 2**31)])
def test_bounds_must_be_consistent(largest, l1):
    with pytest.raises(DomainError):
        Integer(largest, l1)


@pytest.mark.parametrize("kind", [np.int8, np.int16])
def test_the_least_number_of_a_narrow_type_counts_with_its_magnitude(kind):
    least = np.iinfo(kind).min  # whose magnitude the type itself does not hold
    codec = codec_of(bits=24, clip=1e6, rounding=Integer(coordinate_bound=1 << 16, l1=1 << 17))
    with pytest.raises(DomainError, match="L1 norm"):
        codec_of(clip=1e6, rounding=Integer(coordinate_bound=-least, l1=-4 * least)).encode(
            np.full(5, least, dtype=kind), entropy=SystemEntropy()
        )
    one = np.array([least, 0, 0, 0, 0], dtype=kind)
    assert codec.decode(codec.encode(one, entropy=SystemEntropy())).values[0] == least


def test_tensors_are_integers_with_or_without_a_gradient_or_refused_by_our_error():
    torch = pytest.importorskip("torch")
    values = torch.tensor([1.0, 0.0, -1.0], requires_grad=True)
    np.testing.assert_array_equal(integer_vector(values), [1, 0, -1])
    np.testing.assert_array_equal(integer_vector(torch.tensor([2, 3])), [2, 3])
    with pytest.raises(KindError, match="no tensor that NumPy can read"):
        integer_vector(torch.zeros(3, dtype=torch.bfloat16))
