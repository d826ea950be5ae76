"""HTML and SVG that is escaped by construction: strings are text, only `Markup` is markup."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TypeAlias, final

_VOID = frozenset({"meta", "link"})


@final
class Markup(str):
    """Text that is markup already: made by `tag` and `join`, or the package's own."""

    __slots__ = ()


Child: TypeAlias = "str | None"
"""Markup stays as it is, other strings are escaped, nothing is left out."""


def tag(name: str, /, *children: Child, **attributes: str | float | None) -> Markup:
    """Return an element; ``class_`` is ``class``, and ``stroke_width`` is ``stroke-width``."""
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{pairs}>")
    return Markup(f"<{name}{pairs}>{join(children)}</{name}>")


def join(children: Iterable[Child]) -> Markup:
    """Return ``children`` one after the other."""
    return Markup("".join(_escaped(child) for child in children if child is not None))


def _escaped(child: str) -> str:
    return child if isinstance(child, Markup) else escape(child)


def _text(value: str | float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
