"""HTML and SVG that is escaped by construction, and numbers as a reader wants them.

Strings are text, only `Markup` is markup. Whatever is a bound on privacy is rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import ROUND_CEILING, Context
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
