"""Guarantees: epsilon and delta with everything that they depend on, for each audience.

The public sees releases. The server also sees who took part, so sampling hides nothing from it, and
every round of a user's own counts in full. Only a coin that the user flips in secret, sending zeros
and its noise on tails (self-sampling), amplifies against the server too.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from decimal import ROUND_CEILING, Context
from enum import StrEnum
from typing import Any

from skellam import _checks
from skellam.accounting.accountants import Method, epsilon
from skellam.accounting.mechanisms import (
    Adjacency,
    Banded,
    Mechanism,
    RoundedBandedSkellam,
    Sampled,
    SampledKnownSize,
    SampledWithoutReplacement,
    noise_of,
    separation_of,
)
from skellam.errors import DomainError, KindError

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
    LEADER = "leader"
    """The first of two servers that do not collude: trains, and sees who took part."""
    HELPER = "helper"
    """The second of two servers: sees who took part, and what is released."""


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


def against_public(
    mechanism: Mechanism,
    *,
    rounds: int,
    delta: float,
    unit: Unit = Unit.USER,
    method: Method = "best",
) -> Guarantee:
    """Return the guarantee against whoever sees the releases and not who took part."""
    _require_uncorrelated(mechanism)
    return Guarantee(
        epsilon(mechanism, rounds=rounds, delta=delta, method=method),
        delta,
        unit,
        noise_of(mechanism).adjacency,
        Audience.PUBLIC,
        _accountant(method),
        (*ZERO_OUT, *_hidden(mechanism)),
    )


def against_server(
    mechanism: Mechanism,
    *,
    participations: int,
    delta: float,
    participation_probability: float | None = None,
    unit: Unit = Unit.USER,
    method: Method = "best",
) -> Guarantee:
    """Return the guarantee against whoever sees who took part, for a user's own number of rounds.

    With ``participation_probability`` (self-sampling) ``participations`` counts the rounds that a
    user was invited to.
    """
    _require_uncorrelated(mechanism)
    n, noise = _checks.integer("participations", participations, 1), noise_of(mechanism)
    seen = noise if participation_probability is None else Sampled(noise, participation_probability)
    return Guarantee(
        epsilon(seen, rounds=n, delta=delta, method=method),
        delta,
        unit,
        noise.adjacency,
        Audience.SERVER,
        _accountant(method),
        (*ZERO_OUT, _own_rounds(n, participation_probability)),
    )


def against_either_server(
    mechanism: Banded,
    *,
    delta: float,
    audience: Audience = Audience.SERVER,
    unit: Unit = Unit.USER,
    method: Method = "best",
) -> Guarantee:
    """Return the guarantee of a run of correlated rounds against either of its two servers.

    It holds against everybody else too: nobody has to be kept from knowing who took part.
    """
    if not isinstance(mechanism, Banded):
        raise KindError(
            f"mechanism must be BandedSkellam or RoundedBandedSkellam, got {mechanism!r}; "
            "against_server takes all others"
        )
    return Guarantee(
        epsilon(mechanism, delta=delta, method=method),
        delta,
        unit,
        mechanism.adjacency,
        audience,
        _accountant(method),
        (*ZERO_OUT, *_correlated(mechanism)),
    )


def _correlated(mechanism: Banded) -> tuple[str, ...]:
    apart = f", any two at least {separation_of(mechanism)} apart"
    many = mechanism.participations > 1
    lines = (
        _own_rounds(mechanism.participations, None) + (apart if many else ""),
        "the two servers do not collude, and the other one draws its noise as agreed",
        "vectors and participants depend on earlier rounds through what was opened alone",
        "nothing else that depends on private data is shown, or ends the run",
    )
    if isinstance(mechanism, RoundedBandedSkellam):
        return (*lines, "the coins of rounding are secret and decide nothing else")
    return lines


def _require_uncorrelated(mechanism: Mechanism) -> None:
    if isinstance(noise_of(mechanism), Banded):
        raise DomainError(
            "correlated rounds have one guarantee, for all rounds and participations together; "
            "call against_either_server"
        )


def _hidden(mechanism: Mechanism) -> tuple[str, ...]:
    match mechanism:
        case Sampled(rate=rate):
            return (
                f"every user joins every round by an independent coin of {rate:.6g}",
                "this audience learns neither who took part nor how many",
            )
        case SampledKnownSize(rate=rate, population=population):
            return (
                f"each of {population} users joins a round by an independent coin of {rate:.6g}",
                "this audience may learn how many took part, but not who",
            )
        case SampledWithoutReplacement():
            return ("cohorts are uniform, and this audience does not learn who took part",)
        case _:
            return ()


def _own_rounds(participations: int, participation_probability: float | None) -> str:
    if participation_probability is None:
        return f"the user takes part in at most {participations} rounds"
    return (
        f"the user is invited to at most {participations} rounds and joins each by its own secret "
        f"coin of {participation_probability:.6g}"
    )


def _accountant(method: Method) -> str:
    return f"skellam ({method})"
