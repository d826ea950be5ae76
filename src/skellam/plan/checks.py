"""What must hold of a plan, checked once, when it is made."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from skellam import _checks
from skellam.errors import DomainError, KindError
from skellam.plan import clipping, whole
from skellam.plan.choices import Accountant, Noise, Rounding, Sampling
from skellam.plan.solution import Solution

if TYPE_CHECKING:
    from skellam.plan.plan import Plan

_Choice = TypeVar("_Choice", bound=StrEnum)


def check(plan: Plan) -> None:
    """Raise unless every field is in its domain; turn strings into members of their sets."""
    _put(plan, "dimension", _checks.integer("dimension", plan.dimension, 1, 1 << 31))
    _put(plan, "clip", _checks.positive("clip", plan.clip))
    _put(plan, "cohort", _checks.integer("cohort", plan.cohort, 1))
    _put(plan, "rounds", _checks.integer("rounds", plan.rounds, 1))
    _put(plan, "bits", _checks.integer("bits", plan.bits, 2, 32))
    _put(plan, "sampling", choice("sampling", plan.sampling, Sampling))
    _put(plan, "noise", choice("noise", plan.noise, Noise))
    _put(plan, "accountant", choice("accountant", plan.accountant, Accountant))
    if plan.rounding is not None:
        _put(plan, "rounding", choice("rounding", plan.rounding, Rounding))
    _check_population(plan)
    _check_noise(plan)
    _check_fixed(plan)
    whole.check(plan)
    clipping.check(plan)
    if plan.solution is not None and not isinstance(plan.solution, Solution):
        raise KindError(f"solution must be a Solution, got {type(plan.solution).__name__}")


def choice(name: str, value: str, kind: type[_Choice]) -> _Choice:
    """Return the member of ``kind`` that ``value`` names."""
    try:
        return kind(value)
    except ValueError as error:
        raise DomainError(f"{name} must be one of {', '.join(kind)}, got {value!r}") from error


def _check_population(plan: Plan) -> None:
    if plan.population is None:
        if plan.sampling is not Sampling.ALL:
            raise DomainError(
                f'population must be given with sampling="{plan.sampling}"; '
                'or take sampling="all" if everybody takes part in every round'
            )
    else:
        _put(plan, "population", _checks.integer("population", plan.population, plan.cohort))
        if plan.sampling is Sampling.ALL and plan.population != plan.cohort:
            raise DomainError('with sampling="all" the population is the cohort; leave it out')
    if (plan.sampling is Sampling.SELF) != (plan.coin is not None):
        raise DomainError('coin goes with sampling="self" and only with it')
    if plan.coin is not None:
        _put(plan, "coin", _checks.rate("coin", plan.coin))
        if plan.cohort > plan.coin * plan.people:
            raise DomainError(
                f"coin must be at least cohort/population = {plan.cohort / plan.people:g}: "
                "even with everybody invited, fewer than the cohort would take part"
            )


def _check_noise(plan: Plan) -> None:
    for name in ("dropout", "colluding"):
        value = _checks.number(name, getattr(plan, name))
        if not 0 <= value < 1:
            raise DomainError(f"{name} must lie in [0, 1), got {value!r}")
        _put(plan, name, value)
    if not isinstance(plan.removable, bool):
        raise KindError(f"removable must be True or False, got {plan.removable!r}")
    if plan.removable and plan.noise is not Noise.SKELLAM:
        raise DomainError('removable noise is Skellam noise; take noise="skellam"')
    for name in ("tail", "delta"):
        if (value := getattr(plan, name)) is not None:
            _put(plan, name, _checks.open_unit(name, value))


def _check_fixed(plan: Plan) -> None:
    for name in ("largest", "signal_multiple", "scale", "epsilon"):
        if (value := getattr(plan, name)) is not None:
            _put(plan, name, _checks.positive(name, value))
    if plan.block is not None:
        _put(plan, "block", _checks.integer("block", plan.block, 1))
    _put(plan, "beta", _checks.between("beta", plan.beta, 0, 0.999999))
    _put(plan, "mean_norm_ratio", _checks.between("mean_norm_ratio", plan.mean_norm_ratio, 0, 1))
    _put(plan, "compression_loss", _checks.positive("compression_loss", plan.compression_loss))
    if isinstance(plan.compression, str):
        if plan.compression != "auto":
            raise DomainError(f'compression must be a number or "auto", got {plan.compression!r}')
    elif plan.compression is not None:
        _put(plan, "compression", _checks.integer("compression", plan.compression, 1))


def _put(plan: Plan, name: str, value: object) -> None:
    object.__setattr__(plan, name, value)
