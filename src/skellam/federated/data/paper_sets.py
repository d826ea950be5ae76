"""The paper's three data sets, in whichever file the user holds them."""

from __future__ import annotations

import json
from pathlib import Path

from skellam.errors import DataError
from skellam.federated.data import hdf5, hugging_face, leaf, sqlite
from skellam.federated.data.clients import Clients, T
from skellam.federated.data.files import Format, Location, Source, locate, require_format
from skellam.federated.data.split import Splits, divided
from skellam.federated.data.vocabulary import CHARACTERS, Vocabulary, next_characters, next_words

EMNIST = Source(
    "emnist",
    ("fed_emnist_train.h5", "emnist_all.sqlite", "femnist.parquet", "femnist.json"),
    "TensorFlow Federated (tff.simulation.datasets.emnist keeps it in ~/.keras/datasets), "
    "Hugging Face (flwrlabs/femnist) or LEAF (leaf.cmu.edu)",
)
SHAKESPEARE = Source(
    "shakespeare",
    ("shakespeare_train.h5", "shakespeare.sqlite", "shakespeare.csv", "shakespeare.json"),
    "TensorFlow Federated (tff.simulation.datasets.shakespeare keeps it in ~/.keras/datasets), "
    "Hugging Face (flwrlabs/shakespeare) or LEAF (leaf.cmu.edu)",
)
STACKOVERFLOW = Source(
    "stackoverflow",
    ("stackoverflow_train.h5", "stackoverflow.sqlite"),
    "TensorFlow Federated (tff.simulation.datasets.stackoverflow keeps it in ~/.keras/datasets)",
)
WORD_COUNT = Source(
    "stackoverflow word counts",
    ("stackoverflow.word_count", "stackoverflow_word_count.json"),
    "TensorFlow Federated (stackoverflow.word_count.tar.bz2, unpacked: one JSON object)",
)


def emnist(path: Location = None) -> Splits:
    """Return handwritten characters of 62 classes by writer.

    TFF's files divide each writer's own images; the others are divided by writers.
    """
    file = locate(EMNIST, path)
    match require_format(file, Format.HDF5, Format.SQLITE, Format.PARQUET, Format.JSON):
        case Format.HDF5:
            held_out = hdf5.read_images(_beside(file, "test"))
            return Splits(hdf5.read_images(file), *_halves(held_out), classes=62)
        case Format.SQLITE:
            held_out = sqlite.read_images(file, split="all_test")
            train = sqlite.read_images(file, split="all_train")
            return Splits(train, *_halves(held_out), classes=62)
        case Format.PARQUET:
            writers = hugging_face.read_images(file)
        case _:
            writers = leaf.read_images(file)
    return Splits(*divided(writers, "emnist", validation=0.1, test=0.1), classes=62)


def shakespeare(path: Location = None, *, length: int = 80) -> Splits:
    """Return the next characters of Shakespeare's roles."""
    file = locate(SHAKESPEARE, path)
    match require_format(file, Format.HDF5, Format.SQLITE, Format.TEXT, Format.JSON):
        case Format.HDF5:
            train = hdf5.read_texts(file, "snippets")
            held_out = hdf5.read_texts(_beside(file, "test"), "snippets")
        case Format.SQLITE:
            train = sqlite.read_texts(file, "snippets", split="train")
            held_out = sqlite.read_texts(file, "snippets", split="test")
        case found:
            read = leaf if found is Format.JSON else hugging_face
            roles = divided(read.read_characters(file), "shakespeare", validation=0.1, test=0.1)
            return Splits(*roles, classes=CHARACTERS.size)
    texts = train, *_halves(held_out)
    groups = (next_characters(group, length=length) for group in texts)
    return Splits(*groups, classes=CHARACTERS.size)


def stackoverflow(path: Location = None, *, words: int = 10_000, length: int = 20) -> Splits:
    """Return the next words of Stack Overflow's users, over the public list of common words."""
    file = locate(STACKOVERFLOW, path)
    vocabulary = _counted_words(locate(WORD_COUNT, file.parent), words)
    match require_format(file, Format.HDF5, Format.SQLITE):
        case Format.HDF5:
            groups = [hdf5.read_texts(file, "tokens")]
            groups += [hdf5.read_texts(_beside(file, s), "tokens") for s in ("held_out", "test")]
        case _:
            names = ("train", "heldout", "test")
            groups = [sqlite.read_texts(file, "tokens", split=name) for name in names]
    words_after = (next_words(group, vocabulary, length=length) for group in groups)
    return Splits(*words_after, classes=vocabulary.size)


def _beside(file: Path, split: str) -> Path:
    if "train" not in file.name:
        raise DataError(f"{file} must have 'train' in its name, so that its {split} file is found")
    return file.with_name(file.name.replace("train", split))


def _halves(clients: Clients[T]) -> tuple[Clients[T], Clients[T]]:
    ids = list(clients)
    return clients.only(ids[::2]), clients.only(ids[1::2])


def _counted_words(path: Path, count: int) -> Vocabulary:
    require_format(path, Format.JSON)
    try:
        counts = json.loads(path.read_bytes())
        ranked = sorted(counts, key=lambda word: (-int(counts[word]), word))
    except (ValueError, TypeError) as error:
        raise DataError(f"{path} must hold one JSON object, {{word: count}}: {error}") from error
    return Vocabulary(tuple(ranked[:count]))
