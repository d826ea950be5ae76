import numpy as np

import skellam as sk
from oracles.tiny_task import seeded
from skellam.entropy import random_bytes
from skellam.federated.sampling import Streams


def first(streams, context):
    return random_bytes(16, entropy=streams(context))


def test_a_seed_gives_every_context_its_own_stream_whatever_came_before():
    one, other = Streams.of(seeded()), Streams.of(seeded())
    first(one, "something else")
    assert first(one, "a") == first(other, "a") != first(other, "b")
    assert first(one.scope("round/1"), "a") != first(one.scope("round/2"), "a")
    assert one.commitment == other.commitment != Streams.of(seeded("another")).commitment
    assert one.replayable


def test_secret_entropy_serves_everybody_and_commits_to_nothing():
    entropy = sk.SystemEntropy()
    streams = Streams.of(entropy)
    assert streams("a") is streams.scope("round/1")("b") is entropy
    assert not streams.replayable
    assert streams.commitment == ""
    assert not np.array_equal(first(streams, "a"), first(streams, "a"))
