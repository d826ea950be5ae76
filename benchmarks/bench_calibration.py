"""How long does it take to calibrate EMNIST at 16 bits: the paper's way, and by a plan?"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
from benchmarks.timing import Report
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, logsumexp

from skellam.accounting import Gaussian, Sampled, epsilon
from skellam.plan import CalibratedPlan, Plan

CLIP, COHORT, POPULATION, ROUNDS, BITS = 0.03, 100, 3400, 1500, 16
PADDED, K, TARGET = 2**20, 3, 10.0
RATE, DELTA = COHORT / POPULATION, 1 / POPULATION
ORDERS = (*range(2, 129), 256)


def main() -> None:
    import dp_accounting  # noqa: F401  (imports are no part of what is measured)

    epsilon(Sampled(Gaussian(1.0, 1.0), 0.1), rounds=2, delta=1e-5)
    ours, seconds = timed(lambda: plan().noise_multiplier)
    papers, papers_seconds = timed(papers_multiplier)
    report = Report(
        "Calibration of EMNIST, epsilon 10, 16 bits",
        "what",
        "multiplier",
        "CPU s",
        "peer",
        "its multiplier",
        "its CPU s",
        peers=("peer", "its multiplier", "its CPU s"),
    )
    plans = ("a plan", f"{ours:.4f}", f"{seconds:.3g}")
    nested = ("the paper's, nested minimisation", f"{papers:.4f}", f"{papers_seconds:.3g}")
    report.row(*plans, *nested, ratio=papers_seconds / seconds, floor=10)
    report.row(*plans, "two seconds", "", "2", ratio=seconds / 2, ceiling=1)
    report.print()


def plan() -> CalibratedPlan:
    return Plan(
        dimension=1_018_174,
        clip=CLIP,
        bits=BITS,
        cohort=COHORT,
        population=POPULATION,
        rounds=ROUNDS,
    ).calibrated(epsilon=TARGET, delta=DELTA)


def papers_multiplier() -> float:
    """Minimise over the scale; for each scale, over the noise; for each noise, over the orders.

    As in the published program both minimisations are Brent's of a squared gap, to scipy's
    default tolerance; logarithms keep them from leaving their domain.
    """

    def log_noise_at(log_scale: float) -> float:
        def gap(log_std: float) -> float:
            return (papers_epsilon(math.exp(log_scale), math.exp(log_std)) - TARGET) ** 2

        return float(minimize_scalar(gap, bracket=(math.log(CLIP / 2), math.log(CLIP))).x)

    def gap(log_scale: float) -> float:
        return (log_scale - math.log(scale_at(math.exp(log_noise_at(log_scale))))) ** 2

    found = minimize_scalar(gap, bracket=(math.log(1e4), math.log(2e4))).x
    return math.exp(log_noise_at(found)) / CLIP


def scale_at(std: float) -> float:
    """Return the scale at which K standard deviations of a coordinate's sum fill the modulus."""
    room = (2**BITS / (2 * K)) ** 2 - COHORT / 4
    return math.sqrt(room / ((CLIP * COHORT) ** 2 / PADDED + std**2))


def papers_epsilon(scale: float, std: float) -> float:
    """Return epsilon by Corollary 3.3, Zhu and Wang's theorem 5 and the best whole order."""
    variance, norm, root = (scale * std) ** 2, scale * CLIP, math.sqrt(PADDED)
    square = min((norm + root) ** 2, norm**2 + PADDED / 4 + norm + root / 2)
    l1 = math.sqrt(square) * min(root, math.sqrt(square))

    def plain(a: int) -> float:
        extra = ((2 * a - 1) * square + 6 * l1) / (4 * variance**2), 3 * l1 / (2 * variance)
        return a * square / (2 * variance) + min(extra)

    return min(
        ROUNDS * min(plain(a), amplified(plain, a))
        + math.log(1 / (a * DELTA)) / (a - 1)
        + math.log1p(-1 / a)
        for a in ORDERS
    )


def amplified(plain: Callable[[int], float], order: int) -> float:
    """Sum the theorem's terms one by one, in logarithms, as the published program does."""

    def term(i: int) -> float:
        choose = gammaln(order + 1) - gammaln(i + 1) - gammaln(order - i + 1)
        moment = (i - 1) * plain(i) if i > 1 else 0.0
        return choose + i * np.log(RATE) + (order - i) * np.log(1 - RATE) + moment

    weights = [3.0 if i > 2 else 1.0 for i in range(order + 1)]
    return float(logsumexp([term(i) for i in range(order + 1)], b=weights)) / (order - 1)


def timed(run: Callable[[], float]) -> tuple[float, float]:
    start = time.process_time()
    result = run()
    return result, time.process_time() - start


if __name__ == "__main__":
    main()
