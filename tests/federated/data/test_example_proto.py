import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.example_writer import example, field, varint
from skellam.errors import DataError
from skellam.federated.data.example_proto import parse_example

FEATURES = {"pixels": [0.5, 1.0, -0.25], "label": [7, -1, 2**62], "snippets": [b"To be", b""]}


@pytest.mark.parametrize("packed", [True, False])
def test_what_was_serialised_is_read_back(packed):
    parsed = parse_example(example(FEATURES, packed=packed))
    np.testing.assert_array_equal(parsed["pixels"], np.float32(FEATURES["pixels"]))
    np.testing.assert_array_equal(parsed["label"], FEATURES["label"])
    assert parsed["snippets"] == (b"To be", b"")


def test_bytes_written_by_hand_from_the_encoding_guide_are_read():
    """Example(features=Features(feature={"a": Feature(int64_list=Int64List(value=[5]))}))."""
    octets = bytes.fromhex("0a0c0a0a0a016112051a030a0105")
    assert list(parse_example(octets)["a"]) == [5]


def test_a_truncated_example_is_refused_or_shorter_by_whole_fields():
    octets = example(FEATURES)
    for end in range(1, len(octets)):
        with pytest.raises(DataError):
            parse_example(octets[:end])


@given(st.binary(max_size=60))
def test_no_bytes_break_the_parser(octets):
    try:
        features = parse_example(octets)
    except DataError:
        return
    assert all(isinstance(name, str) for name in features)


@pytest.mark.parametrize(
    "octets",
    [
        varint(1 << 3 | 3),
        varint(1 << 3) + varint(4),
        field(1, field(1, b"")),
        field(1, field(1, field(1, b"\xff") + field(2, b""))),
        field(1, field(1, field(1, b"a") + field(2, field(9, b"")))),
        field(1, field(1, field(1, b"a") + field(2, field(2, field(1, b"123"))))),
        field(1, field(1, field(1, b"a") + field(2, field(3, varint(8) + b"\xff" * 11)))),
    ],
)
def test_what_no_example_has_is_refused(octets):
    with pytest.raises(DataError):
        parse_example(octets)
