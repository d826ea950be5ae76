"""Are masks as cheap as the cipher? 100 masks of 2**20 residues of 16 bits: one client's round."""

from __future__ import annotations

import time

import numpy as np
from benchmarks.timing import Report, interleave
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from skellam.protocol.masks import add_masks

CLIENTS, LENGTH, BITS = 100, 1 << 20, 16
CHUNK = bytes(1 << 17)


def main() -> None:
    seeds = [bytes([i]) * 32 for i in range(CLIENTS)]
    values = np.zeros(LENGTH, dtype=np.uint16)
    buffer = np.empty(len(CHUNK), dtype=np.uint8)

    def cipher_alone() -> None:
        for seed in seeds:
            stream = Cipher(AES(seed), CTR(bytes(16))).encryptor()
            for _ in range(values.nbytes // len(CHUNK)):
                stream.update_into(CHUNK, buffer)

    def masks(workers: int) -> None:
        add_masks(values, bits=BITS, added=seeds, workers=workers)

    timing = interleave({"AES": cipher_alone, "masks": lambda: masks(1)})
    report = Report(
        f"{CLIENTS} masks of {LENGTH} residues of {BITS} bits",
        "what",
        "ms",
        "peer",
        "its ms",
        peers=("peer", "its ms"),
    )
    report.row(
        "masks, one thread",
        f"{timing.least('masks') * 1e3:.1f}",
        "AES-256-CTR bytes alone",
        f"{timing.least('AES') * 1e3:.1f}",
        ratio=timing.ratio("masks", "AES"),
        ceiling=1.5,
    )
    elapsed = {workers: _wall_seconds(lambda workers=workers: masks(workers)) for workers in (1, 2)}
    report.row(
        "two threads, by the clock on the wall",
        f"{elapsed[2] * 1e3:.1f}",
        "one thread",
        f"{elapsed[1] * 1e3:.1f}",
        ratio=elapsed[2] / elapsed[1],
    )
    report.print()


def _wall_seconds(run) -> float:
    least = float("inf")
    for _ in range(10):
        start = time.perf_counter()
        run()
        least = min(least, time.perf_counter() - start)
    return least
