"""The same claims as for pandas, with polars' frames and Hugging Face's data sets."""

import datasets
import polars as pl
import pytest
import torch
from torch import nn

import skellam as sk
from oracles.tiny_task import seeded
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
FRAMES = {"polars": pl.DataFrame, "datasets": datasets.Dataset.from_dict}


@pytest.mark.parametrize("kind", FRAMES)
def test_a_table_is_divided_by_its_column_of_users(kind):
    clients = fl.data.by_user(
        FRAMES[kind](TABLE), user="who", inputs=["age", "income"], target="spend"
    )
    assert list(clients) == ["ann", "bob", "cid"]
    assert clients["ann"].inputs.tolist() == [[41, 1.5], [41, 3.5]]
    assert clients["bob"].targets.tolist() == [1.0]
    vectors = fl.data.by_user(FRAMES[kind](TABLE), user="who", inputs="pixels", target="age")
    assert vectors["ann"].inputs.tolist() == [[1, 2], [5, 6]]


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize(
    ("change", "columns", "match"),
    [
        ({}, {"user": "whom"}, "no column 'whom', only who, age"),
        ({}, {"inputs": ["city"]}, "'city' must be numbers"),
        ({"who": ["a", None, "b", "c"]}, {}, "1 missing users"),
        ({"income": [1.0, None, None, 2.0]}, {}, "'income'"),
        ({"pixels": [[1], [1, 2], [3], [4]]}, {"inputs": "pixels"}, "different length"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_by_its_column(kind, change, columns, match):
    settings = {"user": "who", "inputs": ["age", "income"], "target": "spend", **columns}
    with pytest.raises((DataError, DomainError), match=match):
        fl.data.by_user(FRAMES[kind]({**TABLE, **change}), **settings)


@pytest.mark.parametrize(
    "streamed", [pl.LazyFrame(TABLE), datasets.Dataset.from_dict(TABLE).to_iterable_dataset()]
)
def test_what_is_not_in_memory_is_refused_with_what_to_do(streamed):
    with pytest.raises(DomainError, match="collect it first"):
        fl.data.by_user(streamed, user="who", inputs="age", target="spend")


def test_a_hugging_face_data_set_is_read_when_a_user_is_asked_for():
    dataset = datasets.Dataset.from_dict(TABLE)
    clients = fl.data.hugging_face(dataset, user="who", inputs="pixels", target="age")
    assert clients["ann"].inputs.tolist() == [[1, 2], [5, 6]]
    lengths = fl.data.hugging_face(dataset, user="who", convert=lambda rows: len(rows["city"]))
    assert dict(lengths) == {"ann": 2, "bob": 1, "cid": 1}
    with pytest.raises(DomainError, match="one of the two"):
        fl.data.hugging_face(dataset, user="who")


def test_a_hugging_face_data_set_trains():
    words = {"who": [f"u{n % 8}" for n in range(80)], "token": [n % 3 for n in range(80)]}
    dataset = datasets.Dataset.from_dict(words)
    clients = fl.data.hugging_face(dataset, user="who", inputs="token", target="token")
    net = nn.Embedding(3, 3)
    task = fl.Task(net, clients, optimizer=fl.sgd(1.0), test=(torch.arange(3), torch.arange(3)))
    plan = sk.Plan(dimension=task.dimension, clip=1, cohort=8, sampling="all", rounds=10)
    settings = {"aggregate": fl.non_private(), "entropy": seeded()}
    history = fl.train(task, plan.with_noise(1.0, delta=1e-3), **settings)
    assert history.records[-1].test_accuracy == 1
