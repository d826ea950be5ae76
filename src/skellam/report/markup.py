"""HTML and SVG that is escaped by construction, parts of pages, and numbers as text.

Strings are text, only `markupsafe.Markup` is markup. Whatever is a bound on privacy is rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import ROUND_CEILING, Context
from importlib.resources import files
from typing import Final, TypeAlias

from markupsafe import Markup, escape

Child: TypeAlias = "str | None"
"""Markup stays as it is, other strings are escaped, nothing is left out."""
_VOID = frozenset({"meta", "link"})


def tag(name: str, /, *children: Child, **attributes: str | float | None) -> Markup:
    """Return an element; ``class_`` is ``class``, and ``stroke_width`` is ``stroke-width``."""
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{pairs}>")  # noqa: S704  (names are ours, values are escaped)
    return Markup(f"<{name}{pairs}>{join(children)}</{name}>")  # noqa: S704  (likewise)


def join(children: Iterable[Child]) -> Markup:
    """Return ``children`` one after the other."""
    return Markup("").join(child for child in children if child is not None)


def _text(value: str | float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


_ALONE: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""The browser itself refuses every request that the page might make."""


def document(title: str, *content: Markup) -> str:
    """Return a whole document that asks for nothing from anywhere."""
    body = tag("body", tag("main", *content))
    return f"<!doctype html>\n{tag('html', _head(title), body, lang='en')}\n"


def _head(title: str) -> Markup:
    # A stylesheet is raw text to HTML: it is ours, has no "<", and must not be escaped.
    style = files("skellam.report").joinpath("style.css").read_text(encoding="utf-8")
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_ALONE),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", Markup(style)),  # noqa: S704  (the package's own file)
    )


def card(name: str, value: str, more: str) -> Markup:
    """Return a number with its name above it."""
    return tag(
        "div",
        tag("p", name, class_="name"),
        tag("p", value, class_="value"),
        tag("p", more, class_="mute"),
    )


def section(title: str, *content: Markup) -> Markup:
    """Return content under a heading."""
    return tag("section", tag("h2", title), *content)


def warning(text: str) -> Markup:
    """Return a sentence that nobody overlooks."""
    return tag("p", tag("strong", text), class_="warning", role="note")


def table(rows: Iterable[tuple[str, str, str]]) -> Markup:
    """Return rows of a name, a value, and why it is so."""
    lines = (
        tag("tr", tag("th", name, scope="row"), tag("td", value), tag("td", why, class_="mute"))
        for name, value, why in rows
    )
    return tag("div", tag("table", tag("tbody", join(lines))), class_="scroll", tabindex=0)


def bullets(lines: Iterable[str]) -> Markup:
    """Return a list of sentences."""
    return tag("ul", *(tag("li", line) for line in lines))


_UNITS = ("B", "kB", "MB", "GB", "TB")
NOTHING = "–"


def bound(x: float | None, digits: int = 3) -> str:
    """Return an upper bound with so many digits, rounded up."""
    if x is None:
        return NOTHING
    if math.isinf(x):
        return "∞"
    # The shortest decimal that reads back as x: 0.0005 is not rounded up to 0.000501.
    return f"{Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(float(x))):f}"


def percent(x: float | None) -> str:
    """Return a share as a percentage."""
    return NOTHING if x is None else f"{100 * x:.1f} %"


def percent_tick(x: float | None) -> str:
    """Return a round share as a percentage."""
    return NOTHING if x is None else f"{100 * x:g} %"


def number(x: float | None) -> str:
    """Return four digits."""
    return NOTHING if x is None else f"{x:.4g}"


def chance(x: float | None) -> str:
    """Return a probability with two digits."""
    return NOTHING if x is None else f"{x:.1e}" if 0 < x < 1e-3 else f"{x:.2g}"


def size(count: float) -> str:
    """Return a number of bytes with three digits.

    >>> size(16_384), size(999), size(2.5e9)
    ('16.4 kB', '999 B', '2.5 GB')
    """
    power = min(int(math.log10(max(count, 1)) // 3), len(_UNITS) - 1)
    return f"{count / 1000**power:.3g} {_UNITS[power]}"
