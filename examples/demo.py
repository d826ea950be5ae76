"""Draw secure Skellam noise, compare it with its law, and say what comes next."""

import time

import numpy as np
from rich.console import Console
from rich.table import Table

import skellam as sk
from skellam import noise

DRAWS = 1 << 20


def main() -> None:
    console = Console()
    table = Table(title="Skellam noise from AES-256-CTR, exact to 2^-100")
    for column in ("variance", "sample variance", "draws per second", "distance from the law"):
        table.add_column(column, justify="right")
    for variance in (0.25, 1.0, 100.0, 1e4, 1e6):
        sampler = noise.Skellam(variance)
        start = time.perf_counter()
        draws = np.asarray(sampler.draw(DRAWS, entropy=sk.SystemEntropy()))
        seconds = time.perf_counter() - start
        table.add_row(
            f"{variance:g}",
            f"{draws.var():.5g}",
            f"{DRAWS / seconds / 1e6:.0f} million",
            f"2^{np.log2(sampler.total_variation):.0f}",
        )
    console.print(table)
    console.print("Next: planning, encoding, secure sums and private training.")


if __name__ == "__main__":
    main()
