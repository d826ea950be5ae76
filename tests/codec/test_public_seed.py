from hashlib import sha256

import pytest

from skellam.codec import public_seed
from skellam.errors import DomainError, KindError

FACTS = {"plan": b"q" * 32, "model": b"m" * 32, "round_": 3}


def test_the_seed_is_32_bytes_that_never_change():
    length = (32).to_bytes(8, "big")
    parts = [length + b"q" * 32, length + b"m" * 32, (3).to_bytes(8, "big")]
    expected = sha256(b"skellam/2/public-seed" + b"".join(parts)).digest()
    assert public_seed(**FACTS) == expected


def test_who_takes_part_is_no_argument():
    with pytest.raises(TypeError, match="participants"):
        public_seed(**FACTS, participants=b"p" * 32)


@pytest.mark.parametrize("name", FACTS)
def test_every_fact_of_the_round_changes_the_seed(name):
    other = 4 if name == "round_" else b"x" * 32
    assert public_seed(**FACTS) != public_seed(**(FACTS | {name: other}))


def test_digests_cannot_be_shifted_into_each_other():
    shifted = FACTS | {"plan": b"q" * 31, "model": b"q" + b"m" * 32}
    assert public_seed(**FACTS) != public_seed(**shifted)


def test_a_digest_that_is_no_bytes_and_a_negative_round_are_refused():
    with pytest.raises(KindError, match="model"):
        public_seed(**(FACTS | {"model": "abc"}))
    with pytest.raises(DomainError, match="round_"):
        public_seed(**(FACTS | {"round_": -1}))
