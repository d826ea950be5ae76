"""Mechanisms as JSON values, for the ledger and the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from skellam.accounting.mechanisms import (
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
    noise_of,
)
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
            raise DomainError(f"no sampling is named {sampling!r}")


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
        raise DomainError(f"a mechanism's record lacks {', '.join(missing)}")
    return [record.pop(name) for name in names]
