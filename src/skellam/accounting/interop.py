"""Mechanisms in other forms: JSON values for the ledger and the plan, and what dp_accounting takes.

A release becomes the Gaussian that dominates it. An event cannot carry the slack: to the delta that
dp_accounting gives at epsilon, add ``slack.charge(epsilon)``.

What dp_accounting's events cannot express: cohorts of a fixed size under add/remove (it has them
under replace-one alone, which `to_event` falls back to: zeroing a vector out is one way to replace
it, so that is safe, and loose), Poisson cohorts whose size is public, and Poisson cohorts under
replace-one. Its loss distributions can: `to_distribution` hands over any of `curves`'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from skellam import _checks
from skellam.accounting.accountants import Release
from skellam.accounting.curves import NO_SLACK, Slack
from skellam.accounting.gdp import dominating, outside_by_distance
from skellam.accounting.losslaw import LossLaw, coarsened
from skellam.accounting.mechanisms import (
    Adjacency,
    Banded,
    BandedSkellam,
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    DistributedDiscreteGaussian,
    Gaussian,
    Joint,
    Laplace,
    Mechanism,
    NoiseMechanism,
    RoundedBandedSkellam,
    RoundedSkellam,
    Sampled,
    SampledKnownSize,
    SampledWithoutReplacement,
    Skellam,
    compares_three,
    noise_of,
    replace_one,
)
from skellam.accounting.pld import Pld
from skellam.errors import DomainError, KindError

_NOISES: dict[str, type[NoiseMechanism]] = {
    "gaussian": Gaussian,
    "skellam": Skellam,
    "rounded-skellam": RoundedSkellam,
    "banded-skellam": BandedSkellam,
    "rounded-banded-skellam": RoundedBandedSkellam,
    "discrete-gaussian": DiscreteGaussian,
    "distributed-discrete-gaussian": DistributedDiscreteGaussian,
    "binomial": Binomial,
    "discrete-laplace": DiscreteLaplace,
    "laplace": Laplace,
    "joint": Joint,
}
_NAMES = {kind: name for name, kind in _NOISES.items()}
_SINCE_0_2 = ("rare", "distance")


def to_record(mechanism: Mechanism) -> dict[str, Any]:
    """Return ``mechanism`` as a dictionary of JSON values; `from_record` is the inverse."""
    match mechanism:
        case Sampled(noise, rate, mixture):
            varies = {"mixture": [list(part) for part in mixture]} if mixture else {}
            return {"sampling": "poisson", "rate": rate, **varies, **to_record(noise)}
        case SampledWithoutReplacement(noise, cohort, population):
            size = {"cohort": cohort, "population": population}
            return {"sampling": "without-replacement", **size, **to_record(noise)}
        case SampledKnownSize(noise, rate, population, run_chance):
            draw = {"rate": rate, "population": population, "run_chance": run_chance}
            return {"sampling": "poisson-known-size", **draw, **to_record(noise)}
        case _:
            noise = noise_of(mechanism)
            values = {f.name: getattr(noise, f.name) for f in fields(noise)}
            for name in _SINCE_0_2:
                if not values[name]:  # so that all else reads as it did in version 0.1
                    del values[name]
            if isinstance(noise, Banded):
                values["band"] = list(noise.band)
            if isinstance(noise, Joint):
                values["parts"] = [to_record(part) for part in noise.parts]
            return {"mechanism": _NAMES[type(noise)], **values, "adjacency": str(noise.adjacency)}


def from_record(record: Mapping[str, Any]) -> Mechanism:
    """Return the mechanism that `to_record` wrote; anything else raises `DomainError`.

    What version 0.1 wrote keeps its meaning; its cohorts without replacement were all under
    replace-one, and say so.
    """
    if not isinstance(record, Mapping):
        raise KindError(f"a mechanism's record must be a mapping, got {type(record).__name__}")
    rest = dict(record)
    sampling = rest.pop("sampling", None)
    match sampling:
        case None:
            return _noise_from(rest)
        case "poisson":
            (rate,) = _take(rest, "rate")
            mixture = rest.pop("mixture", ())
            return Sampled(_noise_from(rest), rate, _mixture(mixture))
        case "without-replacement":
            cohort, population = _take(rest, "cohort", "population")
            return SampledWithoutReplacement(_noise_from(rest), cohort, population)
        case "poisson-known-size":
            rate, population = _take(rest, "rate", "population")
            run_chance = rest.pop("run_chance", 1.0)
            return SampledKnownSize(_noise_from(rest), rate, population, run_chance)
        case _:
            raise DomainError(
                f"no sampling is named {sampling!r}; there are poisson, without-replacement and "
                "poisson-known-size"
            )


def _mixture(record: Any) -> tuple[tuple[float, float], ...]:  # noqa: ANN401  (parsed JSON)
    try:
        return tuple((float(weight), float(rate)) for weight, rate in record)
    except (TypeError, ValueError) as error:
        raise DomainError(f"a mixture of rates is damaged: {error}") from error


def _noise_from(record: dict[str, Any]) -> NoiseMechanism:
    (name,) = _take(record, "mechanism")
    if name not in _NOISES:
        raise DomainError(f"no mechanism is named {name!r}; there are {', '.join(_NOISES)}")
    try:
        if "largest" in record and "coordinate_bound" not in record:  # the name of version 0.1
            record["coordinate_bound"] = record.pop("largest")
        if "parts" in record:
            record["parts"] = tuple(_noise_from(dict(part)) for part in record["parts"])
        return _NOISES[name](**record)
    except TypeError as error:
        raise DomainError(f"a record of {name!r} has wrong fields: {error}") from error


def _take(record: dict[str, Any], *names: str) -> list[Any]:
    missing = [name for name in names if name not in record]
    if missing:
        raise DomainError(
            f"a mechanism's record lacks {', '.join(missing)}; use what to_record returns"
        )
    return [record.pop(name) for name in names]


class Event(NamedTuple):
    """A ``dp_accounting.DpEvent`` and the slack that it leaves out."""

    event: Any
    slack: Slack


def to_event(mechanism: Mechanism, *, rounds: int = 1) -> Event:
    """Return ``rounds`` releases as an event of dp_accounting, under the mechanism's adjacency.

    Cohorts of fixed size are stated under replace-one, whatever the mechanism's adjacency. The
    noise multiplier is then sigma over the sensitivity under replace-one, TWICE the clip norm:
    handed to dp_accounting's accountants it gives the right epsilon, which sigma over the clip
    norm, as its text has it, does not.
    """
    import dp_accounting

    n, noise = _checks.integer("rounds", rounds, 1), noise_of(mechanism)
    curve = dominating(replace_one(noise) if compares_three(mechanism) else noise)
    event = dp_accounting.GaussianDpEvent(1 / curve.mu)
    match mechanism:
        case Sampled(rate=rate):
            if noise.adjacency is Adjacency.REPLACE_ONE:
                raise DomainError(
                    "dp_accounting has Poisson samples under add/remove alone; use to_distribution"
                )
            event = dp_accounting.PoissonSampledDpEvent(rate, event)
        case SampledKnownSize():
            raise DomainError(
                "dp_accounting has no event for Poisson cohorts whose size is public; hand over "
                "to_distribution of curves([(mechanism, rounds)], method='pld')"
            )
        case SampledWithoutReplacement(cohort=cohort, population=population):
            event = dp_accounting.SampledWithoutReplacementDpEvent(population, cohort, event)
        case _:
            pass
    slack = curve.slack + outside_by_distance(mechanism)
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
            raise DomainError(
                f"no release is known for the event {event!r}; pass one that `to_event` returns"
            )


def to_distribution(pld: Pld) -> Any:  # noqa: ANN401
    """Return ``pld``, without its slack, as a loss distribution of dp_accounting."""
    from dp_accounting.pld.pld_pmf import DensePLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    if not isinstance(pld, Pld):
        raise KindError(f"pld must be a Pld, got {type(pld).__name__}")
    interval = min(side.interval() for side in (pld.remove, pld.add))
    remove, add = (side.grid(interval) for side in (pld.remove, pld.add))
    return PrivacyLossDistribution(
        *(DensePLDPmf(interval, first, masses, inf, True) for first, masses, inf in (remove, add))
    )


def from_distribution(
    distribution: Any,  # noqa: ANN401
    *,
    slack: Slack = NO_SLACK,
) -> Pld:
    """Return a loss distribution of dp_accounting as a `Pld`; it must be a pessimistic one."""
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    if not isinstance(distribution, PrivacyLossDistribution):
        raise KindError(
            f"distribution must be a PrivacyLossDistribution, got {type(distribution).__name__}"
        )
    remove, add = (_law(side) for side in (distribution._pmf_remove, distribution._pmf_add))  # noqa: SLF001
    return Pld.of(remove, add, slack)


def _law(pmf: Any) -> LossLaw:  # noqa: ANN401
    dense = pmf.to_dense_pmf()
    if not dense._pessimistic_estimate:  # noqa: SLF001
        raise DomainError("distribution must be a pessimistic estimate: others bound nothing")
    masses, infinite = np.asarray(dense._probs, dtype=np.float64), float(dense._infinity_mass)  # noqa: SLF001
    if not abs(float(masses.sum()) + infinite - 1) <= 1e-6:
        raise DomainError("distribution must have a total mass of one")
    steps = np.arange(len(masses), dtype=np.float64) + int(dense._lower_loss)  # noqa: SLF001
    return coarsened(LossLaw(float(dense._discretization) * steps, masses, infinite))  # noqa: SLF001


def _single(event: Any) -> NoiseMechanism:  # noqa: ANN401
    releases = from_event(event)
    if len(releases) != 1 or releases[0][1] != 1 or not isinstance(releases[0][0], NoiseMechanism):
        raise DomainError(f"only a single Gaussian or Laplace event can be sampled, got {event!r}")
    return noise_of(releases[0][0])
