"""The paper's last figures, private training, drawn from the runs that `experiments.runs` recorded.

Every point is a mean over the seeds of its cell; the spec of each names the command that trains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from experiments.figure import Figure, Point, Spec
from experiments.runs import COMPRESSED, EIGHT, GAUSSIAN, NOTHING, TWELVE, Run, paper, recorded

Points: TypeAlias = Callable[[Spec], Iterable[Point]]

_MAIN = (GAUSSIAN, TWELVE, EIGHT)
_PAPERS = {k: tuple(paper(bits, k) for bits in (16, 14, 12)) for k in (3, 4)}


def over_epsilon(spec: Spec) -> Iterable[Point]:
    """Yield the accuracy over epsilon, beside the paper's method with each multiple k."""
    for panel, (task, multiple) in spec["panels"].items():
        runs = recorded(task)
        for way in (*_MAIN, *_PAPERS[multiple]):
            for epsilon in sorted({run.cell.epsilon for run in runs}):
                if chosen := _of(runs, way, epsilon):
                    yield Point(panel, way, epsilon, _percent(chosen))


def over_bits(spec: Spec) -> Iterable[Point]:
    """Yield the accuracy over the bits that a client sends for a parameter."""
    for panel, (task, epsilon) in spec["panels"].items():
        runs = recorded(task)
        for curve, ways in spec["curves"].items():
            for bits, way in ways:
                if chosen := _of(runs, way, epsilon):
                    yield Point(panel, curve, bits, _percent(chosen))


def over_rounds(spec: Spec) -> Iterator[Point]:
    """Yield the accuracy in the course of training."""
    for panel, (task, epsilon) in spec["panels"].items():
        runs = recorded(task)
        for way in (NOTHING, *_MAIN, paper(12, 4)):
            for measured in zip(*(run.curve for run in _of(runs, way, epsilon)), strict=True):
                accuracy = sum(accuracy for _, accuracy in measured) / len(measured)
                yield Point(panel, way, measured[0][0], 100 * accuracy)


def _of(runs: Iterable[Run], way: str, epsilon: float) -> list[Run]:
    return [run for run in runs if (run.cell.way, run.cell.epsilon) == (way, epsilon)]


def _percent(runs: list[Run]) -> float:
    return 100 * sum(run.accuracy for run in runs) / len(runs)


def _figure(name: str, title: str, x: str, spec: Spec, points: Points) -> Figure:
    """Return a figure whose quick and full specs are one: it shows what is recorded."""
    repeat = "python -m experiments.runs TASK"
    whole = {"repeat": repeat, **spec}
    return Figure(name, title, x, "test accuracy, per cent", whole, whole, points, highest={})


_AT_FOUR = {f"{task}, epsilon = 4": (task, 4.0) for task in ("mnist_writers", "unipen")}
FIGURES = (
    _figure(
        "learning_epsilon",
        "Private training of a small CNN, cohorts of 100",
        "epsilon against the public, delta = 1/3400",
        {
            "panels": {
                "mnist_writers, k = 4": ("mnist_writers", 4),
                "mnist_writers, k = 3": ("mnist_writers", 3),
                "unipen, k = 4": ("unipen", 4),
            }
        },
        over_epsilon,
    ),
    _figure(
        "learning_bits",
        "Private training over the bits of a message",
        "bits a parameter",
        {
            "panels": _AT_FOUR,
            "curves": {
                GAUSSIAN: [(2, GAUSSIAN), (16, GAUSSIAN)],
                "Skellam (here)": [(2, COMPRESSED), (8, EIGHT), (12, TWELVE)],
                **{
                    f"Skellam (the paper), k = {k}": [(b, paper(b, k)) for b in (12, 14, 16)]
                    for k in (3, 4)
                },
            },
        },
        over_bits,
    ),
    _figure(
        "learning_rounds",
        "Private training in its course",
        "round",
        {"panels": _AT_FOUR},
        over_rounds,
    ),
)
