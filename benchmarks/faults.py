"""Fault injection: a child process kills itself at a given call to the file system."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

CALLS = (
    *("open", "write", "pread", "fsync", "ftruncate", "replace", "rename", "unlink", "mkdir"),
    *("stat", "fstat", "close", "fchmod"),
)
"""Functions of ``os`` that touch files; all files that must last are written by them."""
Fault = Callable[[int, bool], None]
"""Asked with the number of a call before it, and again after it."""


@dataclass(slots=True)
class Tally:
    """Cases of one kind, and what became of them."""

    cases: int = 0
    same: int = 0
    """The state is what was acknowledged."""
    extra: int = 0
    """One spend more than was acknowledged."""
    refused: int = 0
    """An error of ours."""
    other: int = 0
    """Another valid content, of a file without a digest."""
    failed: list[str] = field(default_factory=list)

    def count(self, case: str, outcome: str) -> None:
        """Add one case: ``same``, ``extra``, ``refused``, ``other``, or what went wrong."""
        self.cases += 1
        if outcome in ("same", "extra", "refused", "other"):
            setattr(self, outcome, getattr(self, outcome) + 1)
        else:
            self.failed.append(f"{case}: {outcome}")


class Counting:
    """Which calls count: all, unless somebody sets ``on`` to False for a while."""

    on = True


@contextmanager
def counted(fault: Fault) -> Iterator[None]:
    """Ask ``fault(number, after)`` before and after each call that touches a file."""
    real = {name: getattr(os, name) for name in CALLS}
    number = 0

    def wrap(name: str) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            nonlocal number
            if not Counting.on:
                return real[name](*arguments, **options)
            number += 1
            mine = number
            fault(mine, False)
            result = real[name](*arguments, **options)
            fault(mine, True)
            return result

        return call

    try:
        for name in CALLS:
            setattr(os, name, wrap(name))
        yield
    finally:
        for name in CALLS:
            setattr(os, name, real[name])


def killed(
    work: Callable[[Callable[[], None]], object],
    at: int,
    *,
    after: bool = False,
    torn: bool = False,
) -> tuple[int, bool]:
    """Return how often a child acknowledged that died at call ``at``, and whether it died.

    ``work`` is given the function that acknowledges. With ``torn`` every write takes half of its
    bytes at most.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        write = os.write

        def die(number: int, is_after: bool) -> None:
            if (number, is_after) == (at, after):
                os.kill(os.getpid(), signal.SIGKILL)

        if torn:
            os.write = lambda to, octets: write(to, octets[: max(1, len(octets) // 2)])  # type: ignore[assignment]
        code = 1
        try:
            with counted(die):
                work(lambda: write(writing, b"s"))
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        acknowledged = len(pipe.read())
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise RuntimeError(f"the child failed without a kill at call {at}")
    return acknowledged, os.WIFSIGNALED(status)
