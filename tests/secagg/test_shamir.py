from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.shamir import evaluate, interpolate_at_zero
from skellam.entropy import SeededEntropy, SystemEntropy
from skellam.errors import DomainError, MessageError, TamperError
from skellam.secagg import shares as shamir

SEED = bytes(32)


def points(*numbers):
    return np.array(numbers, dtype="<u2")


@given(
    secrets=st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=3),
    holders=st.sets(st.integers(1, 65535), min_size=1, max_size=12),
    data=st.data(),
)
def test_any_threshold_of_shares_gives_the_secrets(secrets, holders, data):
    threshold = data.draw(st.integers(1, len(holders)))
    at = points(*holders)
    shares = shamir.split(secrets, at, threshold, entropy=SystemEntropy())
    chosen = data.draw(st.permutations(range(len(holders))))[:threshold]
    assert shamir.combine(at[chosen], shares[chosen]) == tuple(secrets)


def test_shares_are_the_textbook_polynomial():
    at = points(1, 2, 9, 65535)
    secret = bytes(range(32))
    shares = shamir.split([secret], at, 3, entropy=SeededEntropy(SEED, "shares"))
    values = shamir.unpack(shares)[:, 0, :].tolist()
    words = np.empty(2 * 16, dtype=np.uint32)
    SeededEntropy(SEED, "shares").fill(words)
    random = (words % 65537).reshape(2, 16).tolist()
    for limb in range(16):
        constant = int.from_bytes(secret[2 * limb : 2 * limb + 2], "little")
        coefficients = [constant, random[0][limb], random[1][limb]]
        assert [row[limb] for row in values] == [evaluate(coefficients, int(x)) for x in at]
        seen = [(int(x), row[limb]) for x, row in zip(at, values, strict=True)]
        assert interpolate_at_zero(seen[:3]) == constant


def test_weights_are_lagrange_weights():
    at = [3, 17, 400, 65535]
    unit = [interpolate_at_zero([(x, int(x == chosen)) for x in at]) for chosen in at]
    assert shamir.weights(points(*at).tobytes()).tolist() == unit


def test_fewer_shares_than_the_threshold_say_nothing():
    """Each value of the first limb is as likely as any other, whatever t - 1 holders see:

    for t = 2 the share of one holder is the same polynomial value for each secret, one slope each.
    """
    share, x = 12345, 7
    slopes = {(share - secret) * pow(x, -1, 65537) % 65537 for secret in range(65536)}
    assert len(slopes) == 65536


def test_field_elements_are_uniform_because_only_the_last_word_is_rejected():
    assert (2**32 - 1) % shamir.PRIME == 0

    class Scripted:
        replayable = True

        def __init__(self):
            self.fills = iter([[0xFFFFFFFF, 65537, 65538], [65536]])

        def fill(self, buffer):
            buffer[:] = next(self.fills)

    assert shamir._uniform(3, Scripted()).tolist() == [65536, 0, 1]


@given(st.lists(st.integers(0, 65536), min_size=16, max_size=16))
def test_shares_survive_their_encoding(values):
    array = np.array([values], dtype=np.uint32)
    packed = shamir.pack(array)
    assert packed.shape == (1, shamir.SHARE_BYTES)
    assert shamir.unpack(packed).tolist() == [values]


@given(st.binary(min_size=34, max_size=34))
def test_a_share_has_one_encoding(data):
    octets = np.frombuffer(data, dtype=np.uint8)
    try:
        values = shamir.unpack(octets)
    except MessageError:
        return
    assert (values < shamir.PRIME).all()
    assert shamir.pack(values).tobytes() == data


def test_a_changed_share_changes_the_secret_or_raises():
    at = points(1, 2, 3)
    secret = b"s" * 32
    shares = shamir.split([secret], at, 3, entropy=SystemEntropy())
    for place in range(32):
        changed = shares.copy()
        changed[1, 0, place] ^= 1
        with suppress(TamperError, MessageError):
            assert shamir.combine(at, changed) != (secret,)


@pytest.mark.parametrize("bad", [[0, 1], [2, 2], []])
def test_points_are_distinct_and_not_zero(bad):
    with pytest.raises(DomainError):
        shamir.combine(points(*bad), np.zeros((len(bad), 1, 34), dtype=np.uint8))


def test_a_secret_of_another_length_is_refused():
    with pytest.raises(DomainError, match="secret must have 32 bytes"):
        shamir.split([bytes(31)], points(1, 2), 2, entropy=SystemEntropy())


def test_shares_that_combine_to_no_secret_raise():
    """A limb of 65536 is in the field but is no 16 bits; a constant polynomial shows it."""
    shares = shamir.pack(np.full((1, 1, 16), 65536, dtype=np.uint32))
    with pytest.raises(TamperError, match="do not combine"):
        shamir.combine(points(1), shares)


def test_a_share_of_another_length_and_points_of_another_width_are_refused():
    with pytest.raises(DomainError, match="34 bytes"):
        shamir.unpack(np.zeros(33, dtype=np.uint8))
    with pytest.raises(DomainError, match="16-bit"):
        shamir.combine(np.array([1]), np.zeros((1, 1, 34), dtype=np.uint8))
