"""The server's clip as a file, so that a server that is started again goes on with it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

from skellam.engines import durable
from skellam.errors import DataError
from skellam.plan import AdaptiveClip, Plan

_KIND, _VERSION = "skellam-clip", 1


def keep(path: Path, clip: AdaptiveClip, plan: Plan) -> None:
    """Make ``clip`` the content of ``path``, durably."""
    record = {_KIND: _VERSION, "plan": plan.digest.hex(), **asdict(clip)}
    durable.replace(path, json.dumps(record).encode(), mode=durable.PUBLIC)


def restore(path: Path, first: AdaptiveClip, plan: Plan) -> AdaptiveClip:
    """Return the clip at ``path``, or ``first`` if there is none; it must be of the same plan."""
    if not path.exists():
        return first
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        same = record.pop(_KIND) == _VERSION and record.pop("plan") == plan.digest.hex()
        kept = AdaptiveClip(**record)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{path} cannot be read as a clip: {error}") from error
    if not same or replace(kept, clip=first.clip) != first:
        raise DataError(f"{path} is of another plan, target or rate; name another file")
    return kept
