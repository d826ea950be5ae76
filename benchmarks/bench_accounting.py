"""Epsilon of sampled Gaussians, and its time, against dp_accounting's two-sided estimates.

``python -m benchmarks accounting`` takes some minutes, nearly all of them dp_accounting's.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Iterator, Sequence

from benchmarks.timing import Report

from skellam.accounting import Gaussian, Sampled, epsilon

RATES = (1e-4, 1e-2, 1.0)
MULTIPLIERS = (0.5, 1.0, 10.0, 100.0)
ROUNDS = (1, 100, 10**4, 10**6)
DELTAS = (1e-2, 1e-6, 1e-12)
MAX_POINTS = 1e6
NOISE = 1e-15
"""What dp_accounting's FFT leaves in delta, a round: below, its estimates say nothing."""


def main() -> None:
    show(MULTIPLIERS, ROUNDS)


def sample() -> None:
    """Take a quarter of the settings."""
    show(MULTIPLIERS[1:3], ROUNDS[:3:2])


def show(multipliers: Sequence[float], numbers: Sequence[int]) -> None:
    """Print the epsilons of these noise multipliers and numbers of rounds."""
    logging.disable(logging.WARNING)  # dp_accounting's, on every optimistic estimate
    report = Report(
        "Epsilon of Poisson sampled Gaussians, and over dp_accounting's pessimistic estimate",
        "rate, multiplier, rounds, delta",
        "skellam",
        "optimistic",
        "pessimistic",
        "ms",
        "their s",
        peers=("optimistic", "pessimistic", "their s"),
    )
    for row in rows(multipliers, numbers):
        report.row(*row[:-1], ratio=row[-1], ceiling=1.02 if row[-1] else None)
    report.print()


def rows(
    multipliers: Sequence[float], numbers: Sequence[int]
) -> Iterator[tuple[str, str, str, str, str, str, float | None]]:
    """Return setting, ours, theirs twice, times, and ours over their pessimistic one."""
    for rate, z, rounds in itertools.product(RATES, multipliers, numbers):
        try:
            theirs = estimates(rate, z, rounds)
        except OverflowError:  # dp_accounting's, where a loss is below -700
            continue
        if theirs is None:
            continue
        for delta in DELTAS:
            begin = time.perf_counter()
            ours = epsilon(Sampled(Gaussian(z, 1.0), rate), rounds=rounds, delta=delta)
            spent = time.perf_counter() - begin
            low, high, seconds = theirs
            try:
                below, above = low.get_epsilon_for_delta(delta), high.get_epsilon_for_delta(delta)
            except OverflowError:  # dp_accounting's, where a loss is below -700
                continue
            known = above > 0 and delta >= NOISE * rounds
            ratio = ours / above if known else None
            name = f"{rate:g}, {z:g}, {rounds:g}, {delta:g}"
            shown = (f"{ours:.5g}", f"{below:.5g}", f"{above:.5g}")
            yield (name, *shown, f"{1e3 * spent:.0f}", f"{seconds:.2f}", ratio)


def estimates(rate: float, z: float, rounds: int) -> tuple[object, object, float] | None:
    """Return dp_accounting's optimistic and pessimistic distributions, and the seconds they took.

    None where the composed losses would have more than ``MAX_POINTS`` at their finest interval.
    """
    from dp_accounting.pld import privacy_loss_distribution

    reach = 12 / z + 0.5 / z**2
    if rate < 1:
        reach = math.log1p(rate * math.expm1(min(reach, 600.0)))
    spread = min(reach, rate * math.sqrt(math.expm1(min(1 / z**2, 600.0))))
    width = min(2 * rounds * reach, 20 * math.sqrt(rounds) * spread + rounds * spread**2)
    interval = max(1e-4, width / MAX_POINTS)
    if interval > spread:
        return None
    begin = time.perf_counter()
    pair = [
        privacy_loss_distribution.from_gaussian_mechanism(
            z,
            sampling_prob=rate,
            value_discretization_interval=interval,
            pessimistic_estimate=pessimistic,
            use_connect_dots=pessimistic,
        ).self_compose(rounds)
        for pessimistic in (False, True)
    ]
    return pair[0], pair[1], time.perf_counter() - begin
