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
import struct
import sys
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import ExitStack, suppress
from mmap import mmap
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from socket import SO_SNDTIMEO, SOL_SOCKET, socket
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
PATIENCE = 60.0
"""Seconds in which a process that has work must compute or answer: a stopped one does neither."""
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
    the next one may overwrite. What no process could be started for is encoded in this one.
    `WorkerError` means that a process has ended before its time, or that it was stopped.
    """
    busy: deque[_Worker] = deque()
    try:
        for vector, seed in jobs:
            while len(busy) == processes or ((worker := _rested()) is None and busy):
                yield from _finish(busy, codec)
            if worker is None:
                yield _encoded(codec, None if vector is None else codec.vector(vector), seed)
            else:
                busy.append(worker)
                worker.begin(codec, vector, seed)
        while busy:
            yield from _finish(busy, codec)
    finally:
        for worker in busy:
            worker.end()


def serve(line: int, memory: int) -> None:
    """Encode for the process at the other end of ``line`` until it closes that, or is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    shared = np.empty(0, dtype=np.uint8)
    with Connection(line) as requests, suppress(EOFError, ConnectionError):
        requests.send(None)
        while True:
            codec, kernels, size, kind, seed = requests.recv()
            os.environ[VARIABLE] = kernels
            if size > len(shared):
                shared = _shared(memory, size)
            message = _encoded(codec, _vector(codec, shared, kind), seed)
            shared[: message.values.nbytes] = message.values.view(np.uint8)
            requests.send(None)


def _encoded(codec: Codec, vector: NDArray[Any] | None, seed: bytes | None) -> Residues:
    entropy = SystemEntropy()
    if vector is None:
        return codec.encode_zeros(entropy=entropy, noise_seed=seed)
    return codec.encode_or_zeros(vector, entropy=entropy, noise_seed=seed)


def _vector(codec: Codec, shared: NDArray[Any], kind: str | None) -> NDArray[Any] | None:
    return None if kind is None else shared.view(kind)[: codec.spec.dimension]


class _Worker:
    """A process that encodes one vector at a time."""

    def __init__(self) -> None:
        self._shared = np.empty(0, dtype=np.uint8)
        self._ready = False
        self._job: tuple[str | None, bytes | None] = (None, None)
        with ExitStack() as failing:
            self._memory = os.memfd_create("skellam")
            failing.callback(os.close, self._memory)
            self._line, theirs = map(failing.enter_context, Pipe())
            _limit_sending(self._line)
            handed = (theirs.fileno(), self._memory)
            self._process = Popen(  # noqa: S603  (ourselves)
                [sys.executable, "-c", _COMMAND, *map(str, handed), *sys.path],
                pass_fds=handed,
                stdin=DEVNULL,
                stdout=DEVNULL,
                env=os.environ | _ALONE,
                process_group=0,  # what a terminal sends is for the caller alone
            )
            theirs.close()
            failing.pop_all()

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
        self._job = (kind, seed)
        try:
            self._line.send((codec, kernels, len(self._shared), kind, seed))
        except OSError as error:
            if self._ready:
                raise self._failed(error) from error

    def message(self, codec: Codec) -> Residues:
        """Return what became of the vector."""
        if not self._ready and not self._started():
            kind, seed = self._job
            self._process.kill()
            return _encoded(codec, _vector(codec, self._shared, kind), seed)
        try:
            self._wait()
        except (EOFError, OSError) as error:
            raise self._failed(error) from error
        values = self._shared.view(residue_dtype(codec.spec.bits))[: codec.spec.message_len]
        return codec.message(values, replayable=False)

    def _started(self) -> bool:
        """Return whether the process has begun to serve; if not, it has not touched the vector."""
        with suppress(EOFError, OSError):
            self._wait()
            self._ready = True
        return self._ready

    def _wait(self) -> None:
        """Wait for the next answer while the process computes."""
        before = None
        while not self._line.poll(PATIENCE):
            if (now := self._computed()) == before:
                raise TimeoutError
            before = now
        self._line.recv()

    def _computed(self) -> list[bytes]:
        """Return how long the process has computed, in ticks of the kernel."""
        stat = Path(f"/proc/{self._process.pid}/stat").read_bytes()
        return stat.rpartition(b")")[2].split()[11:13]

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

    def _failed(self, error: Exception) -> WorkerError:
        happened = (
            f"has not computed for {PATIENCE:g} seconds, as if it were stopped"
            if isinstance(error, (TimeoutError, BlockingIOError))
            else f"ended with status {self._process.wait()} (-9: memory may be short)"
        )
        return WorkerError(
            f"a process that encodes clients' updates {happened}; "
            "nothing was released, so the round can be run again"
        )


_idle: list[_Worker] = []


def _rested() -> _Worker | None:
    """Return a process that waits for work, or a new one, or none where none can be started."""
    with suppress(IndexError):
        while not (worker := _idle.pop()).alive:
            worker.end()
        return worker
    with suppress(OSError):
        return _Worker()
    return None


def _limit_sending(line: Connection) -> None:
    """Let a send fail that takes nothing for `PATIENCE`: a stopped process reads nothing."""
    limit = struct.pack("ll", int(PATIENCE), int(PATIENCE % 1 * 1e6))
    with socket(fileno=os.dup(line.fileno())) as connected:
        connected.setsockopt(SOL_SOCKET, SO_SNDTIMEO, limit)


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
