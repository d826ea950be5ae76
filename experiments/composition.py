"""The paper's first figure: what many releases of a sensitivity-1 query cost, by accountant."""

from __future__ import annotations

import math
from collections.abc import Iterable

from experiments.figure import Figure, Point, Spec

from experiments import advanced_composition
from skellam import accounting


def points(spec: Spec) -> Iterable[Point]:
    """Yield epsilon over the number of releases, all noises with the same deviation."""
    sigma, delta = spec["sigma"], spec["delta"]
    scale = laplace_scale(sigma**2)
    skellam = accounting.Skellam(variance=sigma**2, l2=1)
    rows: list[tuple[str, accounting.Mechanism, accounting.Method]] = [
        ("Gaussian (RDP)", accounting.Gaussian(sigma, 1.0), "rdp"),
        ("discrete Gaussian (RDP)", accounting.DiscreteGaussian(sigma, 1), "paper"),
        ("discrete Gaussian (PLD)", accounting.DiscreteGaussian(sigma, 1), "pld"),
        ("discrete Laplace (RDP)", accounting.DiscreteLaplace(scale, 1), "rdp"),
        ("discrete Laplace (PLD)", accounting.DiscreteLaplace(scale, 1), "pld"),
        ("Skellam (RDP, the paper's bound)", skellam, "paper"),
        ("Skellam (PLD)", skellam, "pld"),
        ("Skellam (GDP, here)", skellam, "gdp"),
        ("Skellam (exact RDP, here)", skellam, "rdp"),
    ]
    for n in spec["rounds"]:
        for name, mechanism, method in rows:
            cost = accounting.epsilon(mechanism, rounds=n, delta=delta, method=method)
            yield Point("composition", name, n, cost)
        direct, _ = advanced_composition.direct_skellam(sigma**2, 1, rounds=n, delta=delta)
        laplace, _ = advanced_composition.composed_laplace(scale, 1, rounds=n, delta=delta)
        yield Point("composition", "Skellam (direct, advanced composition)", n, direct)
        yield Point("composition", "discrete Laplace (advanced composition)", n, laplace)


def laplace_scale(variance: float) -> float:
    """Return t of the discrete Laplace law with this variance: 2p/(1-p)^2 with p = e^(-1/t)."""
    p = (1 + variance - math.sqrt(1 + 2 * variance)) / variance
    return -1 / math.log(p)


FIGURE = Figure(
    name="composition",
    title="Sensitivity-1 queries under composition",
    x="releases",
    y="epsilon",
    spec={"sigma": 10.0, "delta": 1e-6, "rounds": [1, *range(50, 2001, 50)]},
    points=points,
    highest={"composition": 60.0},
    slow=True,
)
