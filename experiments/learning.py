"""The paper's last figures, private training, drawn from the runs that `experiments.record` keeps.

Every point is a mean over the seeds of its cell, with Student's 95 % interval where there are three
or more; the spec of each figure names the command that trains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from experiments.figure import Figure, Point, Spec, half_width
from experiments.runs import (
    BITS,
    CENTRAL,
    COMPRESSED,
    EIGHT,
    GAUSSIAN,
    GAUSSIAN_RDP,
    MULTIPLES,
    NOTHING,
    SETTINGS,
    TWELVE,
    Run,
    distributed,
    middle_epsilon,
    paper,
    recorded,
)

Points: TypeAlias = Callable[[Spec], Iterable[Point]]

_MAIN = (GAUSSIAN, GAUSSIAN_RDP, TWELVE, EIGHT, COMPRESSED)


def _ways(multiple: int) -> tuple[str, ...]:
    """Return the methods of a panel: those of the paper with this k."""
    papers = (paper(bits, multiple) for bits in reversed(BITS))
    return (*_MAIN, *papers, distributed(multiple), *((CENTRAL,) if multiple == 4 else ()))


def over_epsilon(spec: Spec) -> Iterator[Point]:
    """Yield the accuracy over epsilon, beside the paper's method with each multiple k."""
    for panel, (task, multiple) in spec["panels"].items():
        runs = recorded(task)
        for way in _ways(multiple):
            for epsilon in sorted({run.cell.epsilon for run in runs}):
                if chosen := _of(runs, way, epsilon):
                    yield _point(panel, way, epsilon, [run.accuracy for run in chosen])


def over_bits(spec: Spec) -> Iterator[Point]:
    """Yield the accuracy over the bits that a client sends for a parameter."""
    for panel, (task, epsilon) in spec["panels"].items():
        runs = recorded(task)
        for curve, ways in spec["curves"].items():
            for bits, way in ways:
                if chosen := _of(runs, way, epsilon):
                    yield _point(panel, curve, bits, [run.accuracy for run in chosen])


def over_rounds(spec: Spec) -> Iterator[Point]:
    """Yield the accuracy in the course of training."""
    for panel, (task, epsilon) in spec["panels"].items():
        runs = recorded(task)
        for way in (NOTHING, GAUSSIAN, TWELVE, EIGHT, paper(16, 4), paper(12, 4), distributed(4)):
            for measured in zip(*(run.curve for run in _of(runs, way, epsilon)), strict=True):
                yield _point(panel, way, measured[0][0], [accuracy for _, accuracy in measured])


def _of(runs: Iterable[Run], way: str, epsilon: float) -> list[Run]:
    return [run for run in runs if (run.cell.way, run.cell.epsilon) == (way, epsilon)]


def _point(panel: str, curve: str, x: float, accuracies: list[float]) -> Point:
    percent = [100 * accuracy for accuracy in accuracies]
    half = half_width(percent) if len(percent) > 2 else math.nan  # of two it says nothing
    return Point(panel, curve, x, sum(percent) / len(percent), half)


def _figure(name: str, title: str, x: str, spec: Spec, points: Points) -> Figure:
    """Return a figure that shows what is recorded."""
    whole = {"repeat": "python -m experiments.record", **spec}
    return Figure(name, title, x, "test accuracy, per cent", whole, points)


_MIDDLE = {
    f"{task}, epsilon = {middle_epsilon(task):g}": (task, middle_epsilon(task)) for task in SETTINGS
}
_EVERY = {
    f"{task}, epsilon = {epsilon:g}": (task, epsilon)
    for task, setting in SETTINGS.items()
    for epsilon in setting.epsilons
}
FIGURES = (
    _figure(
        "learning_epsilon",
        "Private training, cohorts of 100; bands are 95 % intervals over seeds",
        "epsilon against the public, delta = 1/3400",
        {
            "panels": {
                f"{task}, k = {k}": (task, k)
                for task in SETTINGS
                for k in (MULTIPLES if task in {"mnist_writers", "unipen"} else (4,))
            }
        },
        over_epsilon,
    ),
    _figure(
        "learning_bits",
        "Private training over the bits of a message; bands are 95 % intervals over seeds",
        "bits a parameter",
        {
            "panels": _MIDDLE,
            "curves": {
                GAUSSIAN: [(2, GAUSSIAN), (16, GAUSSIAN)],
                GAUSSIAN_RDP: [(2, GAUSSIAN_RDP), (16, GAUSSIAN_RDP)],
                "Skellam (here)": [(2, COMPRESSED), (8, EIGHT), (12, TWELVE)],
                **{
                    f"Skellam (the paper), k = {k}": [(b, paper(b, k)) for b in BITS]
                    for k in MULTIPLES
                },
                **{
                    f"distributed discrete Gaussian, k = {k}": [(16, distributed(k))]
                    for k in MULTIPLES
                },
            },
        },
        over_bits,
    ),
    _figure(
        "learning_rounds",
        "Private training in its course; bands are 95 % intervals over seeds",
        "round",
        {"panels": _EVERY},
        over_rounds,
    ),
)
