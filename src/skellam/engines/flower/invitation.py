"""What the server asks a cohort for; server and clients each derive the round from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from struct import pack
from typing import Any

import numpy as np
from flwr.app import ConfigRecord
from numpy.typing import NDArray

from skellam import _checks, secagg
from skellam.codec import Codec, public_seed
from skellam.errors import DomainError, MessageError, SkellamError, TamperError
from skellam.plan import AdaptiveClip, Plan

RECORD = "skellam"
"""The key of our record in messages and in the state."""


class Update(StrEnum):
    """What of a training function's reply is summed."""

    DIFFERENCE = "difference"
    """The arrays of the reply minus the arrays that were received."""
    REPLY = "reply"
    """The arrays of the reply, which have the shapes of those that were received."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """One round: the plan, its number, an identifier that never repeats, how many are invited.

    A ``clip`` that adapts moves the scale of the updates before they are clipped as planned: the
    integers on the wire and what they cost do not depend on it, so no limit of a node's bounds it.
    """

    plan: Plan
    number: int
    round_id: bytes
    invited: int
    update: Update
    clip: AdaptiveClip | None = None
    """Only the number travels; how it moves is the server's business."""

    def __post_init__(self) -> None:
        _checks.integer("number", self.number, 0, (1 << 63) - 1)
        _checks.octets("round_id", self.round_id, 32)
        _checks.integer("invited", self.invited, 2)
        require_clip(self.plan, self.clip)

    def to_record(self) -> ConfigRecord:
        """Return the invitation as it travels."""
        record = ConfigRecord(
            {
                "plan": self.plan.to_json(),
                "number": self.number,
                "round": self.round_id,
                "invited": self.invited,
                "update": str(self.update),
            }
        )
        if self.clip is not None:
            record["clip"] = self.clip.clip
        return record

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Invitation:
        """Return the invitation in ``record``, or raise `MessageError`."""
        try:
            return cls(
                Plan.from_json(record["plan"]),
                record["number"],
                record["round"],
                record["invited"],
                Update(record["update"]),
                AdaptiveClip(clip=record["clip"]) if "clip" in record else None,
            )
        except (KeyError, TypeError, ValueError, SkellamError) as error:
            raise MessageError("the server sent no invitation of this version") from error

    def protocol(self, model: bytes) -> secagg.Round:
        """Return what all parties must agree on, ``model`` being what this one was given.

        Whoever is missing at the roll counts among the tolerated dropouts, so that nobody can claim
        a larger cohort than there is.
        """
        spec = self.plan.spec()
        clip = b"" if self.clip is None else pack(">d", self.clip.clip)
        gone, known = self.plan.tolerance(self.invited)
        return secagg.Round(
            round_id=self.round_id,
            plan=sha256(self.plan.digest + self.number.to_bytes(8, "big") + clip).digest(),
            model=model,
            bits=spec.bits,
            length=spec.length,
            dropouts=gone,
            colluders=known,
            least=max(self.invited - gone, 2 * gone + known + 1, gone + known + 2),
            removable=self.plan.removable,
        )

    def codec(self, model: bytes, members: NDArray[np.uint64]) -> Codec:
        """Return the arithmetic of this round for those who are on the roll, and no others."""
        shares = len(members)
        if not shares <= min(self.invited, self.plan.people):
            raise TamperError("more take part than were invited, or than the plan's population")
        people = sha256(np.sort(members).astype("<u8").tobytes()).digest()
        seed = public_seed(
            participants=people, plan=self.plan.digest, model=model, round=self.number
        )
        return self.plan.codec(
            public_seed=seed, shares=shares, tolerated=self.plan.tolerance(self.invited)
        )


def require_clip(plan: Plan, clip: AdaptiveClip | None) -> None:
    """Raise unless there is a clip that adapts where the plan pays for one, and only there."""
    if (clip is None) != (plan.quantile_noise is None):
        raise DomainError(
            "clip must be given if the plan has quantile_noise, and only then: it adapts by the "
            "count that this noise protects"
        )


def model_digest(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return SHA-256 over the names, types, shapes and numbers of a model's arrays, in order."""
    digest = sha256(b"skellam/1/model")
    for name, array in arrays.items():
        head = f"{name!r} {array.dtype.str} {array.shape}".encode()
        digest.update(len(head).to_bytes(8, "big") + head + array.tobytes())
    return digest.digest()
