import csv
import json

import numpy as np
import pytest

from oracles.example_writer import example
from oracles.tff_files import write_hdf5, write_sqlite
from skellam.errors import DataError
from skellam.federated.data import pooled
from skellam.tasks import paper_sets as data

ROLES = {
    f"PLAY_ROLE{number}": [f"Speech {number}.", "To be, or not to be" * 9] for number in range(20)
}


def shakespeare_hdf5(path):
    clients = {role: {"snippets": [s.encode() for s in said]} for role, said in ROLES.items()}
    write_hdf5(path, clients)
    write_hdf5(path.with_name(path.name.replace("train", "test")), clients)


def shakespeare_sqlite(path):
    clients = {r: [example({"snippets": [s.encode()]}) for s in said] for r, said in ROLES.items()}
    write_sqlite(path, {"train": clients, "test": clients})


def windows(role):
    text = ROLES[role][1]
    return [(text[start : start + 80], text[start + 80]) for start in range(3)]


def shakespeare_leaf(path):
    content = {
        "users": list(ROLES),
        "num_samples": [3] * len(ROLES),
        "user_data": {
            role: {"x": [x for x, _ in windows(role)], "y": [y for _, y in windows(role)]}
            for role in ROLES
        },
    }
    path.write_text(json.dumps(content))


def shakespeare_csv(path):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["character_id", "x", "y"])
        writer.writerows((role, *pair) for role in ROLES for pair in windows(role))


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("shakespeare_train.h5", shakespeare_hdf5),
        ("shakespeare.sqlite", shakespeare_sqlite),
        ("shakespeare.json", shakespeare_leaf),
        ("shakespeare.csv", shakespeare_csv),
    ],
)
def test_shakespeare_gives_windows_of_80_and_the_characters_after(tmp_path, name, write):
    write(tmp_path / name)
    splits = data.shakespeare(tmp_path)
    examples = pooled(splits.test)
    assert examples.inputs.shape[1] == examples.targets.shape[1] == 80
    np.testing.assert_array_equal(examples.inputs[:, 1:], examples.targets[:, :-1])
    assert examples.inputs.min() >= 0
    assert examples.inputs.max() < 90


@pytest.mark.parametrize(
    "text", ["character_id,x\na,b\n", "character_id,x,y\na,b\n", 'character_id,x,y\na,"b', "\xff,,"]
)
def test_a_csv_that_is_cut_or_lacks_columns_is_refused(tmp_path, text):
    (tmp_path / "s.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=r"s\.csv"):
        data.csv_characters(tmp_path / "s.csv")


USERS = {f"{number:08d}": ["how do i sort a list", "use sorted"] for number in range(6)}


def stackoverflow_hdf5(folder):
    clients = {user: {"tokens": [s.encode() for s in said]} for user, said in USERS.items()}
    for split in ("train", "held_out", "test"):
        write_hdf5(folder / f"stackoverflow_{split}.h5", clients)


def stackoverflow_sqlite(folder):
    clients = {u: [example({"tokens": [s.encode()]}) for s in said] for u, said in USERS.items()}
    splits = dict.fromkeys(("train", "heldout", "test"), clients)
    write_sqlite(folder / "stackoverflow.sqlite", splits)


@pytest.mark.parametrize("write", [stackoverflow_hdf5, stackoverflow_sqlite])
def test_stackoverflow_gives_the_words_after_words_over_a_public_list(tmp_path, write):
    write(tmp_path)
    (tmp_path / "stackoverflow.word_count").write_text('{"sort": 3, "a": 9, "list": 3}')
    splits = data.stackoverflow(tmp_path, words=2, length=5)
    a, unknown, begin, end = 1, 3, 4, 5
    first, second = splits.train["00000000"].inputs.tolist()
    assert first == [begin, unknown, unknown, unknown, unknown]
    assert second == [begin, unknown, unknown, end, 0]
    assert len(data.stackoverflow(tmp_path).train["00000000"]) == 2
    targets = splits.test["00000005"].targets.tolist()
    assert targets == [[unknown, unknown, unknown, unknown, a], [unknown, unknown, end, 0, 0]]


@pytest.mark.parametrize("name", ["emnist", "shakespeare", "stackoverflow"])
def test_a_missing_data_set_says_where_to_get_it_and_where_to_put_it(tmp_path, monkeypatch, name):
    monkeypatch.delenv("SKELLAM_DATA", raising=False)
    for path in (None, tmp_path):
        with pytest.raises(DataError, match=r"get .* from TensorFlow Federated.*SKELLAM_DATA"):
            getattr(data, name)(path)
