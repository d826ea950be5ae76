"""How fast is exact, secure integer noise, beside inexact or insecure samplers?"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec

import numpy as np
from benchmarks.bernoulli import discrete_gaussian
from benchmarks.timing import Report, Timing, interleave

from skellam.entropy import SystemEntropy
from skellam.noise import DiscreteGaussianSampler, IntegerSampler, SkellamSampler

DRAWS = 1 << 20
FEW = 1 << 10
VARIANCES = (0.25, 1, 100, 1e4, 1e6)
SIGMAS = (0.5, 10, 1000)
ENTROPY = SystemEntropy()
NUMPY, NUMBA = "NumPy", "Numba"


def main() -> None:
    skellam()
    gaussian()


def skellam() -> None:
    report = Report(
        f"Skellam noise, ns a draw ({DRAWS:,} draws a call); ratio: NumPy's Poisson twice / ours",
        "variance, back end",
        "ours",
        "AES bytes alone",
        "NumPy Poisson twice",
        "torch Poisson twice",
        "scipy skellam.rvs",
        peers=(
            "AES bytes alone",
            "NumPy Poisson twice",
            "torch Poisson twice",
            "scipy skellam.rvs",
        ),
    )
    for variance in VARIANCES:
        timing = interleave(
            {
                **ours(SkellamSampler(variance)),
                "aes": partial(ENTROPY.fill, np.empty(DRAWS, dtype=words(variance))),
                "poisson": numpy_rival(variance),
                "torch": torch_rival(variance),
                "scipy": scipy_rival(variance),
            },
            repeats=3,
        )
        for name in (NUMPY, NUMBA):
            report.row(
                f"{variance:g}, {name}",
                *(nanoseconds(timing, each) for each in (name, "aes", "poisson", "torch", "scipy")),
                ratio=timing.ratio("poisson", name),
                floor=floor(variance, name),
            )
    report.print()


def floor(variance: float, backend: str) -> float:
    if backend == NUMPY:
        return 10 if variance <= 1e4 else 8
    return 30 if variance == 100 else 15


def gaussian() -> None:
    report = Report(
        "Discrete Gaussian noise, ns a draw; ratio: unvectorised rejection / ours",
        "sigma, back end",
        "ours",
        "Skellam of that variance",
        "rejection, unvectorised",
        "OpenDP",
        peers=("Skellam of that variance", "rejection, unvectorised", "OpenDP"),
    )
    for sigma in SIGMAS:
        rivals = {
            **ours(DiscreteGaussianSampler(sigma)),
            **{f"Skellam, {name}": run for name, run in ours(SkellamSampler(sigma**2)).items()},
            "rejection": lambda sigma=sigma: [discrete_gaussian(sigma) for _ in range(FEW)],
        }
        if find_spec("opendp"):
            rivals["opendp"] = opendp_rival(sigma)
        timing = interleave(rivals, repeats=3)
        for name in (NUMPY, NUMBA):
            report.row(
                f"{sigma:g}, {name}",
                nanoseconds(timing, name),
                nanoseconds(timing, f"Skellam, {name}"),
                nanoseconds(timing, "rejection", FEW),
                nanoseconds(timing, "opendp", FEW) if "opendp" in rivals else "not installed",
                ratio=timing.ratio("rejection", name) * DRAWS / FEW,
            )
    report.print()


def ours(law: IntegerSampler) -> dict[str, Callable[[], object]]:
    buffer = np.empty(DRAWS, dtype=law.dtype)

    def draw(backend: str) -> None:
        with forced(backend.lower()):
            law.draw_into(buffer, entropy=ENTROPY)

    return {name: partial(draw, name) for name in (NUMPY, NUMBA)}


@contextmanager
def forced(backend: str):
    before = os.environ.get("SKELLAM_KERNELS", "")
    os.environ["SKELLAM_KERNELS"] = backend
    try:
        yield
    finally:
        os.environ["SKELLAM_KERNELS"] = before


def words(variance: float) -> type[np.unsignedinteger]:
    return np.uint16 if variance <= 1e4 else np.uint32


def numpy_rival(variance: float) -> Callable[[], object]:
    generator = np.random.default_rng()
    mean = variance / 2
    return lambda: generator.poisson(mean, DRAWS) - generator.poisson(mean, DRAWS)


def torch_rival(variance: float) -> Callable[[], object]:
    import torch

    torch.set_num_threads(1)  # CPU time of one thread is what is compared
    means = torch.full((DRAWS,), variance / 2)
    return lambda: torch.poisson(means) - torch.poisson(means)


def scipy_rival(variance: float) -> Callable[[], object]:
    from scipy import stats

    law = stats.skellam(variance / 2, variance / 2)
    return lambda: law.rvs(size=DRAWS)


def opendp_rival(sigma: float) -> Callable[[], object]:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    return partial(dp.m.make_gaussian(*space, scale=float(sigma)), [0] * FEW)


def nanoseconds(timing: Timing, name: str, items: int = DRAWS) -> str:
    return f"{timing.least(name) / items * 1e9:.3g}"
