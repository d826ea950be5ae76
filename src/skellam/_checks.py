"""Domain checks, stated positively (what must hold), so that NaN fails every one of them."""

from __future__ import annotations

import math
import operator
from typing import SupportsFloat, SupportsIndex

from skellam.errors import DomainError, KindError, ShapeError


def number(name: str, value: SupportsFloat) -> float:
    """Return ``value`` as a float, or raise `KindError`."""
    if isinstance(value, (str, bytes)):
        raise KindError(f"{name} must be a number, got {value!r}")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise KindError(f"{name} must be a number, got {value!r}") from error


def between(name: str, value: SupportsFloat, low: float, high: float, *, hint: str = "") -> float:
    """Return ``value`` if ``low <= value <= high``."""
    x = number(name, value)
    if not low <= x <= high:
        raise DomainError(_sentence(f"{name} must lie in [{low:g}, {high:g}], got {x!r}", hint))
    return x


def positive(name: str, value: SupportsFloat, *, hint: str = "") -> float:
    """Return ``value`` if ``0 < value < inf``."""
    x = number(name, value)
    if not 0 < x < math.inf:
        raise DomainError(_sentence(f"{name} must be positive and finite, got {x!r}", hint))
    return x


def non_negative(name: str, value: SupportsFloat, *, hint: str = "") -> float:
    """Return ``value`` if ``0 <= value < inf``."""
    x = number(name, value)
    if not 0 <= x < math.inf:
        raise DomainError(_sentence(f"{name} must be finite and not negative, got {x!r}", hint))
    return x


def open_unit(name: str, value: SupportsFloat, *, hint: str = "") -> float:
    """Return ``value`` if ``0 < value < 1``."""
    x = number(name, value)
    if not 0 < x < 1:
        raise DomainError(_sentence(f"{name} must lie strictly between 0 and 1, got {x!r}", hint))
    return x


def rate(name: str, value: SupportsFloat) -> float:
    """Return ``value`` if ``0 < value <= 1``."""
    x = number(name, value)
    if not 0 < x <= 1:
        raise DomainError(f"{name} must lie in (0, 1], got {x!r}")
    return x


def integer(
    name: str, value: SupportsIndex, low: int, high: int | None = None, *, hint: str = ""
) -> int:
    """Return ``value`` as an int if it is integral (not bool) and ``low <= value <= high``."""
    if isinstance(value, bool):
        raise KindError(f"{name} must be an integer, got {value!r}")
    try:
        k = operator.index(value)
    except TypeError as error:
        raise KindError(f"{name} must be an integer, got {value!r}") from error
    if not (low <= k and (high is None or k <= high)):
        domain = f"at least {low}" if high is None else f"in [{low}, {high}]"
        raise DomainError(_sentence(f"{name} must be an integer {domain}, got {k}", hint))
    return k


def boolean(name: str, value: bool) -> bool:
    """Return ``value`` if it is True or False, or raise `KindError`."""
    if not isinstance(value, bool):
        raise KindError(f"{name} must be True or False, got {value!r}")
    return value


def octets(name: str, value: bytes, length: int) -> bytes:
    """Return ``value`` if it is a bytes object of exactly ``length`` bytes."""
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise KindError(f"{name} must be bytes, got {type(value).__name__}")
    if len(value) != length:
        raise ShapeError(f"{name} must have {length} bytes, got {len(value)}")
    return bytes(value)


def assign(instance: object, **values: object) -> None:
    """Set checked ``values`` as attributes of a frozen dataclass, from its ``__post_init__``."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


def _sentence(text: str, hint: str) -> str:
    return f"{text}; {hint}" if hint else text
