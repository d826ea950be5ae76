"""To and from dp_accounting: events and loss distributions, so that others can check and compose.

A release becomes the Gaussian that dominates it. An event cannot carry the slack: to the delta that
dp_accounting gives at epsilon, add ``slack.charge(epsilon)``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from skellam import _checks
from skellam.accounting.domination import dominating, sampler_by_distance
from skellam.accounting.lossgrid import LossGrid
from skellam.accounting.mechanisms import (
    Adjacency,
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
from skellam.accounting.slack import NO_SLACK, Slack
from skellam.errors import DomainError, KindError


class Event(NamedTuple):
    """A ``dp_accounting.DpEvent`` and the slack that it leaves out."""

    event: Any
    slack: Slack


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
        case Sampled(noise, rate):
            if noise.adjacency is Adjacency.REPLACE_ONE:
                raise DomainError("dp_accounting has Poisson samples under add/remove alone")
            event = dp_accounting.PoissonSampledDpEvent(rate, event)
        case SampledWithoutReplacement(cohort=cohort, population=population):
            event = dp_accounting.SampledWithoutReplacementDpEvent(population, cohort, event)
        case _:
            pass
    slack = curve.slack + sampler_by_distance(noise_of(mechanism))
    return Event(dp_accounting.SelfComposedDpEvent(event, n), slack * n)


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


def to_distribution(pld: Pld) -> Any:  # noqa: ANN401
    """Return ``pld``, without its slack, as a loss distribution of dp_accounting."""
    from dp_accounting.pld.pld_pmf import DensePLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    remove, add = (
        DensePLDPmf(side.interval, side.lowest, side.masses, side.infinite, True)
        for side in (pld.remove, pld.add)
    )
    return PrivacyLossDistribution(remove, add)


def from_distribution(
    distribution: Any,  # noqa: ANN401
    *,
    compositions: int = 1,
    slack: Slack = NO_SLACK,
) -> Pld:
    """Return a loss distribution of dp_accounting as a `Pld`; it must be a pessimistic one.

    ``compositions`` says how many releases are in it already, for the round-off that they bring.
    """
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    if not isinstance(distribution, PrivacyLossDistribution):
        raise KindError(
            f"distribution must be a PrivacyLossDistribution, got {type(distribution).__name__}"
        )
    remove, add = (_grid(side) for side in (distribution._pmf_remove, distribution._pmf_add))  # noqa: SLF001
    return Pld(remove, add, compositions, slack)


def _grid(pmf: Any) -> LossGrid:  # noqa: ANN401
    dense = pmf.to_dense_pmf()
    if not dense._pessimistic_estimate:  # noqa: SLF001
        raise DomainError("distribution must be a pessimistic estimate: others bound nothing")
    masses, infinite = np.asarray(dense._probs, dtype=np.float64), float(dense._infinity_mass)  # noqa: SLF001
    if not abs(float(masses.sum()) + infinite - 1) <= 1e-6:
        raise DomainError("distribution must have a total mass of one")
    return LossGrid(float(dense._discretization), int(dense._lower_loss), masses, infinite)  # noqa: SLF001


def _single(event: Any) -> Noise:  # noqa: ANN401
    releases = from_event(event)
    if len(releases) != 1 or releases[0][1] != 1 or not isinstance(releases[0][0], Noise):
        raise DomainError(f"only a single Gaussian or Laplace event can be sampled, got {event!r}")
    return noise_of(releases[0][0])
