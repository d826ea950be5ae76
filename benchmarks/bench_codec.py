"""What does a client's message cost, and the server's decoding, against naive NumPy and the limits?

Every encoding makes its codec anew, as a round with a new public seed does. Set ``TFP_PYTHON`` to
an interpreter with tensorflow-privacy (0.9 on tensorflow 2.15.1) to measure that as well.
"""

from __future__ import annotations

import math
import os
import subprocess
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from benchmarks.timing import Report, Timing, interleave

from skellam import SystemEntropy
from skellam.codec import Codec, CodecSpec, SkellamShares, Unbiased, padded_length

SMALL, LARGE = 1 << 20, 1 << 24
SCALE, CLIP, BITS, VARIANCE, CLIENTS = 1000.0, 1.0, 16, 1e4, 100
ENTROPY = SystemEntropy()


def main() -> None:
    report = Report(
        "Client's message, 16 bits", "what", "ms", "peer", "its ms", peers=("peer", "its ms")
    )
    small, large = encoding(SMALL, 15), encoding(LARGE, 1)
    for name, size, timing in (("2^20", SMALL, small), ("2^24", LARGE, large)):
        rows(report, f"encode {name}", timing, floors=(10, 20))
        if size == SMALL:
            rows(report, f"decode {name}", decoding(SMALL), floors=(5, 12))
    for kernels in ("NumPy", "Numba"):
        growth = large.least(kernels) / small.least(kernels)
        report.row(f"encode 2^24 / 2^20, {kernels}", "", "", "", ratio=growth, ceiling=26)
    odd_length(report)
    report.row("extra memory, bytes a coordinate", "", "", "", ratio=memory(SMALL), ceiling=16)
    tensorflow_privacy(report, small)
    report.print()


def rows(report: Report, what: str, timing: Timing, floors: tuple[int, int]) -> None:
    ms = {name: f"{timing.least(name) * 1e3:.3g}" for name in timing.rounds[0]}
    for kernels, floor in zip(("NumPy", "Numba"), floors, strict=True):
        ratio = timing.ratio("naive", kernels)
        cells = (f"{what}, {kernels}", ms[kernels], "naive NumPy / ours", ms["naive"])
        report.row(*cells, ratio=ratio, floor=floor)
    if "limit" in ms:
        ratio = timing.ratio("Numba", "limit")
        report.row(f"{what}, Numba", ms["Numba"], "ours / (AES + copies)", ms["limit"], ratio=ratio)


def spec_of(dimension: int) -> CodecSpec:
    return CodecSpec(
        dimension=dimension,
        clip=CLIP,
        scale=SCALE,
        bits=BITS,
        rounding=Unbiased(6 * SCALE * CLIP / math.sqrt(dimension)),
        noise=SkellamShares(VARIANCE, CLIENTS),
        padded_dim=dimension,
    )


def update(dimension: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(dimension, dtype=np.float32)


def using(kernels: str, run: Callable[[], object]) -> Callable[[], object]:
    def forced() -> object:
        os.environ["SKELLAM_KERNELS"] = kernels.lower()
        try:
            return run()
        finally:
            del os.environ["SKELLAM_KERNELS"]

    return forced


def encoding(size: int, repeats: int) -> Timing:
    x, spec, rng = update(size), spec_of(size), np.random.default_rng(2)

    def ours() -> object:
        return Codec(spec, public_seed=os.urandom(32)).encode(x, entropy=ENTROPY)

    words, copy = np.empty(6 * size, dtype=np.uint8), np.empty_like(x)

    def limit() -> None:
        ENTROPY.fill(words)
        np.copyto(copy, x)
        np.copyto(words[: 2 * size], words[2 * size : 4 * size])

    rivals = {
        "NumPy": using("NumPy", ours),
        "Numba": using("Numba", ours),
        "naive": lambda: naive_encode(x, rng),
        "limit": limit,
    }
    return interleave(rivals, repeats=repeats)


def decoding(size: int) -> Timing:
    codec = Codec(spec_of(size), public_seed=bytes(32))
    total = replace(codec.encode(update(size), entropy=ENTROPY), messages=CLIENTS)
    signs = np.random.default_rng(2).choice(np.array([-1, 1], dtype=np.float32), size)
    rivals = {
        "NumPy": using("NumPy", lambda: codec.decode(total)),
        "Numba": using("Numba", lambda: codec.decode(total)),
        "naive": lambda: naive_decode(total.values, signs),
    }
    return interleave(rivals, repeats=15)


def naive_encode(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    y = x * np.float32(SCALE * min(1, CLIP / np.linalg.norm(x)))
    y *= rng.choice(np.array([-1, 1], dtype=np.float32), len(y))
    textbook_in_place(y)
    y /= np.float32(math.sqrt(len(y)))
    low = np.floor(y)
    z = low.astype(np.int64) + (rng.random(len(y), dtype=np.float32) < y - low)
    mean = VARIANCE / CLIENTS / 2
    z += rng.poisson(mean, len(y)) - rng.poisson(mean, len(y))
    return (z % (1 << BITS)).astype(np.uint16)


def naive_decode(total: np.ndarray, signs: np.ndarray) -> np.ndarray:
    half = 1 << (BITS - 1)
    y = ((total.astype(np.int64) + half) % (2 * half) - half).astype(np.float32)
    textbook_in_place(y)
    y *= signs
    y /= np.float32(SCALE * math.sqrt(len(y)))
    return y


def textbook_in_place(x: np.ndarray) -> None:
    h = 1
    while h < len(x):
        pairs = x.reshape(-1, 2, h)
        difference = pairs[:, 0] - pairs[:, 1]
        pairs[:, 0] += pairs[:, 1]
        pairs[:, 1] = difference
        h *= 2


def odd_length(report: Report) -> None:
    """One coordinate more than 2^22 must not cost what 2^23 costs."""
    dimension = (1 << 22) + 1
    x = update(dimension)
    longer = partial(replace, spec_of(dimension - 1), dimension=dimension, sent_dim=0)
    specs = {
        "ours": longer(padded_dim=padded_length(dimension)),
        "next power": longer(padded_dim=1 << 23),
        "2^22": spec_of(dimension - 1),
    }
    rivals = {
        name: using(
            "NumPy",
            lambda s=s: Codec(s, public_seed=bytes(32)).encode(x[: s.dimension], entropy=ENTROPY),
        )
        for name, s in specs.items()
    }
    timing = interleave(rivals, repeats=1)
    ms = {name: f"{timing.least(name) * 1e3:.3g}" for name in rivals}
    for rival in ("2^22", "next power"):
        ratio = timing.ratio("ours", rival)
        report.row("encode 2^22 + 1, NumPy", ms["ours"], f"ours / {rival}", ms[rival], ratio=ratio)


def memory(size: int) -> float:
    x, codec = update(size), Codec(spec_of(size), public_seed=bytes(32))
    codec.encode(x, entropy=ENTROPY)
    tracemalloc.start()
    codec.encode(x, entropy=ENTROPY)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / size


def tensorflow_privacy(report: Report, ours: Timing) -> None:
    """CPU time of all threads in a process of its own: not interleaved, so without a limit."""
    if python := os.environ.get("TFP_PYTHON"):
        script = Path(__file__).with_name("tensorflow_privacy_encode.py")
        found = subprocess.run([python, script], check=True, capture_output=True, text=True)
        seconds = float(found.stdout.split()[-1])
        for kernels in ("NumPy", "Numba"):
            least = ours.least(kernels)
            cells = (f"{least * 1e3:.3g}", "TF Privacy / ours", f"{seconds * 1e3:.3g}")
            report.row(f"encode 2^20, {kernels}", *cells, ratio=seconds / least)
