"""MkDocs hook: every ``docs/notebooks/*.ipynb`` becomes a page, with the outputs stored in it.

The notebook is converted to Markdown, so that it gets the theme, the search and the link checks of
every other page. (mkdocs-jupyter loads MathJax and Mermaid from other hosts.)
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from mkdocs.structure.files import File


def on_files(files: Any, config: Any) -> Any:  # noqa: ANN401  (MkDocs' own types)
    """Replace each notebook by its page and its images."""
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        files.remove(notebook)
        for path, content in _pages(notebook.abs_src_path, PurePosixPath(notebook.src_uri)):
            files.append(File.generated(config, path, content=content))
    return files


def _pages(source: str, target: PurePosixPath) -> list[tuple[str, str | bytes]]:
    from nbconvert import MarkdownExporter  # half a second that a site without notebooks saves

    images = f"{target.stem}_files"
    text, resources = MarkdownExporter().from_filename(
        source, resources={"output_files_dir": images}
    )
    outputs = {str(target.parent / name): data for name, data in resources["outputs"].items()}
    return [(str(target.with_suffix(".md")), text), *outputs.items()]
