"""How near is packing 2**20 residues to a loop in C (packing.c, with cc -O3 -march=native)?"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from benchmarks.timing import Report, interleave

from skellam.vectors import pack_residues, packed_size, unpack_residues

LENGTH = 1 << 20
BITS = (10, 12, 14)


def main() -> None:
    report = Report(f"Packing {LENGTH} residues", "what", "ms", "C, ms", peers=["C, ms"])
    with tempfile.TemporaryDirectory() as folder:
        c = compiled(Path(folder))
        for bits in BITS:
            for name, timing in measured(c, bits).items():
                ours, theirs = (f"{timing.least(each) * 1e3:.3g}" for each in ("NumPy", "C"))
                ratio = timing.ratio("NumPy", "C")
                report.row(f"{name}, {bits} bits, NumPy", ours, theirs, ratio=ratio, ceiling=5)
    report.print()


def measured(c: ctypes.CDLL, bits: int) -> dict:
    values = np.random.default_rng(1).integers(0, 1 << bits, LENGTH).astype(np.uint16)
    packed, back = np.empty(packed_size(LENGTH, bits) + 8, dtype=np.uint8), np.empty_like(values)
    octets, residues = (x.ctypes.data_as(ctypes.c_void_p) for x in (packed, values))
    target = back.ctypes.data_as(ctypes.c_void_p)
    size = ctypes.c_size_t(LENGTH)
    c.pack(residues, size, bits, octets)
    c.unpack(octets, size, bits, target)
    data = packed[:-8].tobytes()
    if data != pack_residues(values, bits) or not np.array_equal(back, values):
        raise AssertionError("C and NumPy disagree")
    return {
        "pack": interleave(
            {
                "NumPy": lambda: pack_residues(values, bits),
                "C": lambda: c.pack(residues, size, bits, octets),
            }
        ),
        "unpack": interleave(
            {
                "NumPy": lambda: unpack_residues(data, LENGTH, bits),
                "C": lambda: c.unpack(octets, size, bits, target),
            }
        ),
    }


def compiled(folder: Path) -> ctypes.CDLL:
    """Return the loops in C; there is no peer without a compiler."""
    source, library = Path(__file__).with_name("packing.c"), folder / "packing.so"
    command = ["cc", "-O3", "-march=native", "-shared", "-fPIC", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))
