"""Which characters do writers write, and how many? Asked privately of 318 of them.

Run: python examples/characters_per_writer.py --data DIRECTORY [--picture characters.png]

Every writer is a client. Few clients and many buckets make for wide intervals: the table says so.
"""

import argparse
import os
import string
import sys
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import skellam as sk
from skellam import analytics

FILE = "unipen28.npz"
CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase


def main() -> None:
    arguments = parse()
    writers = read(Path(arguments.data) / FILE)
    terms = {"clients": len(writers), "epsilon": arguments.epsilon / 2, "delta": 1e-5}
    entropy = sk.SystemEntropy()
    lengths = [[len(each)] for each in writers]
    mean = analytics.run(analytics.sum(0, 2000, **terms), lengths, entropy=entropy).per(
        len(writers)
    )
    kinds = analytics.run(
        analytics.frequencies(CHARACTERS, max_buckets=62, **terms), writers, entropy=entropy
    )
    console = Console()
    low, high = mean.interval()
    truth = np.minimum(np.concatenate(lengths), 2000).mean()
    console.print(
        f"Characters a writer, at most 2000 each: {mean.value:.0f} ({low:.0f} to {high:.0f}); "
        f"truth {truth:.0f}"
    )
    console.print(character_table(kinds, writers))
    if arguments.picture:
        draw(kinds, writers, arguments.picture)
        console.print(f"All of them are in {arguments.picture}.")


def character_table(kinds, writers) -> Table:
    table = Table(title="Writers who wrote it at least once")
    for column in ("character", "writers", "95 % interval", "all at once", "truth"):
        table.add_column(column, justify="right")
    counts = kinds.non_negative()
    each, every = counts.interval(), counts.interval(simultaneous=True)
    for character in kinds.top(12):
        i = CHARACTERS.index(character)
        table.add_row(
            character,
            f"{counts.values[i]:.0f}",
            f"{each.low[i]:.0f} to {each.high[i]:.0f}",
            f"{every.low[i]:.0f} to {every.high[i]:.0f}",
            str(sum(character in writer for writer in writers)),
        )
    return table


def draw(kinds, writers, path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    low, high = kinds.interval()
    truth = [sum(character in writer for writer in writers) for character in CHARACTERS]
    figure, axes = plt.subplots(figsize=(11, 4), layout="constrained")
    axes.bar(list(CHARACTERS), truth, color="0.75", label="truth")
    spread = [kinds.values - low, high - kinds.values]
    axes.errorbar(
        list(CHARACTERS), kinds.values, spread, fmt="o", ms=3, label="released, 95 % each"
    )
    axes.set(xlabel="character", ylabel="writers")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def read(path: Path) -> list[list[str]]:
    if not path.exists():
        sys.exit(f"there is no {path}; pass --data or set SKELLAM_DATA")
    with np.load(path) as file:
        labels, writer = file["y"], file["writer"]
    names = np.array(list(CHARACTERS))[labels]
    return [names[writer == number].tolist() for number in np.unique(writer)]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("SKELLAM_DATA", "data"))
    parser.add_argument("--epsilon", type=float, default=4.0)
    parser.add_argument("--picture", help="where to draw all characters")
    return parser.parse_args()


if __name__ == "__main__":
    main()
