"""The primitives, as this package calls them, against published vectors."""

from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skellam.entropy import derive_key
from skellam.errors import TamperError
from skellam.protocol import masks
from skellam.protocol.identity import Identity, Roster
from skellam.secagg.channel import KeyPair, PairCache, low_order

P = 2**255 - 19


def test_key_agreement_gives_the_key_of_rfc_7748_section_6_1():
    alice = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    bob = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    shared = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
    assert KeyPair(alice).public == bytes.fromhex(
        "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    )
    assert KeyPair(bob).public == bytes.fromhex(
        "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    )
    expected = derive_key(shared, b"purpose")
    assert KeyPair(alice).agree(KeyPair(bob).public, b"purpose", culprit=0) == expected
    assert KeyPair(bob).agree(KeyPair(alice).public, b"purpose", culprit=0) == expected


def test_the_second_end_of_a_simulated_pair_takes_the_same_key_once_and_for_one_purpose():
    cache = PairCache()
    one, other, third = (cache.pair(bytes([n]) * 32) for n in (1, 2, 3))
    alone = KeyPair(bytes([2]) * 32)
    assert one.agree(other.public, b"a", culprit=0) == alone.agree(one.public, b"a", culprit=0)
    assert len(cache.agreed) == 1
    assert other.agree(one.public, b"b", culprit=0) == alone.agree(one.public, b"b", culprit=0)
    assert other.agree(one.public, b"a", culprit=0) == alone.agree(one.public, b"a", culprit=0)
    assert [purpose for _, _, purpose in cache.agreed] == [b"b"]
    lied = other.agree(third.public, b"b", culprit=0)
    assert lied == alone.agree(third.public, b"b", culprit=0)


def test_a_public_key_of_low_order_is_refused():
    with pytest.raises(TamperError, match="low order") as caught:
        KeyPair(b"k" * 32).agree(bytes(32), b"purpose", culprit=7)
    assert caught.value.culprit == 7


@given(st.sampled_from([0, 1, 2, 3, P - 2, P - 1, P, P + 1, P + 2]) | st.integers(0, 2**256 - 1))
def test_low_order_is_what_no_agreement_takes(number):
    """P + 2 and the like are other spellings of points that can be used."""
    public = (number % 2**256).to_bytes(32, "little")
    if low_order(public):
        with pytest.raises(TamperError):
            KeyPair(b"k" * 32).agree(public, b"purpose", culprit=7)
    else:
        KeyPair(b"k" * 32).agree(public, b"purpose", culprit=7)


def test_hkdf_gives_the_key_of_rfc_5869_test_case_3():
    """The RFC's case without salt and info, through the same library call as `derive_key`."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    expected = bytes.fromhex(
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"
    )
    assert HKDF(SHA256(), 42, salt=None, info=b"").derive(b"\x0b" * 22) == expected


def test_derived_keys_are_hkdf_with_the_context_as_info():
    """HKDF written out with HMAC (RFC 5869, section 2), for one block of output."""
    import hmac

    secret, context = b"s" * 32, b"secagg/mask"
    extracted = hmac.digest(bytes(32), secret, "sha256")
    expected = hmac.digest(extracted, b"skellam/1/" + context + b"\x01", "sha256")
    assert derive_key(secret, context) == expected


def test_the_key_stream_is_that_of_nist_sp_800_38a_f_5_5():
    """AES-256-CTR, blocks 1 to 4: the vector's plaintext xor ciphertext is its key stream."""
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    counter = int.from_bytes(bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"), "big")
    plain = bytes.fromhex(
        "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
        "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
    )
    cipher = bytes.fromhex(
        "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5"
        "2b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6"
    )
    stream = np.empty(64, dtype=np.uint8)
    masks._stream(key, counter).update_into(bytes(64), stream.data)
    assert stream.tobytes() == bytes(a ^ b for a, b in zip(plain, cipher, strict=True))


def test_signatures_are_ed25519_of_rfc_8032_over_the_bound_context():
    """Test 1 of RFC 8032, section 7.1, for the key; the signature covers prefix and context."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    identity = Identity(
        3, bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    )
    assert identity.public == bytes.fromhex(
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    )
    signature = identity.sign(sha256(b"c").digest(), b"payload")
    bound = b"skellam/secagg/signature/" + sha256(b"c").digest() + b"payload"
    Ed25519PublicKey.from_public_bytes(identity.public).verify(signature, bound)
    roster = Roster({3: identity.public})
    roster.verify(3, sha256(b"c").digest(), b"payload", signature)
    with pytest.raises(TamperError):
        roster.verify(3, sha256(b"d").digest(), b"payload", signature)
