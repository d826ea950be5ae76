"""Noise in the model over rounds: independent against correlated, at the same epsilon."""

from __future__ import annotations

import math
from collections.abc import Iterable

from experiments.figure import Figure, Point, Spec

from skellam import bands
from skellam.plan.correlation import CorrelatedRun, best_band

INDEPENDENT = "independent, by the clients"
INDEPENDENT_TWICE = "independent, by both servers"
CORRELATED = "correlated, by the helper alone (here)"
CORRELATED_TWICE = "correlated, by both servers (here)"


def points(spec: Spec) -> Iterable[Point]:
    """Yield deviations of the noise in the model after each round.

    The unit is the deviation of the noise that an independent round needs for the same epsilon.
    """
    for momentum in spec["momenta"]:
        run = CorrelatedRun(
            rounds=spec["rounds"],
            participations=spec["participations"],
            separation=spec["separation"],
            momentum=momentum,
        )
        found = best_band(run).band
        panel = f"momentum {momentum:g}" if momentum else "plain averaging"
        for curve, band, noises in (
            (INDEPENDENT_TWICE, (1,), 2),
            (INDEPENDENT, (1,), 1),
            (CORRELATED_TWICE, found, 2),
            (CORRELATED, found, 1),
        ):
            unit = noises * (run.sensitivity(band) / run.sensitivity((1,))) ** 2
            variances = bands.model_variances(band, rounds=run.rounds, momentum=momentum)
            for t, variance in enumerate(variances, start=1):
                yield Point(panel, curve, t, math.sqrt(unit * variance))


FIGURE = Figure(
    name="one_epsilon",
    title="Noise in the model at the same epsilon against each server",
    x="rounds",
    y="deviation of the noise, in units of an independent round's",
    spec={"rounds": 50, "participations": 4, "separation": 13, "momenta": [0.0, 0.9]},
    points=points,
)
