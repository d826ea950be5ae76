"""How near is the Hadamard transform to what C can do, and how far ahead of the textbook?"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from benchmarks.timing import Report, interleave

from skellam._kernels import _numba, _numpy

SIZES = (1 << 16, 1 << 20, 1 << 22)
LIMITED = 1 << 20
SOURCE = Path(__file__).with_name("hadamard.c")


def main() -> None:
    report = Report(
        "Hadamard transform, float32",
        "length, back end",
        "ms",
        "peer",
        "its ms",
        peers=("peer", "its ms"),
    )
    limit, best = best_possible()
    for size in SIZES:
        x = np.zeros(size, dtype=np.float32)
        timing = interleave(
            {
                "NumPy": lambda x=x: _numpy.hadamard(x),
                "Numba": lambda x=x: _numba.hadamard(x),
                "textbook": lambda x=x: textbook(x),
                "best": lambda x=x: best(x),
            }
        )
        ms = {name: timing.least(name) * 1e3 for name in ("NumPy", "Numba", "textbook", "best")}
        floor, ceiling = (6, 2 * SHARE[limit]) if size == LIMITED else (None, None)
        report.row(
            f"2^{size.bit_length() - 1}, NumPy",
            f"{ms['NumPy']:.3g}",
            "textbook / ours",
            f"{ms['textbook']:.3g}",
            ratio=timing.ratio("textbook", "NumPy"),
            floor=floor,
        )
        report.row(
            f"2^{size.bit_length() - 1}, Numba",
            f"{ms['Numba']:.3g}",
            f"ours / {limit}",
            f"{ms['best']:.3g}",
            ratio=timing.ratio("Numba", "best"),
            ceiling=ceiling,
        )
    report.print()


SHARE = {"C": 1.0, "scipy rfft": 0.2}
"""What part of the rival's time the best transform would take."""


def textbook(x: np.ndarray) -> np.ndarray:
    h = 1
    while h < len(x):
        pairs = x.reshape(-1, 2, h)
        a, b = pairs[:, 0], pairs[:, 1]
        x = np.stack((a + b, a - b), axis=1).reshape(-1)
        h *= 2
    return x


def best_possible() -> tuple[str, Callable[[np.ndarray], object]]:
    """Return the C transform, compiled for this machine, or scipy's rfft where there is no gcc."""
    if shutil.which("gcc") is None:
        from scipy.fft import rfft

        return "scipy rfft", rfft
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "hadamard.so"
        command = ["gcc", "-O3", "-march=native", "-shared", "-fPIC", "-o", library, SOURCE]
        subprocess.run(command, check=True)
        transform = ctypes.CDLL(str(library)).hadamard
    transform.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    transform.restype = None
    check(transform)
    return "C", lambda x: transform(x.ctypes.data, len(x))


def check(transform: Callable[[int, int], None]) -> None:
    x = np.arange(1 << 14, dtype=np.float32) % 17
    y = x.copy()
    transform(x.ctypes.data, len(x))
    _numpy.hadamard(y)
    np.testing.assert_array_equal(x, y)
