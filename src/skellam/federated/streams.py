"""Where each part of a run takes its random bits from, without a position that could be lost."""

from __future__ import annotations

from hashlib import sha256
from typing import final

from skellam.entropy import SEED_BYTES, Entropy, SeededEntropy, random_bytes


@final
class Streams:
    """From what bits are for to where they come from.

    Secret entropy serves everybody. Entropy that replays gives one root, from which every context
    has a stream of its own: a round that is run again draws the same bits, whatever came before.
    """

    __slots__ = ("_prefix", "_root", "_secret")

    def __init__(self, entropy: Entropy) -> None:
        self._secret = None if entropy.replayable else entropy
        self._root = b"" if self._secret else random_bytes(SEED_BYTES, entropy=entropy)
        self._prefix = "run"

    def __call__(self, context: str) -> Entropy:
        """Return the entropy for ``context``."""
        return self._secret or SeededEntropy(self._root, f"{self._prefix}/{context}")

    def within(self, part: str) -> Streams:
        """Return the streams of a part of the run."""
        inner = object.__new__(Streams)
        inner._secret, inner._root = self._secret, self._root
        inner._prefix = f"{self._prefix}/{part}"
        return inner

    @property
    def replayable(self) -> bool:
        """Whether somebody who knows a seed can draw the same bits again."""
        return self._secret is None

    @property
    def commitment(self) -> str:
        """What tells one seed from another without giving it away; empty for secret entropy."""
        return sha256(b"skellam/1/streams" + self._root).hexdigest() if self.replayable else ""
