"""The paper's third figure: real vectors, rounded; a simple setting and one of federated learning.

The paper rounds until the norm is within a bound (beta = e^(-1/2)) and accounts for that bound.
Here plain unbiased rounding is accounted as part of the mechanism (Results B and B').
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from experiments.figure import Figure, Point, Spec, or_nothing

from skellam import accounting
from skellam.codec import rounded_norm_bound

BETA = math.exp(-0.5)
BLOCKS = (1, 16, 64, 256)


def points(spec: Spec) -> Iterable[Point]:
    """Yield epsilon over the noise multiplier, at every scale."""
    for panel, setting in spec["panels"].items():
        for z in setting["multipliers"]:
            gaussian = accounting.Gaussian(z, 1.0)
            yield Point(panel, "Gaussian (RDP)", z, _cost(gaussian, setting))
            yield Point(panel, "Gaussian (tight)", z, _cost(gaussian, setting, "best"))
            for s in setting["scales"]:
                for curve, epsilon in _curves(z, s, setting):
                    yield Point(panel, f"{curve}, s = {s}", z, epsilon)


def _curves(z: float, s: float, setting: Mapping[str, Any]) -> Iterable[tuple[str, float]]:
    """Yield the curves of one scale; sensitivity is 1 before scaling."""
    d, n = setting["dimension"], setting["clients"]
    norm = rounded_norm_bound(s, d, BETA)
    skellam = accounting.Skellam((s * z) ** 2, norm, dimension=d)
    shares = accounting.DistributedDiscreteGaussian(s * z / math.sqrt(n), n, norm, dimension=d)
    yield "Skellam (the paper)", _cost(skellam, setting, "paper")
    central = accounting.DiscreteGaussian(s * z, norm, dimension=d)
    yield "central discrete Gaussian", _cost(central, setting, "paper")
    yield "distributed discrete Gaussian", _cost(shares, setting, "paper")
    rounded = min(_cost(_rounded(z, s, block, setting), setting, "best") for block in BLOCKS)
    yield "Skellam (rounding accounted, here)", rounded


def _rounded(
    z: float, s: float, block: int, setting: Mapping[str, Any]
) -> accounting.RoundedSkellam:
    d = setting["dimension"]
    mass = 1e-4 * setting["delta"] / setting["rounds"] / math.ceil(d / block)
    return accounting.RoundedSkellam(
        variance=(s * z) ** 2,
        l2=s,
        dimension=d,
        tail=mass * min(1.0, (s * z) ** 2 / 2),
        block=block,
        coordinate_bound=min(s, 6 * s / math.sqrt(d)) if block > 1 else None,
    )


def _cost(
    noise: accounting.NoiseMechanism, setting: Mapping[str, Any], method: accounting.Method = "rdp"
) -> float:
    sampled = accounting.Sampled(noise, setting["rate"])
    return or_nothing(
        lambda: accounting.epsilon(
            sampled, rounds=setting["rounds"], delta=setting["delta"], method=method
        )
    )


def _spec(simple: list[float], learning: list[float], scales: list[int]) -> Spec:
    one = {"dimension": 256, "clients": 10_000, "rate": 1.0, "rounds": 1, "delta": 1e-6}
    many = {"dimension": 2**20, "clients": 100, "rate": 100 / 3400, "rounds": 1500}
    return {
        "panels": {
            "d = 256, n = 10000, one release": {
                **one,
                "multipliers": simple,
                "scales": [10, 100],
            },
            "EMNIST: d = 2^20, n = 100 of 3400, 1500 releases": {
                **many,
                "delta": 1 / 3400,
                "multipliers": learning,
                "scales": scales,
            },
        }
    }


FIGURE = Figure(
    name="real_queries",
    title="Real vectors, rounded to integers; s multiplies vectors and noise",
    x="noise multiplier",
    y="epsilon",
    spec=_spec(
        [0.5 + 0.5 * i for i in range(20)],
        [round(0.6 + 0.2 * i, 1) for i in range(13)],
        [300, 1000, 10_000, 100_000],
    ),
    points=points,
    highest={
        "d = 256, n = 10000, one release": 10.0,
        "EMNIST: d = 2^20, n = 100 of 3400, 1500 releases": 20.0,
    },
    columns=2,
    slow=True,
)
