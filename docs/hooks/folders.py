"""A hook of MkDocs: a folder in the navigation (``guide/``) stands for its pages not named yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:  # noqa: ANN401  (MkDocs' own type)
    """Replace folders in the navigation by their pages."""
    docs = Path(config["docs_dir"])
    named = set(_leaves(config["nav"]))
    config["nav"] = _unfolded(config["nav"], docs, named)
    return config


def _leaves(nav: Any) -> Iterator[str]:  # noqa: ANN401  (YAML)
    match nav:
        case str():
            yield nav
        case list():
            for item in nav:
                yield from _leaves(item)
        case dict():
            yield from _leaves([*nav.values()])


def _unfolded(nav: list[Any], docs: Path, named: set[str]) -> list[Any]:
    found: list[Any] = []
    for item in nav:
        if isinstance(item, dict):
            found.append({title: _unfolded(part, docs, named) for title, part in item.items()})
        elif item.endswith("/"):
            pages = sorted(str(path.relative_to(docs)) for path in (docs / item).glob("*.md"))
            found += [page for page in pages if page not in named]
        else:
            found.append(item)
    return found
