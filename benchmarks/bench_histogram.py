"""What do private histograms cost: in seconds, and in error beside continuous noise?"""

from __future__ import annotations

import math
import time

import numpy as np
from benchmarks.timing import Report

from skellam import analytics
from skellam.accounting import (
    DistributedDiscreteGaussian,
    Gaussian,
    Skellam,
    epsilon,
    gaussian_sigma,
    rdp_bound,
)
from skellam.accounting.laws import Law, discrete_gaussian_sum_law, skellam_law
from skellam.accounting.rdp import distributed_discrete_gaussian_rdp
from skellam.entropy import SystemEntropy

BUCKETS, CLIENTS = 1 << 16, 10_000
DELTA = 1e-6
SECONDS = 10


def main() -> None:
    seconds()
    error()
    binary()


def seconds() -> None:
    report = Report(
        f"A histogram over {BUCKETS:,} buckets, one row from each client, without the protocol; "
        f"ratio: processor seconds / {SECONDS}",
        "clients",
        "processor seconds",
        "seconds",
        "ns a coordinate",
    )
    users = [[bucket] for bucket in np.random.default_rng(0).integers(0, BUCKETS, CLIENTS)]
    query = analytics.histogram(np.arange(BUCKETS + 1), clients=CLIENTS, epsilon=1.0, delta=DELTA)
    busy, start = time.process_time(), time.perf_counter()
    analytics.run(query, users, entropy=SystemEntropy())
    busy, took = time.process_time() - busy, time.perf_counter() - start
    each = f"{1e9 * busy / BUCKETS / CLIENTS:.1f}"
    report.row(f"{CLIENTS:,}", f"{busy:.1f}", f"{took:.1f}", each, ratio=busy / SECONDS, ceiling=1)
    report.print()


def error() -> None:
    report = Report(
        f"Deviation of one count at the same epsilon and delta = {DELTA:g} (Laplace: delta = 0); "
        "ratio: our squared error / Gaussian's",
        "epsilon, buckets a user",
        "Skellam, no trusted server",
        "Gaussian, trusted server",
        "Laplace, trusted server",
        peers=("Gaussian, trusted server", "Laplace, trusted server"),
    )
    for target in (0.1, 0.5, 1.0, 2.0, 5.0):
        for buckets in (1, 16):
            query = analytics.histogram(
                range(BUCKETS + 1),
                max_buckets=buckets,
                clients=CLIENTS,
                epsilon=target,
                delta=DELTA,
            )
            gaussian = gaussian_sigma(target, DELTA, math.sqrt(buckets))
            laplace = math.sqrt(2) * buckets / target
            report.row(
                f"{target:g}, {buckets}",
                f"{math.sqrt(query.plan.variance):.3f}",
                f"{gaussian:.3f}",
                f"{laplace:.3f}",
                ratio=query.plan.variance / gaussian**2,
                ceiling=1.01 if buckets == 1 else None,
            )
    report.print()


def binary() -> None:
    """Repeat the paper's comparison: binary queries of 10,000 users, central deviation 50."""
    report = Report(
        f"{CLIENTS:,} users, a binary query, deviation 50; ratio: our epsilon / Gaussian's",
        "noise",
        "order 2, paper",
        "order 2, exact",
        f"epsilon at {DELTA:g}, paper",
        "epsilon, ours",
        peers=("order 2, paper", f"epsilon at {DELTA:g}, paper"),
    )
    local = 50 / math.sqrt(CLIENTS)
    paper = {
        "Gaussian": 1 / 2500,
        "Skellam": rdp_bound(2500, 1, 1, 2),
        "distributed discrete Gaussian": distributed_discrete_gaussian_rdp(
            sigma_local=local, shares=CLIENTS, l1=1, l2=1, dimension=1, order=2
        ),
    }
    exact = {
        "Gaussian": 1 / 2500,
        "Skellam": order_two(skellam_law(2500.0)),
        "distributed discrete Gaussian": order_two(discrete_gaussian_sum_law(local, CLIENTS)),
    }
    noises = {
        "Gaussian": Gaussian(50.0, 1.0),
        "Skellam": Skellam(2500.0, 1.0, 1.0),
        "distributed discrete Gaussian": DistributedDiscreteGaussian(local, CLIENTS, 1.0, 1.0),
    }
    base = epsilon(noises["Gaussian"], delta=DELTA)
    for name, noise in noises.items():
        ours = epsilon(noise, delta=DELTA)
        report.row(
            name,
            f"{paper[name]:.5g}",
            f"{exact[name]:.5g}",
            f"{epsilon(noise, delta=DELTA, method='paper'):.4g}",
            f"{ours:.4g}",
            ratio=ours / base,
        )
    report.print()


def order_two(law: Law) -> float:
    """Return the Rényi divergence of order 2 between a law and itself moved by one."""
    whole = np.concatenate((law.log_pmf[:0:-1], law.log_pmf))
    logs = 2 * whole[:-1] - whole[1:]
    peak = logs.max()
    return float(peak + np.log(np.exp(logs - peak).sum()))


if __name__ == "__main__":
    main()
