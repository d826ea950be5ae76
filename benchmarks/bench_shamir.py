"""Is sharing a 32-byte secret fast? Against PyCryptodome's, which Flower uses on 16-byte halves."""

from __future__ import annotations

import numpy as np
from benchmarks.timing import Report, interleave
from Crypto.Protocol.SecretSharing import Shamir

from skellam.entropy import SystemEntropy
from skellam.secagg import shares as shamir

HOLDERS, THRESHOLD = 100, 51


def main() -> None:
    secret = bytes(range(32))
    points = np.arange(1, HOLDERS + 1, dtype="<u2")
    entropy = SystemEntropy()
    shares = shamir.split([secret], points, THRESHOLD, entropy=entropy)
    halves = secret[:16], secret[16:]
    peer = [Shamir.split(THRESHOLD, HOLDERS, half) for half in halves]

    def combine_with_new_weights() -> object:
        shamir.weights.cache_clear()
        return shamir.combine(points[:THRESHOLD], shares[:THRESHOLD])

    timing = interleave(
        {
            "split": lambda: shamir.split([secret], points, THRESHOLD, entropy=entropy),
            "combine": combine_with_new_weights,
            "peer's split": lambda: [Shamir.split(THRESHOLD, HOLDERS, half) for half in halves],
            "peer's combine": lambda: [Shamir.combine(half[:THRESHOLD]) for half in peer],
        },
        repeats=2,
    )
    report = Report(
        f"Shamir, {HOLDERS} holders, threshold {THRESHOLD}",
        "what",
        "ms",
        "PyCryptodome, ms",
        peers=["PyCryptodome, ms"],
    )
    for name in ("split", "combine"):
        report.row(
            name,
            f"{timing.least(name) * 1e3:.3f}",
            f"{timing.least(f'peer{chr(39)}s {name}') * 1e3:.1f}",
            ratio=timing.ratio(f"peer's {name}", name),
            floor=10,
        )
    report.print()
