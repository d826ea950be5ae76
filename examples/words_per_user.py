"""How much do users of Stack Exchange write, and what do they write about? Asked privately.

Run: python examples/words_per_user.py --data DIRECTORY [--picture words.png]

Every user is a client that holds its own sentences. Three queries are spent from a ledger: the
quantiles and the histogram of how many words a user wrote, and which words many users use.
"""

import argparse
import gzip
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import skellam as sk
from skellam import analytics
from skellam.accounting.ledger import Ledger

FILE = "stackexchange_users.json.gz"
EDGES = np.unique(np.round(np.geomspace(1, 100_000, 41)))
WORDS = ("the", "you", "python", "beer", "coffee", "chess", "poker", "wine", "ukulele")


def main() -> None:
    arguments = parse()
    users = read(Path(arguments.data) / FILE)
    lengths = [[sum(len(text.split()) for text in texts)] for texts in users]
    words = [sorted({word for text in texts for word in text.split()}) for texts in users]
    entropy = sk.SystemEntropy()
    terms = {"clients": len(users), "epsilon": arguments.epsilon / 3, "delta": 1e-6}
    budget = {"epsilon": arguments.epsilon, "delta": 3e-6}
    with (
        tempfile.TemporaryDirectory() as folder,
        Ledger.create(Path(folder) / "ledger", **budget) as ledger,
    ):
        quantiles = analytics.run(
            analytics.quantiles([0.1, 0.5, 0.9], EDGES, **terms),
            lengths,
            entropy=entropy,
            ledger=ledger,
        )
        counts = analytics.run(
            analytics.histogram(EDGES, **terms), lengths, entropy=entropy, ledger=ledger
        )
        sketch = analytics.run(
            analytics.hashed_frequencies(2048, public_seed=seed(), max_items=32, **terms),
            words,
            entropy=entropy,
            ledger=ledger,
        )
        spent = ledger.epsilon()
    console = Console()
    console.print(quantile_table(quantiles, np.concatenate(lengths)))
    console.print(word_table(sketch, words))
    console.print(f"{len(users):,} users; epsilon {spent:.3g} at delta {budget['delta']:g} in all")
    if arguments.picture:
        draw(counts, np.concatenate(lengths), arguments.picture)
        console.print(f"The histogram is in {arguments.picture}.")


def quantile_table(quantiles, lengths) -> Table:
    table = Table(title="Words a user wrote")
    for column in ("share of users", "at most", "95 % interval", "truth"):
        table.add_column(column, justify="right")
    for each in quantiles:
        low, high = each.interval
        truth = np.quantile(lengths, each.probability, method="inverted_cdf")
        table.add_row(
            f"{each.probability:.0%}",
            f"{each.value:,.0f}",
            f"{low:,.0f} to {high:,.0f}",
            f"{truth:,.0f}",
        )
    return table


def word_table(sketch, words) -> Table:
    table = Table(title="Users whose 32 chosen words hold it: nobody listed the words before")
    for column in ("word", "users", "95 % interval", "users who have it at all"):
        table.add_column(column, justify="right")
    for word in WORDS:
        found = sketch[word]
        low, high = found.interval()
        have = sum(word in each for each in words)
        table.add_row(word, f"{found.value:.0f}", f"{low:.0f} to {high:.0f}", f"{have:,}")
    return table


def draw(counts, lengths, path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    low, high = counts.interval()
    truth, _ = np.histogram(lengths, EDGES)
    left = [label.low for label in counts.labels]
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    axes.stairs(truth, EDGES, color="0.6", fill=True, label="truth")
    middle = np.sqrt(np.array(left) * [label.high for label in counts.labels])
    spread = [counts.values - low, high - counts.values]
    axes.errorbar(middle, counts.values, spread, fmt="o", ms=3, label="released, 95 % each")
    axes.set(xscale="log", xlabel="words a user wrote", ylabel="users")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def seed() -> bytes:
    from skellam.entropy import random_bytes

    return random_bytes(32, entropy=sk.SystemEntropy())


def read(path: Path) -> list[list[str]]:
    if not path.exists():
        sys.exit(f"there is no {path}; pass --data or set SKELLAM_DATA")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return list(json.load(file).values())


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("SKELLAM_DATA", "data"))
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--picture", help="where to draw the histogram")
    return parser.parse_args()


if __name__ == "__main__":
    main()
