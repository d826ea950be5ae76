"""To and from dp_accounting: events and loss distributions, so that others can check and compose.

A release becomes the Gaussian that dominates it. An event cannot carry the slack: to the delta that
dp_accounting gives at epsilon, add slack * (1 + e^epsilon).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from skellam import _checks
from skellam.accounting.domination import dominating
from skellam.accounting.mechanisms import (
    Gaussian,
    Laplace,
    Mechanism,
    Noise,
    Sampled,
    SampledWithoutReplacement,
    noise_of,
)
from skellam.accounting.pld import Pld
from skellam.accounting.routes import Release
from skellam.errors import DomainError, KindError


class Event(NamedTuple):
    """A ``dp_accounting.DpEvent`` and the slack that it leaves out."""

    event: Any
    slack: float


def to_event(mechanism: Mechanism, *, rounds: int = 1) -> Event:
    """Return ``rounds`` releases as an event of dp_accounting, under the mechanism's adjacency.

    For cohorts of fixed size the noise multiplier is sigma over the sensitivity under replace-one,
    TWICE the clip norm: handed to dp_accounting's accountants it gives the right epsilon, which
    sigma over the clip norm, as its text has it, does not.
    """
    import dp_accounting

    n, curve = _checks.integer("rounds", rounds, 1), dominating(noise_of(mechanism))
    event = dp_accounting.GaussianDpEvent(1 / curve.mu)
    match mechanism:
        case Sampled(rate=rate):
            event = dp_accounting.PoissonSampledDpEvent(rate, event)
        case SampledWithoutReplacement(cohort=cohort, population=population):
            event = dp_accounting.SampledWithoutReplacementDpEvent(population, cohort, event)
        case _:
            pass
    return Event(dp_accounting.SelfComposedDpEvent(event, n), curve.slack * n)


def from_event(event: Any) -> list[Release]:  # noqa: ANN401
    """Return an event of dp_accounting as releases; a kind that is not known raises.

    Sampling without replacement is refused: whether its noise multiplier counts the sensitivity
    once or twice cannot be read off the event.
    """
    import dp_accounting as dp

    match event:
        case dp.NoOpDpEvent():
            return []
        case dp.GaussianDpEvent(noise_multiplier=z):
            return [(Gaussian(z, 1.0), 1)]
        case dp.LaplaceDpEvent(noise_multiplier=scale):
            return [(Laplace(scale, 1.0), 1)]
        case dp.PoissonSampledDpEvent(sampling_probability=rate, event=inner):
            return [(Sampled(_single(inner), rate), 1)]
        case dp.SelfComposedDpEvent(event=inner, count=count):
            n = _checks.integer("count", count, 1)
            return [(mechanism, rounds * n) for mechanism, rounds in from_event(inner)]
        case dp.ComposedDpEvent(events=events):
            return [release for part in events for release in from_event(part)]
        case _:
            raise DomainError(f"no release is known for the event {event!r}")


def from_distribution(distribution: Any, *, slack: float = 0.0) -> Pld:  # noqa: ANN401
    """Return a loss distribution of dp_accounting as a `Pld`; it must be a pessimistic one.

    The way back is the attribute `Pld.distribution`.
    """
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    if not isinstance(distribution, PrivacyLossDistribution):
        raise KindError(
            f"distribution must be a PrivacyLossDistribution, got {type(distribution).__name__}"
        )
    parts = distribution._pmf_remove, distribution._pmf_add  # noqa: SLF001
    if not all(part._pessimistic_estimate for part in parts):  # noqa: SLF001
        raise DomainError("distribution must be a pessimistic estimate: others bound nothing")
    if not 0 <= distribution.get_delta_for_epsilon(0.0) <= 1 + 1e-9:
        raise DomainError("distribution must give a delta between 0 and 1")
    return Pld(distribution, slack=slack)


def _single(event: Any) -> Noise:  # noqa: ANN401
    releases = from_event(event)
    if len(releases) != 1 or releases[0][1] != 1 or not isinstance(releases[0][0], Noise):
        raise DomainError(f"only a single Gaussian or Laplace event can be sampled, got {event!r}")
    return noise_of(releases[0][0])
