import io
import itertools
import json
import sqlite3
from contextlib import closing

import h5py
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from oracles.example_writer import example
from oracles.tff_files import write_hdf5, write_sqlite
from skellam.errors import DataError
from skellam.federated.data import pooled
from skellam.tasks import paper_sets as data
from skellam.tasks.paper_sets import leaf_images, parquet_images, tff_images

WRITERS = {f"f{number:04d}": 2 + number % 3 for number in range(20)}


def drawing(writer, row):
    """Ink of a made-up character, exact in eight bits: 51/255 in a few places."""
    ink = np.zeros((28, 28), dtype=np.float32)
    ink[5 + row, 3 : 4 + int(writer[1:])] = 0.2
    return ink


def label(writer, row):
    return (int(writer[1:]) * 3 + row) % 62


def emnist_hdf5(path):
    clients = {
        writer: {
            "pixels": np.stack([1 - drawing(writer, row) for row in range(count)]),
            "label": np.array([label(writer, row) for row in range(count)], dtype=np.int32),
        }
        for writer, count in WRITERS.items()
    }
    write_hdf5(path, clients)
    write_hdf5(path.with_name(path.name.replace("train", "test")), clients)


def emnist_sqlite(path):
    clients = {
        writer: [
            example(
                {
                    "pixels": [float(x) for x in (1 - drawing(writer, row)).ravel()],
                    "label": [label(writer, row)],
                }
            )
            for row in range(count)
        ]
        for writer, count in WRITERS.items()
    }
    write_sqlite(path, {"all_train": clients, "all_test": clients})


def emnist_leaf(path):
    content = {
        "users": list(WRITERS),
        "num_samples": list(WRITERS.values()),
        "user_data": {
            writer: {
                "x": [(1 - drawing(writer, row)).ravel().tolist() for row in range(count)],
                "y": [label(writer, row) for row in range(count)],
            }
            for writer, count in WRITERS.items()
        },
    }
    path.write_text(json.dumps(content))


def png(ink):
    octets = io.BytesIO()
    Image.fromarray(np.uint8(np.round((1 - ink) * 255))).save(octets, "PNG")
    return octets.getvalue()


def emnist_parquet(path):
    rows = [(writer, row) for row in range(4) for writer, n in WRITERS.items() if row < n]
    table = pa.table(
        {
            "image": [{"bytes": png(drawing(*row)), "path": None} for row in rows],
            "writer_id": [writer for writer, _ in rows],
            "hsf_id": [0 for _ in rows],
            "character": [label(*row) for row in rows],
        }
    )
    parquet.write_table(table, path)


EMNIST = {
    "fed_emnist_train.h5": emnist_hdf5,
    "emnist_all.sqlite": emnist_sqlite,
    "femnist.json": emnist_leaf,
    "femnist.parquet": emnist_parquet,
}
READ = {
    "fed_emnist_train.h5": tff_images,
    "emnist_all.sqlite": lambda path: tff_images(path, split="all_train"),
    "femnist.json": leaf_images,
    "femnist.parquet": parquet_images,
}


@pytest.mark.parametrize("name", EMNIST)
def test_characters_are_the_same_whatever_file_they_came_in(tmp_path, name):
    EMNIST[name](tmp_path / name)
    writers = READ[name](tmp_path / name)
    assert list(writers) == list(WRITERS)
    for writer, count in WRITERS.items():
        ink = np.stack([drawing(writer, row) for row in range(count)])
        np.testing.assert_allclose(writers[writer].inputs, 1 - ink, atol=1e-6)
        assert writers[writer].targets.tolist() == [label(writer, row) for row in range(count)]


@pytest.mark.parametrize("name", EMNIST)
def test_emnist_is_found_in_its_folder_and_split(tmp_path, monkeypatch, name):
    EMNIST[name](tmp_path / name)
    splits = data.emnist(tmp_path)
    monkeypatch.setenv("SKELLAM_DATA", str(tmp_path))
    assert (
        list(splits.train) == list(data.emnist().train) == list(data.emnist(tmp_path / name).train)
    )
    assert not set(splits.validation) & set(splits.test)
    assert len(pooled(splits.test)) > 0


@pytest.mark.parametrize("name", ["fed_emnist_train.h5", "emnist_all.sqlite"])
def test_the_full_test_set_is_reported_on_where_that_is_asked_for(tmp_path, name):
    EMNIST[name](tmp_path / name)
    splits = data.emnist(tmp_path, full_test=True)
    assert list(splits.test) == list(WRITERS)
    assert splits.validation is None


@pytest.mark.parametrize("name", EMNIST)
def test_a_truncated_file_is_refused(tmp_path, name):
    path = tmp_path / name
    EMNIST[name](path)
    whole = path.read_bytes()
    for end in (0, 3, len(whole) // 2, len(whole) - 40):
        path.write_bytes(whole[:end])
        with pytest.raises(
            DataError, match=r"damaged|empty|not HDF5 or SQLITE|not JSON|not PARQUET"
        ):
            dict(READ[name](path))


PAIRS = [
    (name, other)
    for name, other in itertools.permutations(EMNIST, 2)
    if {name, other} != {"fed_emnist_train.h5", "emnist_all.sqlite"}  # one reader for both
]


@pytest.mark.parametrize(("name", "other"), PAIRS)
def test_a_file_under_a_wrong_name_is_known_by_its_bytes(tmp_path, name, other):
    EMNIST[name](tmp_path / name)
    (tmp_path / name).rename(tmp_path / other)
    with pytest.raises(DataError, match="its first bytes are those of"):
        READ[other](tmp_path / other)


def test_a_label_out_of_range_swapped_ink_and_missing_features_are_named(tmp_path):
    path = tmp_path / "train.h5"
    paper, labels = np.ones((1, 28, 28), np.float32), np.array([3])
    write_hdf5(
        path,
        {
            "label": {"pixels": paper, "label": np.array([62])},
            "swapped": {"pixels": 1 - paper, "label": labels},
            "range": {"pixels": 200 * paper, "label": labels},
            "shape": {"pixels": paper[:, :27], "label": labels},
            "words": {"pixels": np.array([b"ink"]), "label": labels},
            "missing": {"pixels": paper},
        },
    )
    clients = tff_images(path)
    for client, problem in {
        "label": "labels",
        "swapped": "swapped",
        "range": r"\[0, 1\]",
        "shape": "do not go with",
        "words": "numbers",
        "missing": "no feature 'label'",
    }.items():
        with pytest.raises(DataError, match=f"client {client}.*{problem}"):
            clients[client]


def test_hdf5_without_examples_is_not_tffs(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["weights"] = [1.0]
    with pytest.raises(DataError, match="no group 'examples'"):
        tff_images(tmp_path / "other.h5")


def test_sqlite_names_its_splits_and_counts_its_rows(tmp_path):
    path = tmp_path / "emnist_all.sqlite"
    emnist_sqlite(path)
    with pytest.raises(DataError, match="'all_test', 'all_train'"):
        tff_images(path, split="train")
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE client_metadata SET num_examples = 9 WHERE client_id = 'f0000'")
        database.execute(
            "UPDATE examples SET serialized_example_proto = x'0a' WHERE client_id = 'f0001'"
        )
        database.commit()
    clients = tff_images(path, split="all_train")
    for client, problem in {
        "f0000": "9 examples are stated",
        "f0001": "ends in the middle",
    }.items():
        with pytest.raises(DataError, match=problem):
            clients[client]
    with closing(sqlite3.connect(tmp_path / "other.sqlite")) as database:
        database.execute("CREATE TABLE t (x)")
    with pytest.raises(DataError, match="not a file of TFF's"):
        tff_images(tmp_path / "other.sqlite", split="all_train")


@pytest.mark.parametrize(
    "content",
    [
        {"users": ["a"], "user_data": {}},
        {"users": ["a"], "num_samples": [], "user_data": {}},
        {"users": ["a"], "num_samples": [1], "user_data": {}},
        {"users": ["a"], "num_samples": [2], "user_data": {"a": {"x": [[0.0] * 784], "y": [1]}}},
        {"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [["ink"]], "y": [1]}}},
        {
            "users": ["a", "a"],
            "num_samples": [1, 1],
            "user_data": {"a": {"x": [[1] * 784], "y": [1]}},
        },
    ],
)
def test_leaf_files_that_contradict_themselves_are_refused(tmp_path, content):
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"a\.json"):
        leaf_images(tmp_path / "a.json")


def test_leaf_data_may_be_a_folder_of_files(tmp_path):
    for user in ("a", "b"):
        content = {"x": [[1.0] * 784], "y": [1]}
        text = json.dumps({"users": [user], "num_samples": [1], "user_data": {user: content}})
        (tmp_path / f"{user}.json").write_text(text)
    assert list(leaf_images(tmp_path)) == ["a", "b"]


def test_a_parquet_file_with_a_broken_image_or_without_a_column_is_refused(tmp_path):
    table = {"image": [{"bytes": b"no png"}], "writer_id": ["w"], "character": [1]}
    parquet.write_table(pa.table(table), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="writer w: an image"):
        parquet_images(tmp_path / "a.parquet")["w"]
    del table["character"]
    parquet.write_table(pa.table(table), tmp_path / "b.parquet")
    with pytest.raises(DataError, match="no column 'character'"):
        parquet_images(tmp_path / "b.parquet")


def test_a_train_file_needs_its_test_file_and_a_compressed_one_is_named(tmp_path):
    emnist_hdf5(tmp_path / "fed_emnist_train.h5")
    (tmp_path / "fed_emnist_test.h5").unlink()
    with pytest.raises(DataError, match=r"fed_emnist_test\.h5 cannot be read"):
        data.emnist(tmp_path)
    (tmp_path / "fed_emnist_train.h5").rename(tmp_path / "mine.h5")
    with pytest.raises(DataError, match="'train' in its name"):
        data.emnist(tmp_path / "mine.h5")
    (tmp_path / "emnist_all.sqlite").write_bytes(b"\xfd7zXZ\x00more")
    with pytest.raises(DataError, match="compressed"):
        data.emnist(tmp_path)


def test_emnist_is_read_from_leafs_folder_of_parts(tmp_path):
    emnist_leaf(tmp_path / "all_data_0.json")
    splits = data.emnist(tmp_path)
    assert {*splits.train, *splits.validation, *splits.test} == set(WRITERS)
