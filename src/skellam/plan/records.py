"""Plans as JSON: versioned, canonical, strict."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from skellam.errors import DataError, DomainError
from skellam.plan.solution import Solution

if TYPE_CHECKING:
    from skellam.plan.plan import Plan

VERSION = 1
_PlanT = TypeVar("_PlanT", bound="Plan")


def to_json(plan: Plan) -> str:
    """Return canonical JSON: sorted keys, shortest floats that read back the same."""
    return json.dumps(
        {"skellam-plan": VERSION, **asdict(plan)}, sort_keys=True, indent=1, allow_nan=False
    )


def from_json(kind: type[_PlanT], text: str) -> _PlanT:
    """Return the plan that ``text`` holds."""
    try:
        record = json.loads(text)
    except ValueError as error:
        raise DataError(f"the plan is no JSON, perhaps truncated: {error}") from error
    if not isinstance(record, dict) or record.pop("skellam-plan", None) != VERSION:
        raise DataError(f"the JSON is no skellam plan of version {VERSION}")
    solution = record.get("solution")
    if solution is not None:
        record["solution"] = _build(Solution, solution)
    return _build(kind, record)


def read(path: Path) -> str:
    """Return a file's text, or raise `DataError`."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the plan {path}: {error}") from error


def digest(plan: Plan) -> bytes:
    """Return SHA-256 of the canonical JSON."""
    return hashlib.sha256(to_json(plan).encode()).digest()


_T = TypeVar("_T")


def _build(kind: type[_T], record: Any) -> _T:  # noqa: ANN401  (parsed JSON)
    names = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    if not isinstance(record, dict) or not record.keys() <= names:
        raise DataError(f"the plan has fields that no {kind.__name__} has")
    try:
        return kind(**record)
    except TypeError as error:
        raise DomainError(f"the plan is incomplete: {error}") from error
