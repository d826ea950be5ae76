import pytest

import skellam as sk
from skellam.accounting import Gaussian
from skellam.accounting.ledger import Ledger
from skellam.errors import LedgerError, ShapeError
from skellam.secagg import Identity, Seal, SealVerifier

ALICE = Identity.generate(1, entropy=sk.SystemEntropy())
BOB = Identity.generate(2, entropy=sk.SystemEntropy())


def test_a_seal_is_verified_by_its_public_key_alone():
    signature = Seal(ALICE).sign(b"spent")
    verifier = SealVerifier(ALICE.public)
    assert verifier.verify(b"spent", signature)
    assert not verifier.verify(b"spent more", signature)
    assert not verifier.verify(b"spent", signature[:-1] + bytes([signature[-1] ^ 1]))
    assert not SealVerifier(BOB.public).verify(b"spent", signature)


def test_a_seal_is_no_signature_of_the_protocol():
    assert not SealVerifier(ALICE.public).verify(b"x", ALICE.sign(b"", b"x"))


def test_a_ledger_is_sealed_by_an_identity(tmp_path):
    path = tmp_path / "ledger"
    with Ledger.create(path, epsilon=5, delta=1e-5, signer=Seal(ALICE)) as ledger:
        ledger.spend(Gaussian(sigma=2.0, l2=1.0), key=b"round-1")
    assert Ledger.verify(path, verifier=SealVerifier(ALICE.public)).spends
    with pytest.raises(LedgerError):
        Ledger.verify(path, verifier=SealVerifier(BOB.public))


def test_a_public_key_has_32_bytes():
    with pytest.raises(ShapeError, match="public_key"):
        SealVerifier(b"short")
