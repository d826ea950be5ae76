"""What a run needs to go on after a kill: one file, whole or not there.

There is no position of a random stream in it (`skellam.federated.streams`): a round that was cut
off is run again, with the same bits where they replay and with new ones, paid for again, where
they are secret.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from skellam.engines import durable
from skellam.errors import DataError
from skellam.federated.server import ServerState
from skellam.plan import AdaptiveClip


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """The state before round ``round``."""

    round: int
    state: ServerState
    run: bytes
    """Names this run in the keys of its spends."""
    fingerprint: str
    """Digest of all that must be the same when the run goes on."""
    spends: int
    """Lines that the ledger has at least."""
    clip: AdaptiveClip | None = None
    """The clip of round ``round``, if it adapts."""

    def save(self, path: Path) -> None:
        """Replace the checkpoint at ``path``."""
        buffer = io.BytesIO()
        arrays = {f"memory_{i}": array for i, array in enumerate(self.state.memory)}
        if self.clip is not None:
            arrays["clip"] = np.array([self.clip.clip, self.clip.target, self.clip.rate])
        np.savez(
            buffer,
            round=self.round,
            step=self.state.step,
            model=self.state.model,
            run=np.frombuffer(self.run, dtype=np.uint8),
            fingerprint=self.fingerprint,
            spends=self.spends,
            **arrays,  # type: ignore[arg-type]
        )
        durable.replace(path, buffer.getvalue(), mode=durable.SECRET)

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Return the checkpoint at ``path``, or raise `DataError`."""
        try:
            with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                count = sum(name.startswith("memory_") for name in file)
                memory = tuple(file[f"memory_{i}"] for i in range(count))
                return cls(
                    round=int(file["round"]),
                    state=ServerState(file["model"], memory, int(file["step"])),
                    run=file["run"].tobytes(),
                    fingerprint=str(file["fingerprint"]),
                    spends=int(file["spends"]),
                    clip=_clip(file["clip"]) if "clip" in file else None,
                )
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise DataError(f"cannot read the checkpoint {path}: {error}") from error


def _clip(numbers: NDArray[np.float64]) -> AdaptiveClip:
    clip, target, rate = numbers.tolist()
    return AdaptiveClip(clip=clip, target=target, rate=rate)
