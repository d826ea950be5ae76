import json

import numpy as np
import pandas as pd
import pytest

from oracles.example_writer import example
from oracles.tff_files import write_hdf5, write_sqlite
from skellam import federated as fl
from skellam.errors import DataError, DomainError

TABLE = {
    "who": ["ann", "bob", "ann", "cid"],
    "age": [41, 35, 41, 20],
    "income": [1.5, 2.5, 3.5, 4.5],
    "spend": [0.5, 1.0, 1.5, 2.0],
    "city": ["a", "b", "c", "d"],
    "pixels": [[1, 2], [3, 4], [5, 6], [7, 8]],
}
FRAMES = {"pandas": pd.DataFrame, "mapping": dict}


@pytest.mark.parametrize("kind", FRAMES)
def test_a_table_is_divided_by_its_column_of_users(kind):
    clients = fl.data.by_user(
        FRAMES[kind](TABLE), user="who", inputs=["age", "income"], target="spend"
    )
    assert list(clients) == ["ann", "bob", "cid"]
    assert clients["ann"].inputs.tolist() == [[41, 1.5], [41, 3.5]]
    assert clients["ann"].inputs.dtype == clients["ann"].targets.dtype == np.float32
    assert clients["bob"].targets.tolist() == [1.0]


@pytest.mark.parametrize("kind", FRAMES)
def test_one_column_may_hold_vectors_and_whole_numbers_stay_whole(kind):
    clients = fl.data.by_user(FRAMES[kind](TABLE), user="who", inputs="pixels", target="age")
    assert clients["ann"].inputs.tolist() == [[1, 2], [5, 6]]
    assert clients["ann"].inputs.dtype == clients["ann"].targets.dtype == np.int64


@pytest.mark.parametrize("kind", ["pandas"])
@pytest.mark.parametrize(
    ("change", "columns", "match"),
    [
        ({}, {"user": "whom"}, "no column 'whom', only who, age"),
        ({}, {"inputs": ["city"]}, "'city' must be numbers"),
        ({}, {"inputs": ["pixels"]}, "name it alone"),
        ({}, {"inputs": []}, "at least one, got none"),
        ({"who": ["a", None, "b", "c"]}, {}, "1 missing users"),
        ({"who": ["a", "", "b", "c"]}, {}, "1 missing users"),
        ({"who": pd.array(["a", None, "b", None], dtype="string")}, {}, "2 missing users"),
        ({"who": pd.array([1, None, 2, 3], dtype="Int64")}, {}, "1 missing users"),
        ({name: [] for name in TABLE}, {}, "'who' has no rows"),
        ({"income": [1.0, None, None, 2.0]}, {}, "'income' has 2 missing"),
        ({"pixels": [[1], [1, 2], [3], [4]]}, {"inputs": "pixels"}, "different length"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_by_its_column(kind, change, columns, match):
    settings = {"user": "who", "inputs": ["age", "income"], "target": "spend", **columns}
    with pytest.raises((DataError, DomainError), match=match):
        fl.data.by_user(FRAMES[kind]({**TABLE, **change}), **settings)


def test_what_is_no_table_is_refused():
    with pytest.raises(DomainError, match="named columns"):
        fl.data.by_user(np.zeros(3), user="a", inputs="b", target="c")


def test_a_folder_has_one_file_or_folder_a_client(tmp_path):
    np.savez(tmp_path / "ann.npz", inputs=np.ones((2, 3)), targets=[0, 1])
    (tmp_path / "bob").mkdir()
    for part in (1, 2):
        np.savez(tmp_path / "bob" / f"{part}.npz", inputs=np.ones((part, 3)), targets=[part] * part)
    (tmp_path / ".hidden").write_text("")
    clients = fl.data.folder(tmp_path)
    assert list(clients) == ["ann", "bob"]
    assert clients["bob"].targets.tolist() == [1, 2, 2]
    names = fl.data.folder(tmp_path, load=lambda path: path.name)
    assert dict(names) == {"ann": "ann.npz", "bob": "bob"}


def test_a_folder_that_cannot_be_read_says_why(tmp_path):
    with pytest.raises(DataError, match="is empty"):
        fl.data.folder(tmp_path)
    with pytest.raises(DataError, match="must be a folder"):
        fl.data.folder(tmp_path / "nowhere")
    (tmp_path / "ann.txt").write_text("x")
    (tmp_path / "bob.npz").write_bytes(b"PK")
    clients = fl.data.folder(tmp_path)
    with pytest.raises(DataError, match="load="):
        clients["ann"]
    with pytest.raises(DataError, match="arrays inputs and targets"):
        clients["bob"]
    (tmp_path / "ann.csv").write_text("x")
    with pytest.raises(DataError, match="same name"):
        fl.data.folder(tmp_path)


def test_leafs_folder_of_parts_is_read_as_one(tmp_path):
    for part, users in enumerate((["u1", "u2"], ["u3"])):
        content = {
            "users": users,
            "num_samples": [1] * len(users),
            "user_data": {user: {"x": [[0.5, part]], "y": [part]} for user in users},
        }
        (tmp_path / f"all_data_{part}.json").write_text(json.dumps(content))
    clients = fl.data.leaf(tmp_path)
    assert list(clients) == ["u1", "u2", "u3"]
    assert clients["u3"].inputs.tolist() == [[0.5, 1.0]]
    assert clients["u3"].targets.tolist() == [1]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="all_data_0"):
        fl.data.leaf(tmp_path / "empty")


@pytest.mark.parametrize("kind", ["hdf5", "sqlite"])
def test_a_file_of_tffs_is_read_by_the_names_of_its_features(tmp_path, kind):
    path = tmp_path / "file"
    if kind == "hdf5":
        write_hdf5(path, {"u": {"age": np.array([[1.0, 2.0]]), "spend": np.array([3.0])}})
    else:
        write_sqlite(path, {"train": {"u": [example({"age": [1.0, 2.0], "spend": [3.0]})]}})
    clients = fl.data.tff(path, inputs="age", target="spend")
    assert clients["u"].inputs.tolist() == [[1.0, 2.0]]
    assert clients["u"].targets.tolist() == [3.0]
