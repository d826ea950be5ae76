"""Checkpoints: what a run needs to go on after a kill, in one file that is whole or not there.

The file is a NumPy archive with one line after it: the format's name and the SHA-256 digest of the
archive, so that no byte can change unseen. It names the last line of the ledger that the run spent
from: another ledger, or an older copy, is refused on resuming.

There is no position of a random stream in it (`sampling.Streams`): a round that was cut off is run
again, with the same bits where they replay and with new ones, spent for again, where
they are secret.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from skellam.accounting.ledger import Head
from skellam.engines import durable
from skellam.errors import DataError
from skellam.federated.server import ServerState
from skellam.plan import AdaptiveClip

_FORMAT = b"\nskellam/checkpoint/2 "


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """The state before round ``round``."""

    round: int
    state: ServerState
    run: bytes
    """Names this run in the keys of its spends."""
    fingerprint: str
    """Digest of all that must be the same when the run goes on."""
    head: Head | None
    """The ledger's last line, which it must still have; none where nothing is spent."""
    clip: AdaptiveClip | None = None
    """The clip of round ``round``, if it adapts."""

    def save(self, path: Path) -> None:
        """Replace the checkpoint at ``path``."""
        buffer = io.BytesIO()
        arrays = {f"memory_{i}": array for i, array in enumerate(self.state.moments)}
        if self.clip is not None:
            arrays["clip"] = np.array([self.clip.clip, self.clip.target, self.clip.learning_rate])
        head = self.head or Head()
        np.savez(
            buffer,
            round=self.round,
            step=self.state.step,
            model=self.state.model,
            run=np.frombuffer(self.run, dtype=np.uint8),
            fingerprint=self.fingerprint,
            ledger_line=head.line,
            ledger_digest=head.digest,
            **arrays,  # type: ignore[arg-type]
        )
        octets = buffer.getvalue()
        durable.replace(path, octets + _digest_line(octets), mode=durable.SECRET)

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Return the checkpoint at ``path``, or raise `DataError`."""
        try:
            with np.load(io.BytesIO(_archive(path)), allow_pickle=False) as file:
                count = sum(name.startswith("memory_") for name in file)
                memory = tuple(file[f"memory_{i}"] for i in range(count))
                line, digest = int(file["ledger_line"]), str(file["ledger_digest"])
                return cls(
                    round=int(file["round"]),
                    state=ServerState(file["model"], memory, int(file["step"])),
                    run=file["run"].tobytes(),
                    fingerprint=str(file["fingerprint"]),
                    head=Head(line, digest) if line else None,
                    clip=_clip(file["clip"]) if "clip" in file else None,
                )
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise DataError(
                f"cannot read the checkpoint {path}: {error}; restore it from a copy, or start "
                "the run in another folder"
            ) from error


def _archive(path: Path) -> bytes:
    """Return the archive in the file at ``path``, its digest checked."""
    octets = path.read_bytes()
    archive = octets[: -len(_digest_line(b""))]
    if octets.endswith(_digest_line(archive)):
        return archive
    if _FORMAT not in octets[-2 * len(_digest_line(b"")) :] and zipfile.is_zipfile(path):
        raise DataError(
            f"the checkpoint {path} is of version 0.1, or lost its end: it cannot say which ledger "
            "it belongs to; finish the run with skellam 0.1, or start it in another folder"
        )
    raise DataError(
        f"the checkpoint {path} was changed: its digest does not match; restore it from a copy, "
        "or start the run in another folder"
    )


def _digest_line(archive: bytes) -> bytes:
    return _FORMAT + hashlib.sha256(_FORMAT + archive).hexdigest().encode() + b"\n"


def _clip(numbers: NDArray[np.float64]) -> AdaptiveClip:
    clip, target, learning_rate = numbers.tolist()
    return AdaptiveClip(clip=clip, target=target, learning_rate=learning_rate)
