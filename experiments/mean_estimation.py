"""The paper's fourth figure: the private mean of vectors on a sphere, over epsilon and bits.

``python -m experiments.mean_estimation`` measures what is not recorded yet and records it. Methods
are measured on the same vectors, rotations and rounding coins, so their differences are known
better than their values. The clients' integers are summed before noise is added, and the noise of
the sum is drawn at once from its own law: the sums have the law that the codec gives them, which a
test checks, in a hundredth of the time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from experiments.figure import Figure, Point, Spec, half_width
from numpy.typing import NDArray
from rich.console import Console

import skellam as sk
from skellam import codec
from skellam.accounting.laws import (
    discrete_gaussian_law,
    discrete_gaussian_sum_law,
    skellam_law,
)
from skellam.codec.arithmetic import Rotation
from skellam.codec.spec import rounded_norm_square
from skellam.entropy import SEED_BYTES, Entropy, SeededEntropy, random_bytes
from skellam.errors import InfeasibleError
from skellam.noise import GaussianSampler
from skellam.plan import CalibratedPlan
from skellam.plan.signal_model import padded_dim

RECORD = Path(__file__).parent / "recorded" / "mean_estimation.jsonl"
CLIP = 10.0
DELTA = 1e-5
EPSILONS = (0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0)
ROWS = 500
"""Clients whose vectors are rounded at once."""

GAUSSIAN, GAUSSIAN_RDP = "central Gaussian (tight)", "central Gaussian (RDP)"
HERE, ALIGNED = "Skellam (here)", "Skellam (here, aligned)"
PAPER = "Skellam (the paper, k = 2)"
PAPER_UNBIASED = "Skellam (the paper, k = 2, beta = 0)"
CENTRAL, DISTRIBUTED = "central discrete Gaussian", "distributed discrete Gaussian"
_AUTHORS: Mapping[str, Any] = {
    "accountant": "paper",
    "rounding": "conditional",
    "signal_multiple": 2.0,
}
METHODS: Mapping[str, Mapping[str, Any]] = {
    GAUSSIAN: {"noise": "gaussian"},
    GAUSSIAN_RDP: {"noise": "gaussian", "accountant": "paper"},
    PAPER: _AUTHORS,
    PAPER_UNBIASED: {**_AUTHORS, "beta": 0.0},
    DISTRIBUTED: {**_AUTHORS, "noise": "distributed-discrete-gaussian"},
    CENTRAL: {**_AUTHORS, "noise": "central-discrete-gaussian"},
    HERE: {"signal": "independent"},
    ALIGNED: {"signal": "aligned"},
}
"""Fields of `Plan`; the authors' k is 2 in this experiment."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Clients and coordinates of one panel."""

    clients: int
    dimension: int
    bits: tuple[int, ...]
    repeats: int

    @property
    def name(self) -> str:
        """The panel's title."""
        return f"n = {self.clients}, d = {self.dimension}"


SETTINGS = (
    Setting(100, 250, (10, 12, 14, 16), 10),
    Setting(1000, 250, (10, 12, 14, 16), 10),
    Setting(10_000, 2000, (14, 16, 18, 20), 3),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One method with one number of bits; 0 bits for real numbers."""

    clients: int
    dimension: int
    method: str
    bits: int

    def plan(self, epsilon: float) -> CalibratedPlan | None:
        """Return the plan at ``epsilon``, or nothing where the bits carry none."""
        bits = {"bits": self.bits} if self.bits else {}
        asked = sk.Plan(
            dimension=self.dimension,
            clip=CLIP,
            cohort=self.clients,
            rounds=1,
            sampling="all",
            **{**METHODS[self.method], **bits},
        )
        try:
            return asked.calibrated(epsilon=epsilon, delta=DELTA)
        except InfeasibleError:
            return None


@dataclass(frozen=True, slots=True)
class Measured:
    """The squared errors of a cell: a list over epsilons of lists over repeats."""

    cell: Cell
    noise_multipliers: tuple[float | None, ...]
    scales: tuple[float | None, ...]
    errors: tuple[tuple[float, ...], ...]

    def at(self, epsilon: float) -> tuple[float, ...]:
        """Return the errors of all repeats at ``epsilon``; none where there is no plan."""
        return self.errors[EPSILONS.index(epsilon)]

    def to_line(self) -> str:
        """Return the record as a line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> Measured:
        """Return what `to_line` wrote."""
        read = json.loads(line)
        return cls(
            Cell(**read["cell"]),
            tuple(read["noise_multipliers"]),
            tuple(read["scales"]),
            tuple(map(tuple, read["errors"])),
        )


def recorded(path: Path = RECORD) -> dict[Cell, Measured]:
    """Return what is recorded."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {found.cell: found for found in map(Measured.from_line, lines)}


def cells(setting: Setting) -> Iterator[Cell]:
    """Yield the cells of a panel."""
    for method, changes in METHODS.items():
        for bits in (0,) if changes.get("noise") == "gaussian" else setting.bits:
            yield Cell(setting.clients, setting.dimension, method, bits)


@dataclass(frozen=True, slots=True)
class Sample:
    """The vectors of one repeat, rotated: rows of norm `CLIP`; and their true mean."""

    repeat: int
    rotation: Rotation
    rotated: NDArray[np.float32]
    truth: NDArray[np.float64]

    @classmethod
    def of(cls, setting: Setting, repeat: int) -> Sample:
        """Return the vectors of ``repeat``, the same for every method."""
        n, d = setting.clients, setting.dimension
        entropy = _entropy("vectors", n, d, repeat)
        rotation = Rotation(padded_dim(d), random_bytes(SEED_BYTES, entropy=entropy))
        normal = GaussianSampler(1.0).draw(n * d, entropy=entropy).values.reshape(n, d)
        vectors = normal * (CLIP / np.linalg.norm(normal, axis=1, keepdims=True))
        rotated = np.stack([rotation.forward(x, 1.0) for x in vectors])
        return cls(repeat, rotation, rotated, vectors.mean(axis=0))


def error(plan: CalibratedPlan, sample: Sample) -> float:
    """Return the squared error of a coordinate of the mean of ``sample``."""
    noise, coins = (
        _entropy(use, plan.cohort, plan.dimension, sample.repeat) for use in ("noise", "coins")
    )
    if plan.noise.continuous:
        drawn = GaussianSampler(plan.noise_multiplier * plan.clip).draw(
            plan.dimension, entropy=noise
        )
        return float(np.mean((drawn.values / plan.cohort) ** 2))
    spec = plan.spec()
    total = _rounded_sum(spec, sample.rotated, coins)
    total += _noise(spec.noise, plan.cohort, spec.sent_dim, noise)
    half = 1 << (spec.bits - 1)
    wrapped = ((total + half) % (2 * half) - half).astype(np.float32)
    estimate = sample.rotation.backward(wrapped, 1 / spec.scale, plan.dimension)
    return float(np.mean((estimate / plan.cohort - sample.truth) ** 2))


def _rounded_sum(
    spec: codec.CodecSpec, rotated: NDArray[np.float32], entropy: Entropy
) -> NDArray[np.float64]:
    """Return the sum of all rows, each scaled and rounded as the spec says."""
    total = np.zeros(rotated.shape[1])
    for first in range(0, len(rotated), ROWS):
        total += _rounded(spec, rotated[first : first + ROWS] * np.float32(spec.scale), entropy)
    return total


def _rounded(spec: codec.CodecSpec, y: NDArray[np.float32], entropy: Entropy) -> NDArray[Any]:
    match spec.rounding:
        case codec.Unbiased(bound):
            return _stochastic(np.clip(y, -bound, bound) if bound else y, entropy).sum(0)
        case codec.Conditional(beta):
            max_square = rounded_norm_square(spec.radius, spec.sent_dim, beta)
            total = np.zeros(y.shape[1])
            while len(y):
                rounded = _stochastic(y, entropy)
                kept = np.einsum("ij,ij->i", rounded, rounded) <= max_square
                total += rounded[kept].sum(0)
                y = y[~kept]
            return total
        case _:
            raise NotImplementedError(spec.rounding)


def _stochastic(y: NDArray[np.float32], entropy: Entropy) -> NDArray[np.float64]:
    coins = np.empty(y.shape, dtype=np.uint32)
    entropy.fill(coins)
    low = np.floor(y)
    return (low + (coins < (y - low) * np.float32(2.0**32))).astype(np.float64)


def _noise(
    noise: codec.NoiseSpec, clients: int, length: int, entropy: Entropy
) -> NDArray[np.float64]:
    """Return the noise of all clients together, drawn from the law of its sum by inversion."""
    match noise:
        case codec.SkellamShares():
            law = skellam_law(float(noise.share * clients))
        case codec.CentralDiscreteGaussian(sigma):
            law = discrete_gaussian_law(sigma)
        case codec.DiscreteGaussianShares(sigma):
            law = discrete_gaussian_sum_law(sigma, clients)
        case _:
            raise NotImplementedError(noise)
    half = np.exp(law.log_pmf)
    steps = np.cumsum(np.concatenate((half[:0:-1], half)))
    bits = np.empty(length, dtype=np.uint64)
    entropy.fill(bits)
    uniform = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
    drawn = np.searchsorted(steps, uniform * steps[-1], side="right") - (len(half) - 1)
    return drawn.astype(np.float64)


def _entropy(use: str, clients: int, dimension: int, repeat: int) -> SeededEntropy:
    context = f"experiments/mean_estimation/{clients}/{dimension}/{use}"
    return SeededEntropy(repeat.to_bytes(32, "big"), context)


def measure(cell: Cell, samples: Iterable[Sample], epsilons: Iterable[float]) -> Measured:
    """Return the errors of ``cell`` on ``samples``."""
    plans = [cell.plan(epsilon) for epsilon in epsilons]
    repeats = [*samples]
    return Measured(
        cell,
        tuple(plan and float(f"{plan.noise_multiplier:.6g}") for plan in plans),
        tuple(plan and float(f"{plan.scale:.6g}") for plan in plans),
        tuple(
            () if plan is None else tuple(float(f"{error(plan, s):.4g}") for s in repeats)
            for plan in plans
        ),
    )


def over_epsilon(spec: Spec) -> Iterator[Point]:
    """Yield the paper's panels: one for each number of clients, a curve for each of bits."""
    for (n, d), found in _by_panel(spec).items():
        for measured in found:
            if measured.cell.method in spec["methods"]:
                bits = f", b = {measured.cell.bits}" if measured.cell.bits else ""
                yield from _curve(f"n = {n}, d = {d}", f"{measured.cell.method}{bits}", measured)


def by_method(spec: Spec) -> Iterator[Point]:
    """Yield a panel for each number of clients and of bits, with every method."""
    for (n, _), found in _by_panel(spec).items():
        for bits in sorted({measured.cell.bits for measured in found} - {0}):
            for measured in found:
                if measured.cell.bits in {0, bits}:
                    yield from _curve(f"n = {n}, b = {bits}", measured.cell.method, measured)


def _by_panel(spec: Spec) -> dict[tuple[int, int], list[Measured]]:
    known = recorded()
    return {
        (s.clients, s.dimension): [known[cell] for cell in cells(s) if cell in known]
        for s in SETTINGS
        if s.clients in spec["clients"]
    }


def _curve(panel: str, curve: str, measured: Measured) -> Iterator[Point]:
    for epsilon, errors in zip(EPSILONS, measured.errors, strict=True):
        if errors:
            yield Point(panel, curve, epsilon, float(np.mean(errors)), half_width(errors))


def main(
    *,
    clients: Annotated[
        list[int] | None, typer.Option(help="Only the panels with so many clients.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where it is recorded.")] = RECORD,
) -> None:
    """Measure every cell that is not recorded yet, and record it."""
    console = Console()
    for setting in SETTINGS:
        if clients and setting.clients not in clients:
            continue
        known = recorded(out)
        wanted = [cell for cell in cells(setting) if cell not in known]
        console.print(
            f"{setting.name}: {len(wanted)} of {len([*cells(setting)])} cells are missing"
        )
        samples = [Sample.of(setting, r) for r in range(setting.repeats)] if wanted else []
        for number, cell in enumerate(wanted, start=1):
            start = time.perf_counter()
            line = measure(cell, samples, EPSILONS).to_line()
            with out.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
            taken = time.perf_counter() - start
            console.print(f"{number}/{len(wanted)} {cell.method}, {cell.bits} bits: {taken:.0f} s")


_SPEC: Spec = {
    "repeat": "python -m experiments.mean_estimation",
    "delta": DELTA,
    "clip": CLIP,
    "clients": [setting.clients for setting in SETTINGS],
}
FIGURES = (
    Figure(
        name="mean_estimation",
        title="Distributed mean estimation, clip 10, delta = 1e-5; bands are 95 % intervals",
        x="epsilon",
        y="squared error of a coordinate",
        spec={**_SPEC, "methods": [GAUSSIAN, PAPER, HERE]},
        points=over_epsilon,
        logarithmic=("y",),
    ),
    Figure(
        name="mean_estimation_methods",
        title="Distributed mean estimation, all methods; bands are 95 % intervals",
        x="epsilon",
        y="squared error of a coordinate",
        spec=_SPEC,
        points=by_method,
        logarithmic=("y",),
        columns=4,
    ),
)

if __name__ == "__main__":
    typer.run(main)
