"""Draw all figures: ``python -m experiments [name ...] [--full] [--out out/figures]``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from experiments.figure import make
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
        mean_estimation.FIGURE,
        one_epsilon.FIGURE,
        *learning.FIGURES,
    )
}


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help=f"{', '.join(FIGURES)}; all if none is named.")
    ] = None,
    *,
    full: Annotated[bool, typer.Option("--full", help="The paper's whole grids.")] = False,
    out: Annotated[Path, typer.Option(help="Where tables and pictures go.")] = Path("out/figures"),
) -> None:
    """Write every figure with its table."""
    console = Console()
    unknown = sorted(set(names or ()) - set(FIGURES))
    if unknown:
        raise typer.BadParameter(f"no figure {unknown[0]!r}; there are {', '.join(FIGURES)}")
    for name in names or FIGURES:
        figure = FIGURES[name]
        with console.status(f"computing {name}"):
            table, picture = make(figure, figure.full if full else figure.quick, out)
        console.print(f"{picture} from {table}", soft_wrap=True)


if __name__ == "__main__":
    typer.run(main)
