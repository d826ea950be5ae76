"""The paper's first experiment: the private mean of vectors that n clients hold.

Run: python examples/mean_estimation.py [--full]
"""

import argparse

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import skellam as sk
from skellam.analytics import mean_error
from skellam.plan import CalibratedPlan

QUICK = {"n": 100, "d": 250, "bits": (10, 12, 14, 16), "epsilons": (1.0, 4.0), "repeats": 5}
FULL = {
    "n": 1000,
    "d": 250,
    "bits": (10, 12, 14, 16),
    "epsilons": (0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0),
    "repeats": 10,
}


def plan_for(noise: str, bits: int, spec: dict, epsilon: float) -> CalibratedPlan:
    plan = sk.Plan(
        dimension=spec["d"],
        clip=10.0,
        bits=bits,
        cohort=spec["n"],
        rounds=1,
        sampling="all",
        noise=noise,
    )
    return plan.calibrated(epsilon=epsilon, delta=1e-5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the paper's larger grid")
    spec = FULL if parser.parse_args().full else QUICK
    table = Table(title=f"squared error a coordinate, n = {spec['n']}, d = {spec['d']}, c = 10")
    columns = ["epsilon", "Gaussian", *(f"Skellam, {bits} bits" for bits in spec["bits"])]
    for column in columns:
        table.add_column(column, justify="right")
    with Progress(transient=True) as progress:
        steps = len(spec["epsilons"]) * (1 + len(spec["bits"])) * spec["repeats"]
        task = progress.add_task("averaging", total=steps)
        for epsilon in spec["epsilons"]:
            cells = []
            for noise, bits in [("gaussian", 16), *(("skellam", b) for b in spec["bits"])]:
                error = mean_error(
                    plan_for(noise, bits, spec, epsilon),
                    repeats=spec["repeats"],
                    entropy=sk.SystemEntropy(),
                    progress=lambda _: progress.advance(task),
                )
                cells.append(f"{error.value:.4g} ± {error.half_width:.2g}")
            table.add_row(f"{epsilon:g}", *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
