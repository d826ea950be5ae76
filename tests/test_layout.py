import numpy as np
import pytest
import torch

from oracles.codec_specs import codec_of
from skellam import Reals, SeededEntropy
from skellam.codec import Layout, LeftOut, Slot
from skellam.errors import DomainError, KindError, ShapeError


def model():
    return {
        "conv.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
        "norm.batches": np.array(7, dtype=np.int64),
        "norm.mask": np.array([True, False]),
        "head.bias": np.array([0.5, -0.5], dtype=np.float16),
        "head.scale": np.array(2.5),
    }


def test_a_models_floats_become_one_vector_in_order():
    layout = Layout.of(model())
    assert layout.dimension == 9
    np.testing.assert_array_equal(layout.flatten(model()), [0, 1, 2, 3, 4, 5, 0.5, -0.5, 2.5])
    assert layout.slots[1] == Slot("head.bias", (2,), np.dtype(np.float16))


def test_counters_and_masks_are_left_out_and_it_can_be_read():
    assert Layout.of(model()).left_out == (
        LeftOut("norm.batches", "int64 cannot be averaged"),
        LeftOut("norm.mask", "bool cannot be averaged"),
    )


def test_named_tensors_alone_can_be_taken():
    layout = Layout.of(model(), only={"head.bias", "head.scale"})
    np.testing.assert_array_equal(layout.flatten(model()), [0.5, -0.5, 2.5])
    assert layout.left_out[0] == LeftOut("conv.weight", "not named")


def test_naming_what_is_not_there_or_cannot_be_averaged_raises():
    with pytest.raises(DomainError, match="heads"):
        Layout.of(model(), only={"heads.bias"})
    with pytest.raises(KindError, match=r"norm\.batches.*int64"):
        Layout.of(model(), only={"norm.batches"})


def test_joining_undoes_flattening_with_shapes_and_types():
    layout = Layout.of(model())
    joined = layout.join(Reals(layout.flatten(model())))
    assert list(joined) == ["conv.weight", "head.bias", "head.scale"]
    for name, tensor in joined.items():
        assert tensor.dtype == model()[name].dtype
        np.testing.assert_array_equal(tensor, model()[name])


def test_joining_like_a_model_fills_in_what_was_left_out():
    layout = Layout.of(model())
    joined = layout.join(np.zeros(9), like=model())
    assert list(joined) == list(model())
    assert joined["norm.batches"] == 7
    assert not joined["conv.weight"].any()
    with pytest.raises(ShapeError, match="length 9"):
        layout.join(np.zeros(8))


def test_tensors_that_do_not_fit_the_layout_are_refused():
    other = model() | {"conv.weight": np.zeros((3, 2), dtype=np.float32)}
    with pytest.raises(ShapeError, match="conv"):
        Layout.of(model()).flatten(other)
    with pytest.raises(ShapeError, match="conv"):
        Layout.of(model()).flatten({})


@pytest.mark.parametrize("tensor", [np.zeros(2, dtype=complex), np.array(["a"]), np.longdouble(1)])
def test_what_is_neither_float_nor_integer_is_refused(tensor):
    with pytest.raises(KindError, match="float16, float32 or float64"):
        Layout.of([tensor])


def test_a_torch_model_needs_no_conversion():
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    for tensors in (dict(net.named_parameters()), net.state_dict()):
        layout = Layout.of(tensors)
        expected = [
            t.detach().numpy().reshape(-1) for t in tensors.values() if t.is_floating_point()
        ]
        np.testing.assert_array_equal(layout.flatten(tensors), np.concatenate(expected))
    assert [left.name for left in layout.left_out] == ["1.num_batches_tracked"]
    back = {n: torch.from_numpy(t) for n, t in layout.join(np.zeros(32), like=tensors).items()}
    net.load_state_dict(back)


def test_a_torch_type_that_numpy_lacks_is_refused_by_name():
    with pytest.raises(KindError, match="w is no tensor"):
        Layout.of({"w": torch.zeros(3, dtype=torch.bfloat16)})


def test_the_codec_takes_what_a_layout_takes():
    codec = codec_of(dimension=4, clip=100.0, scale=1.0, padded_dim=4)
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    strided = np.repeat(x, 2, axis=1)[:, ::2]
    forms = [
        x,
        strided,
        x.astype(">f8"),
        x.astype(np.float16),
        Reals(x.reshape(-1)),
        list(x),
        [1.0, 2.0, 3.0, 4.0],
        {"a": x[0], "counter": np.array(1), "b": x[1]},
        torch.tensor(x, requires_grad=True),
        [torch.tensor(x[0]), x[1]],
    ]
    messages = [codec.encode(f, entropy=SeededEntropy(bytes(32), "layout")) for f in forms]
    for message in messages:
        np.testing.assert_array_equal(message.values, messages[0].values)
