"""How near is a simulated round of 150 clients to its cryptography alone, and what is it made of?

A round of the demo's shape: 7,850 parameters, 16 bits, a tenth may drop out. The limit counts the
operations that no implementation of this protocol can leave out when one process plays all clients:
one agreement a pair and purpose, one signature a message, one verification a signature, one seal
and one opening an envelope, one key stream a mask. The same round is run unmasked, and with all
noise drawn at once.

Rounds of many small clients are run unmasked beside Gaussian noise of NumPy's generator, which each
client draws and which is added up.
"""

from __future__ import annotations

import os

import numpy as np
from benchmarks.timing import Report, interleave
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import skellam as sk
from skellam import _kernels
from skellam.engines import local
from skellam.protocol.masks import add_masks
from skellam.secagg.graph import topology

CLIENTS, DIMENSION = 150, 7850
MANY = ((10_000, 10_000), (1000, 10_000), (10_000, 100))
"""Small clients, and how long their vectors are."""


def main() -> None:
    one_round()
    many(MANY)


def one_round() -> None:
    plan, rounds = planned(DIMENSION), runs(DIMENSION)
    degree = topology(CLIENTS, plan.tolerance).degree
    timing = interleave({"secure": rounds["secure"], "limit": limit(degree)}, repeats=1)
    report = Report(
        f"A round of {CLIENTS} clients in one process",
        "what",
        "ms",
        "peer",
        "its ms",
        peers=("peer", "its ms"),
    )
    ours, alone = (f"{timing.least(name) * 1e3:.0f}" for name in ("secure", "limit"))
    ratio = timing.ratio("secure", "limit")
    report.row("secure", ours, "its cryptography alone", alone, ratio=ratio)
    timing = interleave({name: rounds[name] for name in ("unmasked", "trusted_sum")}, repeats=1)
    drawn, shares = (f"{timing.least(name) * 1e3:.0f}" for name in ("trusted_sum", "unmasked"))
    ratio = timing.ratio("unmasked", "trusted_sum")
    report.row("trusted_sum", drawn, "unmasked / trusted_sum", shares, ratio=ratio)
    report.print()


def sample() -> None:
    """Leave out the most clients."""
    one_round()
    many(MANY[1:])


def many(sizes: tuple[tuple[int, int], ...]) -> None:
    report = Report(
        "Many small clients, unmasked",
        "clients x dimension",
        "ms",
        "Gaussian, ms",
        peers=["Gaussian, ms"],
    )
    for clients, dimension in sizes:
        for backend, ceiling in (("numpy", 1.5), ("numba", 1.2)):
            os.environ[_kernels.VARIABLE] = backend
            rivals = small_clients(clients, dimension)
            rivals["unmasked"]()
            timing = interleave(rivals, repeats=1)
            ours, theirs = (f"{timing.least(each) * 1e3:.0f}" for each in rivals)
            report.row(
                f"{clients:,} x {dimension:,}, {backend}",
                ours,
                theirs,
                ratio=timing.ratio("unmasked", "Gaussian"),
                ceiling=ceiling if dimension > 1000 else None,
            )
            del os.environ[_kernels.VARIABLE]
    report.print()


def small_clients(clients: int, dimension: int) -> dict:
    """Return two ways to sum the vectors of so many clients, each with noise of its own."""
    plan = sk.Plan(
        dimension=dimension, clip=1.0, bits=16, cohort=clients, population=10 * clients, rounds=10
    ).with_noise(1.0)
    round_, entropy = local.Round(1, bytes(32), tuple(range(clients))), sk.SystemEntropy()
    generator = np.random.default_rng(1)
    xs = generator.normal(size=(50, dimension)).astype(np.float32) / np.sqrt(dimension)

    def gaussian() -> np.ndarray:
        total = np.zeros(dimension)
        for number in range(clients):
            total += xs[number % len(xs)] + generator.normal(0.0, 0.1, dimension)
        return total

    return {
        "unmasked": lambda: local.unmasked(plan, round_, lambda n: xs[n % 50], entropy=entropy),
        "Gaussian": gaussian,
    }


def planned(dimension: int) -> sk.CalibratedPlan:
    return sk.Plan(
        dimension=dimension,
        clip=1.0,
        bits=16,
        cohort=CLIENTS,
        population=2000,
        rounds=10,
        dropout=0.1,
    ).with_noise(1.0)


def runs(dimension: int) -> dict:
    """Return the three ways to run one round of zeros."""
    plan, entropy = planned(dimension), sk.SystemEntropy()
    round_ = local.Round(1, bytes(32), tuple(range(CLIENTS)))
    x = np.zeros(dimension, dtype=np.float32)
    return {
        run.__name__: lambda run=run: run(plan, round_, lambda _: x, entropy=lambda _: entropy)
        for run in (local.secure, local.unmasked, local.trusted_sum)
    }


def limit(degree: int):
    """Return a function that does the cryptography of a round and nothing else."""
    key, signer = X25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    public, verifier = X25519PrivateKey.generate().public_key(), signer.public_key()
    cipher, pairs = AESGCM(bytes(32)), CLIENTS * degree // 2
    signature, sealed = signer.sign(bytes(200)), cipher.encrypt(bytes(12), bytes(134), b"")
    values, seeds = np.zeros(DIMENSION, dtype=np.uint16), [bytes(32)] * (degree + 1)

    def cryptography() -> None:
        for _ in range(2 * pairs):
            key.exchange(public)
            cipher.encrypt(bytes(12), bytes(134), b"")
            cipher.decrypt(bytes(12), sealed, b"")
        for _ in range(5 * CLIENTS):
            signer.sign(bytes(200))
            verifier.verify(signature, bytes(200))
        for _ in range(CLIENTS):
            add_masks(values, bits=16, added=seeds, workers=1)

    return cryptography
