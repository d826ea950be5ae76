"""The closed sets that a plan chooses from, the domains of its fields, and plans as JSON."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from skellam import _checks
from skellam.cohorts import exact_share
from skellam.errors import DataError, DomainError, KindError

if TYPE_CHECKING:
    from skellam.plan.plan import CalibratedPlan, Plan

_Choice = TypeVar("_Choice", bound=StrEnum)
MAX_DIMENSION: Final = 1 << 31
MAX_ROUNDS: Final = 10**12


class Sampling(StrEnum):
    """How a round's clients are drawn."""

    POISSON = "poisson"
    """Each client of the population takes part independently; the size of the cohort varies."""
    SELF = "self"
    """Each invited client draws in secret whether its update or zeros are encoded."""
    FIXED = "fixed"
    """A uniform cohort of fixed size (Result D)."""
    CYCLIC = "cyclic"
    """Clients are dealt into groups once; round t asks group t modulo the number of groups."""
    ALL = "all"
    """Everybody, every round."""

    @property
    def secret(self) -> bool:
        """Whether the guarantee rests on members and sizes of cohorts that nobody else knows."""
        return self in {Sampling.POISSON, Sampling.SELF}

    @property
    def random(self) -> bool:
        """Whether chance decides who takes part in a round, which amplifies the guarantee."""
        return self.secret or self is Sampling.FIXED


class Servers(StrEnum):
    """Who sums the vectors."""

    ONE = "one-server"
    """One server, by secure aggregation among the clients, who add the noise in shares."""
    TWO = "two-servers"
    """A leader and a helper that do not collude; they add the noise, clients add none."""


class NoiseBy(StrEnum):
    """Which of two servers adds noise, each as much as the guarantee needs."""

    BOTH = "both"
    HELPER = "helper"
    """The helper alone, which is then trusted not to look at what is released."""

    @property
    def servers(self) -> int:
        """How many servers add noise."""
        return 2 if self is NoiseBy.BOTH else 1


class Noise(StrEnum):
    """Which noise protects the sum, and who adds it."""

    SKELLAM = "skellam"
    CENTRAL_SKELLAM = "central-skellam"
    DISCRETE_GAUSSIAN = "distributed-discrete-gaussian"
    CENTRAL_DISCRETE_GAUSSIAN = "central-discrete-gaussian"
    GAUSSIAN = "gaussian"
    """Continuous, added by the server, without a modulus: the baseline."""
    NONE = "none"

    @property
    def distributed(self) -> bool:
        """Whether it can be added in shares, so that no server need be trusted with it."""
        return self in {Noise.SKELLAM, Noise.DISCRETE_GAUSSIAN}

    @property
    def continuous(self) -> bool:
        """Whether vectors stay real: no rotation, no rounding, no modulus."""
        return self is Noise.GAUSSIAN

    @property
    def skellam(self) -> bool:
        """Whether the sum's noise is a Skellam variable."""
        return self in {Noise.SKELLAM, Noise.CENTRAL_SKELLAM}


class Rounding(StrEnum):
    """How a client rounds its rotated vector."""

    UNBIASED = "unbiased"
    """Plain stochastic rounding, accounted as part of the mechanism (Results B and B')."""
    CONDITIONAL = "conditional"
    """The paper's: retried until the norm is within its bound, which the accounting charges."""
    INTEGER = "integer"
    """None: vectors of integers within stated bounds, neither rotated nor scaled."""


class Accountant(StrEnum):
    """How a plan's epsilon is computed."""

    BEST = "best"
    """The smallest epsilon of all accountants that have a bound."""
    PAPER = "paper"
    """The paper's RDP bound at integer orders with generic amplification."""


class Signal(StrEnum):
    """How the clients' updates add up: what the modulus must hold besides the noise."""

    ALIGNED = "aligned"
    """All clients agree: the norm of the sum grows with the cohort. The worst case."""
    INDEPENDENT = "independent"
    """Directions are independent: the norm of the sum grows with the root of the cohort."""


# What must hold of a plan's fields, checked once, when it is made.


def member(name: str, value: str, kind: type[_Choice]) -> _Choice:
    """Return the member of ``kind`` that ``value`` names."""
    try:
        return kind(value)
    except ValueError as error:
        raise DomainError(f"{name} must be one of {', '.join(kind)}, got {value!r}") from error


def check(plan: Plan) -> None:
    """Raise unless every field is in its domain; turn strings into members of their sets."""
    put: dict[str, Any] = {
        "dimension": _checks.integer("dimension", plan.dimension, 1, MAX_DIMENSION),
        "cohort": _checks.integer("cohort", plan.cohort, 1),
        "rounds": _checks.integer("rounds", plan.rounds, 1, MAX_ROUNDS),
        "bits": _checks.integer("bits", plan.bits, 2, 32),
        "sampling": member("sampling", plan.sampling, Sampling),
        "noise": member("noise", plan.noise, Noise),
        "aggregation": member("aggregation", plan.aggregation, Servers),
        "accountant": member("accountant", plan.accountant, Accountant),
        "beta": _checks.between("beta", plan.beta, 0, 0.999999),
        "compression_error": _checks.positive("compression_error", plan.compression_error),
        "signal": _signal(plan.signal),
        "server_momentum": _checks.between("server_momentum", plan.server_momentum, 0, 1),
    }
    if plan.rounding is not None:
        put["rounding"] = member("rounding", plan.rounding, Rounding)
    for name in ("coordinate_bound", "signal_multiple", "scale", "target_epsilon"):
        if (value := getattr(plan, name)) is not None:
            put[name] = _checks.positive(name, value)
    for name in ("tail", "target_delta"):
        if (value := getattr(plan, name)) is not None:
            put[name] = _checks.open_unit(name, value)
    for name in ("block", "min_cohort", "participations"):
        if (value := getattr(plan, name)) is not None:
            put[name] = _checks.integer(name, value, 1)
    if isinstance(plan.compression, str):
        if plan.compression != "auto":
            raise DomainError(f'compression must be a number or "auto", got {plan.compression!r}')
    elif plan.compression is not None:
        put["compression"] = _checks.integer("compression", plan.compression, 1)
    _checks.assign(plan, **put)
    _check_population(plan)
    _check_servers(plan)
    _check_shares(plan)


def _signal(value: Signal | float | str) -> Signal | float:
    if isinstance(value, str):
        return member("signal", value, Signal)
    return _checks.between("signal", value, 0, 1)


def _check_population(plan: Plan) -> None:
    if plan.population is None:
        if plan.sampling is not Sampling.ALL:
            raise DomainError(
                f'population must be given with sampling="{plan.sampling}"; '
                'or take sampling="all" if everybody takes part in every round'
            )
    else:
        _checks.assign(plan, population=_checks.integer("population", plan.population, plan.cohort))
        if plan.sampling is Sampling.ALL and plan.population != plan.cohort:
            raise DomainError('with sampling="all" the population is the cohort; leave it out')
    chance = plan.participation_probability
    if (plan.sampling is Sampling.SELF) != (chance is not None):
        raise DomainError(
            'participation_probability goes with sampling="self" and only with it, got '
            f'{chance!r} with sampling="{plan.sampling}"'
        )
    if chance is not None:
        chance = _checks.rate("participation_probability", chance)
        _checks.assign(plan, participation_probability=chance)
        if plan.cohort > chance * plan.population_size:
            raise DomainError(
                "participation_probability must be at least cohort/population = "
                f"{plan.rate:g}: even with everybody invited, fewer than the cohort would take part"
            )
    if not isinstance(plan.public_sizes, bool):
        raise KindError(f"public_sizes must be True or False, got {plan.public_sizes!r}")
    if plan.public_sizes and plan.sampling is not Sampling.POISSON:
        raise DomainError(
            f'public_sizes goes with sampling="poisson", got "{plan.sampling}", whose sizes are no '
            "secret; leave it out"
        )


def _check_servers(plan: Plan) -> None:
    if plan.aggregation is Servers.ONE:
        if plan.noise_by is not None:
            raise DomainError(
                'noise_by goes with aggregation="two-servers" and only with it, got '
                f'"{plan.noise_by}" with aggregation="{plan.aggregation}"'
            )
        return
    _checks.assign(plan, noise_by=member("noise_by", plan.noise_by or NoiseBy.BOTH, NoiseBy))
    if plan.noise not in {Noise.SKELLAM, Noise.NONE}:
        raise DomainError(f'two servers add Skellam noise or none, got noise="{plan.noise}"')
    for name in ("dropout", "colluding"):
        if getattr(plan, name):
            raise DomainError(
                f"{name} must be 0 with two servers, which need none, got {getattr(plan, name)!r}"
            )
    if plan.quantile_noise is not None:
        raise DomainError(
            "quantile_noise must be None with two servers: both add one noise to all coordinates; "
            'adapt the clip with aggregation="one-server"'
        )


def _check_shares(plan: Plan) -> None:
    for name in ("dropout", "colluding", "expected_dropout"):
        if (value := getattr(plan, name)) is not None:
            exact_share(name, value)
            _checks.assign(plan, **{name: float(value)})
    one_server = plan.aggregation is Servers.ONE
    if one_server and plan.expected_dropout is not None and plan.expected_dropout > plan.dropout:
        raise DomainError(
            f"expected_dropout must be at most dropout = {plan.dropout:g}, "
            f"got {plan.expected_dropout:g}; tolerate more dropouts"
        )
    if plan.clients_add_noise and plan.min_cohort is not None:
        needed = plan.tolerance.min_cohort()
        if plan.min_cohort < needed:
            raise DomainError(
                f"min_cohort must be at least {needed}, from which on every cohort bears the "
                f"dropouts and colluders, got {plan.min_cohort}"
            )


# Plans as JSON.

VERSION: Final = 2
_KIND: Final = "skellam-plan"
_DIGEST: Final = "sha256"


def to_json(plan: Plan) -> str:
    """Return canonical JSON: sorted keys, shortest floats that read back the same."""
    from skellam.plan.plan import CHOSEN, CalibratedPlan, Plan

    record: dict[str, Any] = {_KIND: VERSION}
    if isinstance(plan, CalibratedPlan):
        own = {f.name for f in fields(CalibratedPlan)} - {f.name for f in fields(Plan)}
        record["request"] = _values(plan.request, {f.name for f in fields(Plan)})
        record["chosen"] = _values(plan, (own | CHOSEN) - {"request"})
    else:
        record["request"] = _values(plan, {f.name for f in fields(Plan)})
    return json.dumps(record, sort_keys=True, indent=1, allow_nan=False)


def from_json(text: str) -> Plan | CalibratedPlan:
    """Return the plan that ``text`` holds; if it has a digest, that must fit."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"the plan is no JSON, perhaps truncated: {error}") from error
    version = record.get(_KIND) if isinstance(record, dict) else None
    if version == 1:
        raise DataError(
            "the plan is of version 1, whose guarantees did not all hold; plan again with this one"
        )
    written = record.pop(_DIGEST, None) if isinstance(record, dict) else None
    if version != VERSION or not record.keys() <= {_KIND, "request", "chosen"}:
        raise DataError(f"the JSON is no skellam plan of version {VERSION}")
    plan = _plan_of(record)
    if written is not None and written != digest(plan).hex():
        raise DataError(
            f'the plan is not the one whose digest it has: copy it again, or take "{_DIGEST}" out '
            "if you changed the plan yourself"
        )
    return plan


def _plan_of(record: dict[str, Any]) -> Plan | CalibratedPlan:
    from skellam.plan.plan import CalibratedPlan, Plan

    request: Plan = _built(Plan, record.get("request"))
    if "chosen" not in record:
        return request
    asked = {f.name: getattr(request, f.name) for f in fields(Plan)}
    chosen = record["chosen"]
    if not isinstance(chosen, dict) or "request" in chosen:
        raise DataError("what the planner chose is damaged; plan again")
    made: CalibratedPlan = _built(CalibratedPlan, {**asked, **chosen, "request": request})
    return made


def read(path: Path) -> str:
    """Return a file's text, or raise `DataError`."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the plan {path}: {error}") from error


def write(path: Path, plan: Plan) -> None:
    """Write a plan with its digest to a file, or raise `DataError`."""
    record = {**json.loads(to_json(plan)), _DIGEST: digest(plan).hex()}
    try:
        path.write_text(json.dumps(record, sort_keys=True, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot write the plan {path}: {error}") from error


def digest(plan: Plan) -> bytes:
    """Return SHA-256 of the canonical JSON."""
    return hashlib.sha256(to_json(plan).encode()).digest()


def _values(plan: Plan, names: set[str]) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in names}


def _built(kind: type[Any], record: object) -> Any:  # noqa: ANN401  (one of two kinds)
    names = {f.name for f in fields(kind)}
    if not isinstance(record, dict) or not record.keys() <= names:
        raise DataError(f"the plan has fields that no {kind.__name__} has")
    try:
        return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in record.items()})
    except KindError as error:
        raise DataError(f"the plan holds a value of a wrong type: {error}") from error
    except TypeError as error:
        raise DomainError(f"the plan is incomplete: {error}") from error


def roundings(plan: Plan) -> tuple[Rounding, ...]:
    """Return the roundings that the plan leaves open."""
    if plan.rounding is not None:
        return (plan.rounding,)
    if plan.accountant is Accountant.PAPER or not (plan.noise.skellam or plan.noise is Noise.NONE):
        return (Rounding.CONDITIONAL,)
    return (Rounding.UNBIASED, Rounding.CONDITIONAL)
