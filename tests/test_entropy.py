import copy
import os
import pickle
import threading

import numpy as np
import pytest
from Crypto.Cipher import AES
from Crypto.Hash import SHA256
from Crypto.Protocol.KDF import HKDF
from hypothesis import given
from hypothesis import strategies as st

from skellam import entropy as module
from skellam.entropy import SeededEntropy, SystemEntropy, random_bytes
from skellam.errors import DomainError, KindError, ShapeError
from skellam.noise import SkellamSampler

SEED = bytes(range(32))


def stream(entropy, count=64):
    return random_bytes(count, entropy=entropy)


@given(st.binary(min_size=32, max_size=32), st.text(min_size=1), st.integers(0, 1000))
def test_a_seeded_stream_is_aes_256_ctr_under_an_hkdf_key(seed, context, count):
    """Another implementation of AES, SHA-256 and HKDF (pycryptodome) gives the same bytes."""
    key = HKDF(seed, 32, b"", SHA256, context=b"skellam/1/" + context.encode("utf-8"))
    cipher = AES.new(key, AES.MODE_CTR, nonce=b"", initial_value=0)
    assert stream(SeededEntropy(seed, context), count) == cipher.encrypt(bytes(count))


def test_the_golden_stream_does_not_change():
    """First computed with pycryptodome as in the test above: old seeds must replay for ever."""
    assert stream(SeededEntropy(SEED, "golden"), 16).hex() == "34263cdc40c6b142e0db8e9828664f5a"


@given(st.lists(st.integers(0, 300_000), max_size=4))
def test_how_a_seeded_stream_is_cut_does_not_matter(sizes):
    whole = stream(SeededEntropy(SEED, "cut"), sum(sizes))
    entropy = SeededEntropy(SEED, "cut")
    assert b"".join(stream(entropy, size) for size in sizes) == whole


def test_other_contexts_and_other_seeds_give_other_bits():
    streams = {
        stream(SeededEntropy(seed, context))
        for seed in (SEED, bytes(32))
        for context in ("a", "b", "a/b", "ab")
    }
    assert len(streams) == 8


@pytest.mark.parametrize("context", ["", None, b"bytes"])
def test_a_seed_without_a_context_is_refused(context):
    with pytest.raises(DomainError):
        SeededEntropy(SEED, context)


@pytest.mark.parametrize("seed", [b"", bytes(31), bytes(33)])
def test_a_seed_of_another_length_is_refused(seed):
    with pytest.raises(ShapeError, match="32 bytes"):
        SeededEntropy(seed, "a")


def test_a_seed_that_is_no_bytes_is_refused():
    with pytest.raises(KindError):
        SeededEntropy("x" * 32, "a")


def test_only_a_seed_can_be_replayed():
    assert SeededEntropy(SEED, "a").replayable
    assert not SystemEntropy().replayable
    with pytest.raises(TypeError):
        pickle.dumps(SeededEntropy(SEED, "a"))


@pytest.mark.parametrize(
    "entropy", [SystemEntropy(), SeededEntropy(SEED, "a")], ids=["system", "seeded"]
)
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint32, np.uint64, np.float32])
def test_a_buffer_is_filled_in_place_to_its_last_byte(entropy, dtype):
    buffer = np.zeros(400_000, dtype=dtype)
    guard = buffer[100:-100]
    entropy.fill(guard)
    octets = guard.view(np.uint8)
    assert not buffer[:100].any()
    assert not buffer[-100:].any()
    assert octets[:64].any()
    assert octets[-64:].any()
    assert len(np.unique(octets)) == 256


@pytest.mark.parametrize("shape", [0, (), (3, 5)])
def test_buffers_of_every_shape_are_filled(shape):
    buffer = np.zeros(shape, dtype=np.uint64)
    SystemEntropy().fill(buffer)
    assert (buffer != 0).all()  # false alarm: 15 words of 2**-64


@pytest.mark.parametrize("buffer", [bytearray(4), [0], np.zeros(4, bool), np.zeros(4, "U1")])
def test_other_buffers_are_refused(buffer):
    with pytest.raises(KindError):
        SystemEntropy().fill(buffer)


def test_a_buffer_with_gaps_or_without_leave_to_write_is_refused():
    locked = np.zeros(4, dtype=np.uint8)
    locked.flags.writeable = False
    for buffer in (np.zeros(8, dtype=np.uint8)[::2], locked):
        with pytest.raises(DomainError, match="fresh array"):
            SystemEntropy().fill(buffer)


def in_child(work):
    """Run ``work`` in a forked child and return its bytes."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, work())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        received = pipe.read()
    os.waitpid(child, 0)
    return received


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_draws_other_noise():
    entropy, law = SystemEntropy(), SkellamSampler(100)
    law.draw(10, entropy=entropy)

    def work():
        return law.draw(100, entropy=entropy).values.tobytes()

    draws = [in_child(work), in_child(work), work()]
    assert all(len(draw) == 200 for draw in draws)
    assert len(set(draws)) == 3


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_grandchild_draws_other_noise_too():
    entropy = SystemEntropy()
    stream(entropy)
    family = in_child(lambda: stream(entropy) + in_child(lambda: stream(entropy)))
    family += stream(entropy)
    assert len({family[i : i + 64] for i in range(0, 192, 64)}) == 3


def test_two_threads_draw_different_noise():
    entropy, law = SystemEntropy(), SkellamSampler(100)
    draws = []
    threads = [
        threading.Thread(
            target=lambda: draws.append(law.draw(100_000, entropy=entropy).values.tobytes())
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(draws)) == 8


def test_threads_share_a_seeded_stream_without_overlap():
    entropy = SeededEntropy(SEED, "threads")
    pieces = []
    threads = [
        threading.Thread(target=lambda: pieces.append(stream(entropy, 1 << 20))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = stream(SeededEntropy(SEED, "threads"), 4 << 20)
    assert sorted(pieces) == sorted(whole[i << 20 : (i + 1) << 20] for i in range(4))


def test_copies_and_pickles_carry_no_key():
    entropy = SystemEntropy()
    stream(entropy)
    others = [copy.copy(entropy), copy.deepcopy(entropy), pickle.loads(pickle.dumps(entropy))]
    assert len({stream(each) for each in (entropy, *others)}) == 4


def test_a_key_is_given_up_after_its_share_of_bytes(monkeypatch):
    keys = []
    real = os.urandom
    monkeypatch.setattr(module, "_REKEY_AFTER", 1000)
    monkeypatch.setattr(os, "urandom", lambda n: keys.append(real(n)) or keys[-1])
    entropy = SystemEntropy()
    stream(entropy, 600)
    stream(entropy, 400)
    assert len(keys) == 1
    stream(entropy, 1)
    assert len(keys) == 2
    stream(entropy, 2500)
    assert len(keys) == 5


def test_seeded_noise_replays():
    law = SkellamSampler(100)
    first, again = (law.draw(1 << 18, entropy=SeededEntropy(SEED, "noise")) for _ in range(2))
    np.testing.assert_array_equal(first.values, again.values)


def test_system_noise_does_not_replay():
    law, entropy = SkellamSampler(100), SystemEntropy()
    first, again = (law.draw(1000, entropy=entropy) for _ in range(2))
    assert (first.values != again.values).any()
