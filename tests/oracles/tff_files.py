"""Writes the files of TensorFlow Federated, small."""

import sqlite3
from contextlib import closing

import h5py


def write_hdf5(path, clients):
    with h5py.File(path, "w") as file:
        for client, features in clients.items():
            for name, values in features.items():
                file[f"examples/{client}/{name}"] = values


def write_sqlite(path, splits):
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "CREATE TABLE examples (split_name TEXT, client_id TEXT, serialized_example_proto BLOB)"
        )
        database.execute(
            "CREATE TABLE client_metadata (client_id TEXT, split_name TEXT, num_examples INTEGER)"
        )
        for split, clients in splits.items():
            for client, protos in clients.items():
                rows = [(split, client, proto) for proto in protos]
                database.executemany("INSERT INTO examples VALUES (?, ?, ?)", rows)
                database.execute(
                    "INSERT INTO client_metadata VALUES (?, ?, ?)", (client, split, len(rows))
                )
        database.commit()
