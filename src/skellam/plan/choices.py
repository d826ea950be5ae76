"""The closed sets that a plan chooses from, and plans as JSON: versioned, canonical, strict."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from skellam.errors import DataError, DomainError, KindError

if TYPE_CHECKING:
    from skellam.plan.plan import CalibratedPlan, Plan


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


VERSION: Final = 2
_KIND: Final = "skellam-plan"


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
    """Return the plan that ``text`` holds."""
    from skellam.plan.plan import CalibratedPlan, Plan

    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"the plan is no JSON, perhaps truncated: {error}") from error
    version = record.get(_KIND) if isinstance(record, dict) else None
    if version == 1:
        raise DataError(
            "the plan is of version 1, whose guarantees did not all hold; plan again with this one"
        )
    if version != VERSION or not record.keys() <= {_KIND, "request", "chosen"}:
        raise DataError(f"the JSON is no skellam plan of version {VERSION}")
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
    """Write a plan to a file, or raise `DataError`."""
    try:
        path.write_text(to_json(plan) + "\n", encoding="utf-8")
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
