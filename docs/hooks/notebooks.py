"""MkDocs hook: every ``examples/*.ipynb`` becomes a page, with the outputs stored in it.

The notebook is converted to Markdown, so that it gets the theme, the search and the link checks of
every other page. (mkdocs-jupyter loads MathJax and Mermaid from other hosts.)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

FOLDER = "notebooks"
"""Where the pages are in the site."""


def on_files(files: Any, config: Any) -> Any:  # noqa: ANN401  (MkDocs' own types)
    """Add a page and its images for each notebook."""
    for notebook in sorted((Path(config["docs_dir"]).parent / "examples").glob("*.ipynb")):
        for name, content in _pages(notebook):
            files.append(File.generated(config, f"{FOLDER}/{name}", content=content))
    return files


def _pages(notebook: Path) -> list[tuple[str, str | bytes]]:
    from nbconvert import MarkdownExporter  # half a second that a site without notebooks saves

    text, resources = MarkdownExporter().from_filename(
        str(notebook), resources={"output_files_dir": f"{notebook.stem}_files"}
    )
    return [(f"{notebook.stem}.md", text), *resources["outputs"].items()]
