"""Draw the paper's figures from what is recorded: ``python -m experiments [name ...]``.

``--compute`` computes the accounting figures anew and records their tables. What is measured or
trained is recorded by `experiments.mean_estimation` and `experiments.record`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from experiments.figure import RECORDED, draw, make, write
from rich.console import Console

from experiments import (
    composition,
    learning,
    mean_estimation,
    one_epsilon,
    real_queries,
    scalar_queries,
)

FIGURES = {
    figure.name: figure
    for figure in (
        composition.FIGURE,
        scalar_queries.FIGURE,
        real_queries.FIGURE,
        *mean_estimation.FIGURES,
        one_epsilon.FIGURE,
        *learning.FIGURES,
    )
}


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help=f"{', '.join(FIGURES)}; all if none is named.")
    ] = None,
    *,
    compute: Annotated[
        bool, typer.Option("--compute", help="Compute and record accounting figures anew.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Where tables and pictures go.")] = Path("out/figures"),
) -> None:
    """Write every figure with its table."""
    console = Console()
    unknown = sorted(set(names or ()) - set(FIGURES))
    if unknown:
        raise typer.BadParameter(f"no figure {unknown[0]!r}; there are {', '.join(FIGURES)}")
    for name in names or FIGURES:
        figure = FIGURES[name]
        if not figure.slow:
            table, picture = make(figure, figure.spec, out)
        else:
            table = RECORDED / f"{name}.csv"
            if compute:
                RECORDED.mkdir(parents=True, exist_ok=True)
                with console.status(f"computing {name}"):
                    write(table, figure.spec, figure.points(figure.spec))
            picture = draw(figure, table, out)
        console.print(f"{picture} from {table}", soft_wrap=True)


if __name__ == "__main__":
    typer.run(main)
