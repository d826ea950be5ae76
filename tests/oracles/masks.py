"""Masks, one coordinate at a time: the obvious reading of the definition."""

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR


def mask(seed: bytes, length: int, bits: int) -> list[int]:
    width = 1 if bits <= 8 else 2 if bits <= 16 else 4
    stream = Cipher(AES(seed), CTR(bytes(16))).encryptor().update(bytes(length * width))
    words = [stream[at : at + width] for at in range(0, len(stream), width)]
    return [int.from_bytes(word, "little") % 2**bits for word in words]
