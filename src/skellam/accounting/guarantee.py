"""An answer that can be quoted: epsilon and delta with everything that they depend on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from decimal import ROUND_CEILING, Context
from enum import StrEnum
from typing import Any

from skellam import _checks
from skellam.accounting.mechanisms import Adjacency

ZERO_OUT = (
    "neighbours differ in one user's vector (zeroed out or replaced), not in its noise share",
    "the noise has the stated total variance whatever the cohort's size",
    "sums are divided by a fixed number, never by the actual size of a cohort",
)
"""What every guarantee of this package assumes."""


class Unit(StrEnum):
    """Whose data is protected as a whole."""

    USER = "user"
    RECORD = "record"


class Audience(StrEnum):
    """From whom the data is protected: what they see decides what sampling is worth."""

    PUBLIC = "public"
    """Sees the releases, not who took part."""
    SERVER = "server"
    """Sees the releases and who took part in each round."""


@dataclass(frozen=True, slots=True)
class Guarantee:
    """(epsilon, delta)-differential privacy for one ``unit`` against one ``audience``."""

    epsilon: float
    delta: float
    unit: Unit
    adjacency: Adjacency
    audience: Audience
    accountant: str
    assumptions: tuple[str, ...] = ZERO_OUT

    def __post_init__(self) -> None:
        _checks.between("epsilon", self.epsilon, 0, float("inf"))
        _checks.open_unit("delta", self.delta)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in asdict(self).items()
        }

    def __str__(self) -> str:
        epsilon, delta = rounded_up(self.epsilon), rounded_up(self.delta)
        head = (
            f"({epsilon}, {delta})-DP for one {self.unit} ({self.adjacency}) "
            f"against the {self.audience}, by {self.accountant}; assuming that"
        )
        return "\n".join((head, *(f"- {line}" for line in self.assumptions)))


def rounded_up(x: float) -> str:
    """Return four digits of ``x``, rounded up: what is printed is still a bound."""
    four = Context(prec=4, rounding=ROUND_CEILING).create_decimal(repr(float(x)))
    return f"{float(four):.4g}"
