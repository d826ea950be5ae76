from functools import cache

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from oracles.example_writer import example, field, varint
from skellam.errors import DataError
from skellam.federated.data.files import parse_example

FEATURES = {"pixels": [0.5, 1.0, -0.25], "label": [7, -1, 2**62], "snippets": [b"To be", b""]}


@pytest.mark.parametrize("packed", [True, False])
def test_what_was_serialised_is_read_back(packed):
    parsed = parse_example(example(FEATURES, packed=packed))
    np.testing.assert_array_equal(parsed["pixels"], np.float32(FEATURES["pixels"]))
    np.testing.assert_array_equal(parsed["label"], FEATURES["label"])
    assert parsed["snippets"] == (b"To be", b"")


@cache
def google_example():
    """Return ``tf.train.Example`` as google.protobuf builds it from the schema."""
    schema = descriptor_pb2.FileDescriptorProto(name="example.proto", package="tf", syntax="proto3")
    lists = {"BytesList": "TYPE_BYTES", "FloatList": "TYPE_FLOAT", "Int64List": "TYPE_INT64"}
    for name, kind in lists.items():
        schema.message_type.add(name=name).field.add(
            name="value", number=1, type=kind, label="LABEL_REPEATED"
        )
    feature = schema.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(lists, start=1):
        feature.field.add(
            name=name.lower(),
            number=number,
            type="TYPE_MESSAGE",
            type_name=f".tf.{name}",
            label="LABEL_OPTIONAL",
            oneof_index=0,
        )
    features = schema.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry", options={"map_entry": True})
    entry.field.add(name="key", number=1, type="TYPE_STRING", label="LABEL_OPTIONAL")
    entry.field.add(
        name="value",
        number=2,
        type="TYPE_MESSAGE",
        type_name=".tf.Feature",
        label="LABEL_OPTIONAL",
    )
    features.field.add(
        name="feature",
        number=1,
        type="TYPE_MESSAGE",
        type_name=".tf.Features.FeatureEntry",
        label="LABEL_REPEATED",
    )
    schema.message_type.add(name="Example").field.add(
        name="features",
        number=1,
        type="TYPE_MESSAGE",
        type_name=".tf.Features",
        label="LABEL_OPTIONAL",
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(schema)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tf.Example"))


VALUES = st.one_of(
    st.tuples(st.just("byteslist"), st.lists(st.binary(max_size=20), max_size=5)),
    st.tuples(st.just("floatlist"), st.lists(st.floats(width=32, allow_nan=False), max_size=5)),
    st.tuples(st.just("int64list"), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5)),
)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), VALUES))
def test_what_google_protobuf_serialises_is_read_as_google_protobuf_reads_it(features):
    message = google_example()()
    for name, (kind, values) in features.items():
        getattr(message.features.feature[name], kind).value.extend(values)
        getattr(message.features.feature[name], kind).SetInParent()
    octets = message.SerializeToString()
    theirs = google_example().FromString(octets).features.feature
    ours = parse_example(octets)
    assert ours.keys() == theirs.keys() == features.keys()
    for name, found in ours.items():
        expected = getattr(theirs[name], features[name][0]).value
        assert list(found) == list(expected)


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
