"""Round configuration: what the server asks a cohort for.

Server and clients each derive codec, protocol parameters and public seed from it, here and nowhere
else. It travels as one JSON text, and the digest of that text is part of what all parties sign.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from typing import Any

from skellam import _checks, secagg
from skellam.codec import Codec
from skellam.engines.flower.metrics import MetricRanges
from skellam.errors import DomainError, MessageError, SkellamError, TamperError
from skellam.plan import AdaptiveClip, CalibratedPlan
from skellam.secagg.parameters import require_countable

_VERSION = 2


class UpdateKind(StrEnum):
    """What of a client's reply is summed."""

    DIFFERENCE = "difference"
    """The arrays of the reply minus the arrays that were received."""
    REPLY = "reply"
    """The arrays of the reply, which have the shapes of those that were received."""
    METRICS = "metrics"
    """The metrics alone: an evaluation."""


@dataclass(frozen=True, slots=True)
class RoundConfig:
    """One round: the plan, its number, an identifier that never repeats, how many are invited.

    A ``clip`` that adapts moves the scale of the updates before they are clipped as planned: the
    integers on the wire and what they cost do not depend on it, so no limit of a node's bounds it.
    """

    plan: CalibratedPlan
    number: int
    round_id: bytes
    invited: int
    update: UpdateKind
    run_config: bytes
    """Digest of the run's configuration, which each node compares with its own."""
    clip: AdaptiveClip | None = None
    """Only the number travels; how it moves is the server's business."""
    metrics: MetricRanges | None = None

    def __post_init__(self) -> None:
        _checks.integer("number", self.number, 0, (1 << 63) - 1)
        _checks.octets("round_id", self.round_id, 32)
        _checks.octets("run_config", self.run_config, 32)
        _checks.integer("invited", self.invited, 2)
        require_countable(self.invited)
        require_clip(self.plan, self.clip)
        if self.metrics is not None and self.clip is not None:
            raise DomainError("metrics cannot be summed where the clip adapts; leave one out")
        if self.metrics is None and self.update is UpdateKind.METRICS:
            raise DomainError("an evaluation sums metrics; name them with metrics=")

    def to_json(self) -> str:
        """Return the configuration as it travels."""
        return json.dumps(
            {
                "version": _VERSION,
                "plan": self.plan.to_json(),
                "number": self.number,
                "round": self.round_id.hex(),
                "invited": self.invited,
                "update": str(self.update),
                "run_config": self.run_config.hex(),
                "clip": None if self.clip is None else self.clip.clip,
                "metrics": None if self.metrics is None else self.metrics.to_fields(),
            },
            allow_nan=False,
            sort_keys=True,
        )

    @classmethod
    def from_json(cls, text: object) -> RoundConfig:
        """Return the configuration that `to_json` wrote, or raise `MessageError`."""
        unknown = (SkellamError, KeyError, TypeError, ValueError, AttributeError, RecursionError)
        try:
            found = _from_fields(cls, json.loads(text))  # type: ignore[arg-type]
            same = found.to_json() == text
        except unknown as error:
            raise MessageError("the server sent no round configuration of this version") from error
        if not same:
            raise MessageError("the server's round configuration has not its only spelling")
        return found

    @property
    def digest(self) -> bytes:
        """SHA-256 of all of it."""
        return sha256(b"skellam/round-config/" + self.to_json().encode()).digest()

    def colluders(self, participants: int) -> int:
        """Return how many of ``participants`` may work for the server."""
        return self.plan.tolerance.colluders(participants)

    def survivors(self, participants: int) -> int:
        """Return the fewest of ``participants`` whose sum may be opened."""
        return self.plan.tolerance.survivors(participants)

    def protocol(self, content: bytes) -> secagg.RoundParameters:
        """Return what all parties must agree on, ``content`` being what this one was given."""
        return _protocol(self, content)

    def round_input(self, content: bytes) -> bytes:
        """Return the digest of all that a client of two servers is told to compute on."""
        return sha256(b"skellam/round-input/" + self.digest + content).digest()

    def codec(self, content: bytes, participants: int) -> Codec:
        """Return the arithmetic of this round for as many as are on the participant list."""
        if participants > self.plan.population_size:
            raise TamperError("more take part than the plan's population has")
        seed = self.plan.round_seed(model=content, round_=self.number)
        return self.plan.codec(public_seed=seed, cohort=participants)


@lru_cache(maxsize=32)
def _protocol(config: RoundConfig, content: bytes) -> secagg.RoundParameters:
    """Return the parameters of the protocol: those who advertise are the cohort, if enough."""
    spec = config.plan.spec()
    return secagg.RoundParameters(
        round_id=config.round_id,
        plan=config.digest,
        model=content,
        bits=spec.bits,
        length=spec.message_len,
        tolerance=config.plan.tolerance,
        min_participants=max(2, config.plan.min_cohort),
        removable=spec.removable,
    )


def require_clip(plan: CalibratedPlan, clip: AdaptiveClip | None) -> None:
    """Raise unless there is a clip that adapts where the plan pays for one, and only there."""
    if (clip is None) != (plan.quantile_noise is None):
        raise DomainError(
            "clip must be given if the plan has quantile_noise, and only then: it adapts by the "
            "count that this noise protects"
        )


def run_config_digest(run_config: Mapping[str, Any]) -> bytes:
    """Return SHA-256 over the names, types and values of a run's configuration."""
    fields = sorted((name, type(value).__name__, value) for name, value in run_config.items())
    return sha256(b"skellam/run-config/" + json.dumps(fields).encode()).digest()


def _from_fields(kind: type[RoundConfig], fields: dict[str, Any]) -> RoundConfig:
    if fields.pop("version") != _VERSION:
        raise ValueError("another version")
    clip, metrics = fields.pop("clip"), fields.pop("metrics")
    found = kind(
        CalibratedPlan.from_json(fields.pop("plan")),
        fields.pop("number"),
        bytes.fromhex(fields.pop("round")),
        fields.pop("invited"),
        UpdateKind(fields.pop("update")),
        bytes.fromhex(fields.pop("run_config")),
        None if clip is None else AdaptiveClip(clip=clip),
        None if metrics is None else MetricRanges.from_fields(metrics),
    )
    if fields:
        raise ValueError("unknown fields")
    return found
