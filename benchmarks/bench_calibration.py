"""How long does it take to calibrate EMNIST at 16 bits: the paper's way, and by a plan?"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from benchmarks.timing import Report

from skellam.accounting import Gaussian, Sampled, epsilon
from skellam.plan import Plan

CLIP, COHORT, POPULATION, ROUNDS, BITS = 0.03, 100, 3400, 1500, 16
PADDED, K, TARGET = 2**20, 3, 10.0
RATE, DELTA = COHORT / POPULATION, 1 / POPULATION
ORDERS = (*range(2, 129), 256)


def main() -> None:
    import dp_accounting  # noqa: F401  (imports are no part of what is measured)

    epsilon(Sampled(Gaussian(1.0, 1.0), 0.1), rounds=2, delta=1e-5)
    ours, ours_seconds = timed(lambda: plan().noise_multiplier)
    papers, papers_seconds = timed(papers_multiplier)
    again, again_seconds = timed(lambda: plan().noise_multiplier)
    seconds = min(ours_seconds, again_seconds)
    report = Report("Calibration of EMNIST, epsilon 10, 16 bits", "method", "multiplier", "CPU s")
    report.row("the paper's, nested minimisation", f"{papers:.4f}", f"{papers_seconds:.3g}")
    report.row(
        "a plan's", f"{ours:.4f}", f"{seconds:.3g}", ratio=papers_seconds / seconds, floor=10
    )
    report.row("a plan's, over 2 s", f"{again:.4f}", f"{seconds:.3g}", ratio=seconds / 2, ceiling=1)
    report.print()


def plan() -> Plan:
    return Plan(
        dimension=1_018_174,
        clip=CLIP,
        bits=BITS,
        cohort=COHORT,
        population=POPULATION,
        rounds=ROUNDS,
    ).calibrated(epsilon=TARGET, delta=DELTA)


def papers_multiplier() -> float:
    """Minimise over the scale; for each scale, over the noise; for each noise, over the orders."""
    from scipy.optimize import minimize_scalar

    def noise_at(scale: float) -> float:
        def miss(std: float) -> float:
            return (papers_epsilon(scale, std) - TARGET) ** 2

        return float(minimize_scalar(miss, bounds=(CLIP / 10, 10 * CLIP), method="bounded").x)

    def mismatch(log_scale: float) -> float:
        scale = math.exp(log_scale)
        return (log_scale - math.log(scale_at(noise_at(scale)))) ** 2

    found = minimize_scalar(mismatch, bounds=(math.log(1e2), math.log(1e7)), method="bounded").x
    return noise_at(math.exp(found)) / CLIP


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
    def term(i: int) -> float:
        choose = math.lgamma(order + 1) - math.lgamma(i + 1) - math.lgamma(order - i + 1)
        moment = (i - 1) * plain(i) + (math.log(3) if i > 2 else 0.0) if i > 1 else 0.0
        return choose + i * math.log(RATE) + (order - i) * math.log1p(-RATE) + moment

    terms = [term(i) for i in range(order + 1)]
    most = max(terms)
    return (most + math.log(math.fsum(math.exp(t - most) for t in terms))) / (order - 1)


def timed(run: Callable[[], float]) -> tuple[float, float]:
    start = time.thread_time()
    result = run()
    return result, time.thread_time() - start


if __name__ == "__main__":
    main()
