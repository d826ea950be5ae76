"""Processes that encode clients' vectors while the caller's own trains the next client.

Threads would wait for each other: NumPy's calls on what fits a cache take microseconds, and each
ends in a wait for the interpreter's lock. A vector and its message are handed over in memory that
the two processes share and that has no name, so that nothing outlives them. The processes wait for
more until this one ends.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import suppress
from mmap import mmap
from multiprocessing.connection import Connection, Pipe
from subprocess import DEVNULL, Popen
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from skellam._kernels import VARIABLE
from skellam.codec import Codec, Tensors
from skellam.entropy import SystemEntropy
from skellam.errors import WorkerError
from skellam.vectors import Residues, residue_dtype

MAX_PROCESSES = 4
"""Processes that one round asks for, at most: each has buffers of its own."""
_COMMAND = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from skellam.engines.workers import serve; serve(*map(int, sys.argv[1:3]))"
)
_ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

Job: TypeAlias = tuple[Tensors | None, bytes | None]
"""A client's update, ``None`` for zeros, and the seed of its noise, if that can be removed."""


def available() -> int:
    """Return how many processes are worth starting here: none on one core."""
    frozen = getattr(sys, "frozen", False)  # then sys.executable is no interpreter
    if frozen or not (sys.executable and hasattr(os, "memfd_create")):
        return 0
    cores = len(os.sched_getaffinity(0))
    return min(cores, MAX_PROCESSES) if cores > 1 else 0


def encode(codec: Codec, jobs: Iterable[Job], *, processes: int) -> Generator[Residues]:
    """Yield the messages of ``jobs`` in their order, with noise of the operating system's entropy.

    Each job is taken, and its vector copied, in the caller's thread. A message lies in memory that
    the next one may overwrite. `WorkerError` means that a process has ended before its time.
    """
    busy: deque[_Worker] = deque()
    try:
        for vector, seed in jobs:
            if len(busy) == processes:
                yield from _finish(busy, codec)
            busy.append(_rested())
            busy[-1].begin(codec, vector, seed)
        while busy:
            yield from _finish(busy, codec)
    finally:
        for worker in busy:
            worker.end()


def serve(line: int, memory: int) -> None:
    """Encode for the process at the other end of ``line`` until it closes that."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which that process is sent as well
    entropy, shared = SystemEntropy(), np.empty(0, dtype=np.uint8)
    with Connection(line) as requests, suppress(EOFError):
        while True:
            codec, kernels, size, kind, seed = requests.recv()
            os.environ[VARIABLE] = kernels
            if size > len(shared):
                shared = _shared(memory, size)
            if kind is None:
                message = codec.encode_zeros(entropy=entropy, noise_seed=seed)
            else:
                vector = shared.view(kind)[: codec.spec.dimension]
                message = codec.encode_or_zeros(vector, entropy=entropy, noise_seed=seed)
            shared[: message.values.nbytes] = message.values.view(np.uint8)
            requests.send(None)


class _Worker:
    """A process that encodes one vector at a time."""

    def __init__(self) -> None:
        self._memory = os.memfd_create("skellam")
        self._shared = np.empty(0, dtype=np.uint8)
        self._line, theirs = Pipe()
        with theirs:
            handed = (theirs.fileno(), self._memory)
            self._process = Popen(  # noqa: S603  (ourselves)
                [sys.executable, "-c", _COMMAND, *map(str, handed), *sys.path],
                pass_fds=handed,
                stdin=DEVNULL,
                stdout=DEVNULL,
                env=os.environ | _ALONE,
            )

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def begin(self, codec: Codec, x: Tensors | None, seed: bytes | None) -> None:
        """Hand ``x`` over to be encoded."""
        vector = np.empty(0, dtype=np.uint8) if x is None else codec.vector(x)
        size = max(vector.nbytes, codec.spec.message_len * residue_dtype(codec.spec.bits).itemsize)
        if size > len(self._shared):
            size += -size % 8
            os.ftruncate(self._memory, size)
            self._shared = _shared(self._memory, size)
        self._shared[: vector.nbytes].view(vector.dtype)[:] = vector
        kind = None if x is None else vector.dtype.str
        kernels = os.environ.get(VARIABLE, "")
        try:
            self._line.send((codec, kernels, len(self._shared), kind, seed))
        except OSError as error:
            raise self._failed() from error

    def message(self, codec: Codec) -> Residues:
        """Return what became of the vector."""
        try:
            self._line.recv()
        except (EOFError, OSError) as error:
            raise self._failed() from error
        kind = residue_dtype(codec.spec.bits)
        values = self._shared.view(kind)[: codec.spec.message_len]
        return codec.message(values, replayable=False)

    def end(self) -> None:
        """End the process, whatever it is doing."""
        self._line.close()
        self._process.kill()
        self._process.wait()
        os.close(self._memory)

    def forget(self) -> None:
        """Leave the process to the one that this one was forked from."""
        self._line.close()
        self._process.returncode = 0
        os.close(self._memory)

    def _failed(self) -> WorkerError:
        return WorkerError(
            f"a process that encodes clients' updates ended with status {self._process.wait()} "
            "(-9: memory may be short); nothing was released, so the round can be run again"
        )


_idle: list[_Worker] = []


def _rested() -> _Worker:
    """Return a process that waits for work, or a new one."""
    with suppress(IndexError):
        while not (worker := _idle.pop()).alive:
            worker.end()
        return worker
    return _Worker()


def _finish(busy: deque[_Worker], codec: Codec) -> Generator[Residues]:
    """Yield the message of the longest under way, and let its process rest when it was read."""
    yield busy[0].message(codec)
    _idle.append(busy.popleft())


def _shared(memory: int, size: int) -> NDArray[Any]:
    return np.frombuffer(mmap(memory, size), dtype=np.uint8)


@atexit.register
def end() -> None:
    """End all processes that wait for work."""
    while _idle:
        _idle.pop().end()


def _forget() -> None:
    while _idle:
        _idle.pop().forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
