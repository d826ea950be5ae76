"""Where each part of a run takes its random bits from, without a position that could be lost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256

from skellam.entropy import SEED_BYTES, Entropy, SeededEntropy, random_bytes


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Streams:
    """From what bits are for to where they come from.

    Secret entropy serves everybody. Entropy that replays gives one root, from which every context
    has a stream of its own: a round that is run again draws the same bits, whatever came before.
    """

    source: Entropy | bytes
    """The secret entropy, or the root."""
    prefix: str = "run"

    @classmethod
    def of(cls, entropy: Entropy) -> Streams:
        """Return the streams of a run; the first bits of ``entropy`` are the root if it replays."""
        return cls(random_bytes(SEED_BYTES, entropy=entropy) if entropy.replayable else entropy)

    def __call__(self, context: str) -> Entropy:
        """Return the entropy for ``context``."""
        if isinstance(self.source, bytes):
            return SeededEntropy(self.source, f"{self.prefix}/{context}")
        return self.source

    def within(self, part: str) -> Streams:
        """Return the streams of a part of the run."""
        return replace(self, prefix=f"{self.prefix}/{part}")

    @property
    def replayable(self) -> bool:
        """Whether somebody who knows a seed can draw the same bits again."""
        return isinstance(self.source, bytes)

    @property
    def commitment(self) -> str:
        """What tells one seed from another without giving it away; empty for secret entropy."""
        if isinstance(self.source, bytes):
            return sha256(b"skellam/1/streams" + self.source).hexdigest()
        return ""
