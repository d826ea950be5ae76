"""Round configuration: what the server asks a cohort for, private metrics included.

Server and clients each derive codec, protocol parameters and public seed from it, here and nowhere
else. It travels as one JSON text, and the digest of that text is part of what all parties sign.

*Private metrics* are clients' losses, accuracies and counts as coordinates of the summed vector.
Each metric has a range. A client clips its value to the range, maps it onto [-w, w] and appends it
to its update, which it clips to a norm of ``clip / sqrt(1 + share)``; with
``m w**2 = clip**2 share / (1 + share)`` for m metrics the whole vector has norm ``clip`` at most.
So the plan's guarantee, for ``dimension + m`` coordinates of that clip, covers the metrics: they
cost what the larger clip costs, a factor ``sqrt(1 + share)`` in the noise of the update.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from skellam import _checks, secagg
from skellam.codec import Codec
from skellam.errors import DomainError, MessageError, ShapeError, SkellamError, TamperError
from skellam.plan import AdaptiveClip, CalibratedPlan, Plan
from skellam.secagg.parameters import require_countable

DEFAULT_SHARE = 0.2
_NORMAL_95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class MetricRanges:
    """Names of metrics with their ranges, and the share of the clip that they take."""

    names: tuple[str, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    share: float = DEFAULT_SHARE

    def __post_init__(self) -> None:
        if not self.names or len(set(self.names)) != len(self.names):
            raise DomainError(f"metrics must have names that differ, got {list(self.names)}")
        if not len(self.names) == len(self.lows) == len(self.highs):
            raise ShapeError("every metric must have one range")
        for name, low, high in zip(self.names, self.lows, self.highs, strict=True):
            width = _checks.number(name, high) - _checks.number(name, low)
            _checks.positive(f"the width of the range of {name!r}", width)
        _checks.positive("share", self.share)

    @classmethod
    def of(
        cls, ranges: Mapping[str, tuple[float, float]], *, share: float = DEFAULT_SHARE
    ) -> MetricRanges:
        """Return the ranges of ``{"loss": (0, 10), "accuracy": (0, 1)}``.

        >>> MetricRanges.of({"accuracy": (0, 1)}).names
        ('accuracy',)
        """
        lows = tuple(float(low) for low, _ in ranges.values())
        highs = tuple(float(high) for _, high in ranges.values())
        return cls(tuple(ranges), lows, highs, share)

    def to_fields(self) -> list[Any]:
        """Return what travels."""
        return [list(self.names), list(self.lows), list(self.highs), self.share]

    @classmethod
    def from_fields(cls, fields: Sequence[Any]) -> MetricRanges:
        """Return the ranges that `to_fields` wrote, or raise."""
        names, lows, highs, share = fields
        if not all(isinstance(name, str) for name in names):
            raise DomainError("names of metrics must be text")
        return cls(tuple(names), tuple(lows), tuple(highs), share)

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def planned(self, plan: Plan) -> Plan:
        """Return ``plan``, which has no noise yet, with a coordinate more for each metric."""
        if isinstance(plan, CalibratedPlan):
            raise DomainError("add the metrics before .calibrated(), which accounts for them")
        clip = plan.clip * math.sqrt(1 + self.share)
        return replace(plan, dimension=plan.dimension + len(self), clip=clip)

    def joined(
        self, update: NDArray[np.floating[Any]], values: Mapping[str, object], clip: float
    ) -> NDArray[np.float64]:
        """Return ``update``, clipped, with the metrics after it; an evaluation has no update."""
        x = np.asarray(update, dtype=np.float64)
        norm = float(np.linalg.norm(x))
        bound = clip / math.sqrt(1 + self.share)
        clipped = x * (bound / norm) if norm > bound else x
        return np.concatenate([clipped, self._weight(clip, len(x)) * self._unit(values)])

    def released(
        self, sums: NDArray[np.float64], *, dimension: int, clip: float, clients: int, error: float
    ) -> dict[str, float]:
        """Return the mean of each metric over ``clients``, with the ends of a 95 % interval.

        ``error`` is the deviation of a coordinate of the mean. The interval is of the noise; a
        client that sent zeros counts as the middle of the range.
        """
        weight = self._weight(clip, dimension)
        found: dict[str, float] = {}
        for name, low, high, total in zip(self.names, self.lows, self.highs, sums, strict=True):
            half = (high - low) / 2
            mean = low + half * (1 + float(total) / (weight * clients))
            spread = _NORMAL_95 * half * error / weight
            found |= {name: mean, f"{name}-low": mean - spread, f"{name}-high": mean + spread}
        return found

    def _unit(self, values: Mapping[str, object]) -> NDArray[np.float64]:
        """Return the metrics on [-1, 1]; what is missing or no number is 0."""
        found = np.zeros(len(self))
        for at, (name, low, high) in enumerate(zip(self.names, self.lows, self.highs, strict=True)):
            value = values.get(name)
            if isinstance(value, int | float) and math.isfinite(value):
                found[at] = 2 * (min(max(value, low), high) - low) / (high - low) - 1
        return found

    def _weight(self, clip: float, dimension: int) -> float:
        part = self.share / (1 + self.share) if dimension else 1.0
        return clip * math.sqrt(part / len(self))


Ranges: TypeAlias = Mapping[str, tuple[float, float]] | MetricRanges | None
"""Metrics as users name them."""


def ranges_of(metrics: Ranges) -> MetricRanges | None:
    """Return the ranges that a user named, if any."""
    return MetricRanges.of(metrics) if isinstance(metrics, Mapping) else metrics


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
            raise MessageError(
                "the server sent no round configuration of this version; run the same version of "
                "skellam on server and nodes"
            ) from error
        if not same:
            raise MessageError(
                "the server's round configuration has not its only spelling, which to_json() writes"
            )
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
