"""Who is told what: epsilon against the public and against the server that runs the rounds.

The public sees releases. The server also sees who took part, so sampling hides nothing from it, and
a user pays for every round of its own. Only a coin that the user flips in secret, sending zeros and
its noise on tails (self-sampling), amplifies against the server too.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from skellam import _checks
from skellam.accounting.guarantee import ZERO_OUT, Audience, Guarantee, Unit
from skellam.accounting.mechanisms import (
    Mechanism,
    Sampled,
    SampledWithoutReplacement,
    noise_of,
    rate_of,
)
from skellam.accounting.routes import Method, epsilon
from skellam.errors import DomainError


class Audiences(NamedTuple):
    """The guarantees that belong together: state all of them, or the weakest."""

    public: Guarantee
    server_mean: Guarantee
    """For a user with the mean number of rounds, rounded up."""
    server_worst: Guarantee
    """For a user in every round."""


def audiences(
    mechanism: Mechanism,
    *,
    rounds: int,
    delta: float,
    coin: float | None = None,
    unit: Unit = Unit.USER,
    method: Method = "best",
) -> Audiences:
    """Return what ``rounds`` releases guarantee against each audience.

    ``coin`` is the probability with which an invited user takes part under self-sampling; the
    mechanism's rate is then that of invitation times ``coin``.
    """
    n, heads = _checks.integer("rounds", rounds, 1), 1.0 if coin is None else coin
    if not rate_of(mechanism) <= _checks.rate("coin", heads):
        raise DomainError(f"coin must be at least the mechanism's rate, got {coin!r}")
    # The tiny subtraction keeps an integral mean from being rounded up by float64.
    mean = max(1, math.ceil(n * rate_of(mechanism) / heads * (1 - 1e-12)))

    def server(participations: int) -> Guarantee:
        return against_server(
            mechanism,
            participations=participations,
            delta=delta,
            coin=coin,
            unit=unit,
            method=method,
        )

    public = against_public(mechanism, rounds=n, delta=delta, unit=unit, method=method)
    return Audiences(public, server(mean), server(n))


def against_public(
    mechanism: Mechanism,
    *,
    rounds: int,
    delta: float,
    unit: Unit = Unit.USER,
    method: Method = "best",
) -> Guarantee:
    """Return the guarantee against whoever sees the releases and not who took part."""
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
    coin: float | None = None,
    unit: Unit = Unit.USER,
    method: Method = "best",
) -> Guarantee:
    """Return the guarantee against whoever sees who took part, for a user's own number of rounds.

    With ``coin`` (self-sampling) ``participations`` counts the rounds that a user was invited to.
    """
    n, noise = _checks.integer("participations", participations, 1), noise_of(mechanism)
    seen = noise if coin is None else Sampled(noise, coin)
    return Guarantee(
        epsilon(seen, rounds=n, delta=delta, method=method),
        delta,
        unit,
        noise.adjacency,
        Audience.SERVER,
        _accountant(method),
        (*ZERO_OUT, _own_rounds(n, coin)),
    )


def _hidden(mechanism: Mechanism) -> tuple[str, ...]:
    match mechanism:
        case Sampled(rate=rate):
            return (
                f"every user joins every round by an independent coin of {rate:.6g}",
                "this audience learns neither who took part nor how many",
            )
        case SampledWithoutReplacement():
            return ("cohorts are uniform, and this audience does not learn who took part",)
        case _:
            return ()


def _own_rounds(participations: int, coin: float | None) -> str:
    if coin is None:
        return f"the user takes part in at most {participations} rounds"
    return (
        f"the user is invited to at most {participations} rounds and joins each by its own secret "
        f"coin of {coin:.6g}"
    )


def _accountant(method: Method) -> str:
    return f"skellam ({method})"
