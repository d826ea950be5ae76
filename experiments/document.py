"""Put what is recorded into the documentation: ``python -m experiments.document``.

Draws every figure into ``docs/images``, and writes the tables between the marks of
``docs/figures.md``, ``docs/paper.md`` and ``docs/explain/one_epsilon.md``; the tests compare them
with the records.
"""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from experiments.__main__ import FIGURES
from experiments.__main__ import main as draw_all
from experiments.runs import SETTINGS, recorded

from experiments import epsilons, one_epsilon_training, paired

DOCS = Path(__file__).parents[1] / "docs"
PAGE, PAPER, ONE_EPSILON = (
    DOCS / name for name in ("figures.md", "paper.md", "explain/one_epsilon.md")
)
NONE = "Nothing is recorded yet."


def tables() -> dict[Path, dict[str, str]]:
    """Return the tables of every page by the names of their marks."""
    one = one_epsilon_training
    runs = {name: paired.markdown(name) if recorded(name) else NONE for name in SETTINGS}
    return {
        PAGE: {**runs, "epsilons": epsilons.markdown(epsilons.highest(epsilons.rows()))},
        PAPER: {"compared": paired.compared()},
        ONE_EPSILON: {
            name: one.markdown(name) if one.recorded(name) else NONE for name in one.SETTINGS
        },
    }


def written(page: str, name: str, table: str) -> str:
    """Return ``page`` with ``table`` between the marks of ``name``."""
    begin, end = f"<!-- records: {name} -->", "<!-- end -->"
    parts = rf"({re.escape(begin)}\n).*?({re.escape(end)})"
    found, count = re.subn(parts, lambda m: f"{m[1]}\n{table}\n\n{m[2]}", page, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"the page must have {begin} ... {end} once, has it {count} times")
    return found


def main(*, pictures: Annotated[bool, typer.Option(help="Draw the figures too.")] = True) -> None:
    """Write the tables into the pages, and the figures beside them."""
    for path, found in tables().items():
        page = path.read_text(encoding="utf-8")
        for name, table in found.items():
            page = written(page, name, table)
        path.write_text(page, encoding="utf-8")
    if not pictures:
        return
    with TemporaryDirectory() as folder:
        draw_all([*FIGURES], compute=False, out=Path(folder))
        for picture in Path(folder).glob("*.png"):
            (DOCS / "images" / picture.name).write_bytes(picture.read_bytes())


if __name__ == "__main__":
    typer.run(main)
