"""Sweeps over one parameter: ``bits=8..20``, ``cohort=100..1000..300``, ``epsilon=1,2,4``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from skellam.errors import DomainError

MAX_VALUES = 1000


@dataclass(frozen=True, slots=True)
class Sweep:
    """A parameter and the values that it takes in turn."""

    name: str
    values: tuple[Any, ...]


def parse(text: str, names: Collection[str]) -> Sweep:
    """Return the sweep that ``text`` asks for; its parameter must be one of ``names``."""
    name, equals, values = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals or name not in names:
        raise DomainError(
            f"a sweep is written name=first..last, name=first..last..step or name=a,b,c "
            f"with a name of {', '.join(sorted(names))}; got {text!r}"
        )
    ends = values.split("..")
    found = _range(ends) if len(ends) > 1 else [_number(v.strip()) for v in values.split(",")]
    return Sweep(name, tuple(found))


def _range(ends: Iterable[str]) -> list[int]:
    try:
        first, last, step = (*map(int, ends), 1)[:3]
        values = range(first, last + 1, step)
    except ValueError as error:
        raise DomainError("a range takes whole numbers; list others with commas") from error
    if not 1 <= len(values) <= MAX_VALUES:
        raise DomainError(f"a range must have 1 to {MAX_VALUES} values, got {len(values)}")
    return [*values]


def _number(text: str) -> int | float | str:
    kinds: tuple[Callable[[str], int | float], ...] = (int, float)
    for kind in kinds:
        try:
            return kind(text)
        except ValueError:
            continue
    return text
