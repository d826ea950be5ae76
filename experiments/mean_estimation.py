"""The paper's fourth figure: the private mean of vectors, measured, over epsilon and bits."""

from __future__ import annotations

from collections.abc import Iterable

from experiments.figure import Figure, Point, Spec

import skellam as sk
from skellam.analytics import mean_error
from skellam.errors import InfeasibleError

RIVALS = {
    "Skellam (the paper)": {"accountant": "paper", "rounding": "conditional"},
    "Skellam (here)": {},
}


def points(spec: Spec) -> Iterable[Point]:
    """Yield the squared error of a coordinate of the mean."""
    for panel, setting in spec["panels"].items():
        for epsilon in spec["epsilons"]:
            gaussian = {"noise": "gaussian", "bits": 16}
            error = _error(setting, epsilon, spec, gaussian)
            yield Point(panel, "central Gaussian", epsilon, error)
            for bits in setting["bits"]:
                for name, changes in RIVALS.items():
                    error = _error(setting, epsilon, spec, {**changes, "bits": bits})
                    yield Point(panel, f"{name}, b = {bits}", epsilon, error)


def _error(setting: Spec, epsilon: float, spec: Spec, changes: Spec) -> float:
    plan = sk.Plan(
        dimension=setting["dimension"],
        clip=10.0,
        cohort=setting["clients"],
        rounds=1,
        sampling="all",
        **changes,
    )
    try:
        plan = plan.calibrated(epsilon=epsilon, delta=spec["delta"])
    except InfeasibleError:
        return float("inf")
    return mean_error(plan, repeats=spec["repeats"], entropy=sk.SystemEntropy()).value


FIGURE = Figure(
    name="mean_estimation",
    title="Distributed mean estimation, clip 10",
    x="epsilon",
    y="squared error of a coordinate",
    quick={
        "delta": 1e-5,
        "repeats": 3,
        "epsilons": [1.0, 2.0, 4.0, 6.0],
        "panels": {"n = 100, d = 250": {"clients": 100, "dimension": 250, "bits": [10, 14]}},
    },
    full={
        "delta": 1e-5,
        "repeats": 10,
        "epsilons": [0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0],
        "panels": {
            "n = 100, d = 250": {"clients": 100, "dimension": 250, "bits": [10, 12, 14, 16]},
            "n = 1000, d = 250": {"clients": 1000, "dimension": 250, "bits": [10, 12, 14, 16]},
            "n = 10000, d = 2000": {
                "clients": 10_000,
                "dimension": 2000,
                "bits": [14, 16, 18, 20],
            },
        },
    },
    points=points,
    highest={},
    logarithmic=("y",),
)
