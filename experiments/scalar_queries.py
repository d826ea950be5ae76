"""The paper's second figure: one sensitivity-1 query, for epsilon up to 10 and up to 1."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt

from experiments.advanced_composition import direct_skellam_epsilon
from experiments.figure import Figure, Point, Spec, or_nothing

from skellam import accounting


def points(spec: Spec) -> Iterable[Point]:
    """Yield epsilon over the deviation of the noise, for queries scaled by s."""
    for panel, sigmas in spec["panels"].items():
        for sigma in sigmas:
            for curve, epsilon in _curves(sigma, spec):
                yield Point(panel, curve, sigma, epsilon)


def _curves(sigma: float, spec: Spec) -> Iterable[tuple[str, float]]:
    delta, n = spec["delta"], spec["shares"]

    def cost(mechanism: accounting.Mechanism, method: accounting.Method) -> float:
        return or_nothing(lambda: accounting.epsilon(mechanism, delta=delta, method=method))

    gaussian = accounting.Gaussian(sigma, 1.0)
    yield "Gaussian (RDP)", cost(gaussian, "rdp")
    yield "Gaussian (analytic)", cost(gaussian, "gdp")
    yield "Skellam (direct)", direct_skellam_epsilon(sigma**2, 1, delta)
    for s in spec["scales"]:
        skellam = accounting.Skellam(variance=(s * sigma) ** 2, l2=s)
        shares = accounting.DistributedDiscreteGaussian(s * sigma / sqrt(n), n, l2=s)
        central = accounting.DiscreteGaussian(s * sigma, s)
        yield f"central discrete Gaussian (RDP), s = {s}", cost(central, "paper")
        yield f"central discrete Gaussian (PLD), s = {s}", cost(central, "pld")
        yield f"Skellam (RDP, the paper's bound), s = {s}", cost(skellam, "paper")
        yield f"Skellam (PLD), s = {s}", cost(skellam, "pld")
        yield f"Skellam (GDP, here), s = {s}", cost(skellam, "gdp")
        yield f"distributed discrete Gaussian (RDP), s = {s}", cost(shares, "paper")


FIGURE = Figure(
    name="scalar_queries",
    title="One sensitivity-1 query; s multiplies query and noise",
    x="standard deviation of the noise, before scaling",
    y="epsilon",
    spec={
        "delta": 1e-6,
        "shares": 10_000,
        "scales": [1, 10, 100],
        "panels": {
            "epsilon <= 10": [round(0.5 + 0.1 * i, 2) for i in range(46)],
            "epsilon <= 1": [5.0 + i for i in range(46)],
        },
    },
    points=points,
    highest={"epsilon <= 10": 10.0, "epsilon <= 1": 1.0},
    columns=2,
    slow=True,
)
