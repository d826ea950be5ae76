"""Fault injection: kills, errors of the system and damaged bytes, in real files.

``python -m benchmarks reliability`` prints the table of ``docs/reliability.md`` and exits with an
error if one case fails. A child process works on a ledger, trains, asks queries, answers as a
Flower node, or runs a leader and a helper, while the functions of ``os`` that touch files count
their calls; at the call under test it kills itself, or the call raises. Then the files are read by
the parent, and what was killed is started again.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from benchmarks.faults import Tally, counted, killed

from skellam.accounting import Gaussian
from skellam.accounting.ledger import Ledger
from skellam.errors import BudgetError, SkellamError

NOISE = Gaussian(sigma=20.0, l2=1.0)
BUDGET = {"epsilon": 1.0, "delta": 1e-5}
ERRORS = (errno.ENOSPC, errno.EROFS, errno.EIO, errno.EACCES, errno.EINTR, errno.EMFILE)
SPENDS = 3


def work(path: Path, acknowledge: Callable[[], None]) -> None:
    """Open or create the ledger and spend; each spend is acknowledged."""
    with Ledger.open_or_create(path, **BUDGET) as ledger, suppress(BudgetError):
        for number in range(SPENDS):
            ledger.spend(NOISE, key=b"%d-%d" % (len(ledger.account.spends), number))
            acknowledge()


def judged(path: Path, before: int, acknowledged: int) -> str:
    """Return what a reader finds after a kill, and whether the ledger goes on."""
    with Ledger.open_or_create(path, **BUDGET) as ledger:
        found = len(ledger.account.spends)
        if not before + acknowledged <= found <= before + acknowledged + 1:
            return f"{before + acknowledged} acknowledged, {found} found"
        ledger.spend(NOISE, key=b"after-%d" % found)
    if len(Ledger.verify(path).spends) != found + 1:
        return "the ledger did not go on"
    return "same" if found == before + acknowledged else "extra"


def kills(folder: Path, *, existing: bool, torn: bool) -> Tally:
    """Kill a writer before and after every call, of a new ledger or of one with a spend."""
    tally = Tally()
    for after in (False, True):
        at = 0
        while True:
            at += 1
            path = folder / f"kill-{existing}-{torn}-{after}-{at}"
            if existing:
                with Ledger.create(path, **BUDGET) as ledger:
                    ledger.spend(NOISE, key=b"before")
            acknowledged, died = killed(partial(work, path), at, after=after, torn=torn)
            if not died:
                break
            tally.count(f"{path.name}", judged(path, int(existing), acknowledged))
    return tally


def system_errors(folder: Path) -> Tally:
    """Let every call of a spend fail with every error; the error must be ours."""
    tally = Tally()
    for code in ERRORS:
        at, raised = 0, True
        while raised:
            at += 1
            path = folder / f"error-{code}-{at}"
            with Ledger.create(path, **BUDGET) as ledger:
                ledger.spend(NOISE, key=b"before")
                raised, outcome = _failing_spend(path, ledger, code, at)
            if raised:
                tally.count(path.name, outcome)
    return tally


def _failing_spend(path: Path, ledger: Ledger, code: int, at: int) -> tuple[bool, str]:
    raised = False

    def fail(number: int, after: bool) -> None:
        nonlocal raised
        if (number, after) == (at, False):
            raised = True
            raise OSError(code, os.strerror(code))

    acknowledged = 1
    try:
        with counted(fail):
            ledger.spend(NOISE, key=b"next")
        acknowledged = 2
    except SkellamError as error:
        if str(path) not in str(error):
            return raised, f"the error does not name the file: {error}"
    except OSError as error:
        return raised, f"not an error of ours: {error!r}"
    ledger.close()
    return raised, judged(path, 0, acknowledged)


def damaged_bytes(path: Path, read: Callable[[], object], *, flips: int, seed: int) -> Tally:
    """Flip a bit, cut, drop a byte or zero the end of ``path``; it must read as before or fail."""
    tally, whole, state = Tally(), path.read_bytes(), read()
    draw = random.Random(seed)
    bits = [*range(8 * len(whole))]
    chosen = bits if len(bits) <= flips else draw.sample(bits, flips)
    cases = [(f"bit {bit}", _flipped(whole, bit)) for bit in chosen]
    cuts = range(len(whole)) if len(whole) <= flips else draw.sample(range(len(whole)), flips // 4)
    cases += [(f"cut at {end}", whole[:end]) for end in cuts]
    cases += [(f"without byte {at}", whole[:at] + whole[at + 1 :]) for at in cuts]
    cases += [(f"zeros from {at}", whole[:at] + bytes(len(whole) - at)) for at in cuts]
    for case, octets in cases:
        path.write_bytes(octets)
        try:
            outcome = "same" if read() == state else "another state was read"
        except SkellamError:
            outcome = "refused"
        except Exception as error:  # noqa: BLE001
            outcome = f"not an error of ours: {error!r}"
        tally.count(f"{path.name}, {case}", outcome)
    path.write_bytes(whole)
    return tally


def _flipped(octets: bytes, bit: int) -> bytes:
    at, mask = bit // 8, 1 << bit % 8
    return octets[:at] + bytes([octets[at] ^ mask]) + octets[at + 1 :]


def old_copies(folder: Path) -> Tally:
    """Put an older copy of both files, or of one, under a held ledger at every spend."""
    tally = Tally()
    for kept in range(1, 6):
        for names in (("",), (".tail",), ("", ".tail")):
            path = folder / f"copies-{kept}-{'-'.join(names).replace('.', '')}-of"
            tally.count(path.name, _copied_over(path, kept, names))
    return tally


def _copied_over(path: Path, kept: int, names: tuple[str, ...]) -> str:
    with Ledger.create(path, epsilon=1.0, delta=1e-5) as ledger:
        for number in range(6):
            if number == kept:
                for name in names:
                    shutil.copy(f"{path}{name}", f"{path}{name}.old")
            ledger.spend(NOISE, rounds=2)
        for name in names:
            Path(f"{path}{name}.old").replace(f"{path}{name}")
        try:
            ledger.spend(NOISE, rounds=2)
        except SkellamError:
            return "refused"
    return "same" if Ledger.verify(path).rounds[NOISE] == 14 else "spends were forgotten"


def exhausted(folder: Path) -> Tally:
    """Kill writers until the budget is spent: never more than it, by what was acknowledged."""
    tally, path, at, acknowledged = Tally(), folder / "exhausted", 0, 0
    for at in range(1, 200):
        spent, _ = killed(partial(work, path), 1 + at * 7 % 80, after=bool(at % 2))
        acknowledged += spent
        with Ledger.open_or_create(path, **BUDGET) as ledger:
            account = ledger.account
            within = account.epsilon() <= BUDGET["epsilon"] and len(account.spends) >= acknowledged
            tally.count(f"after {at} kills", "same" if within else "the budget was exceeded")
            if not account.fits(NOISE):
                try:
                    ledger.spend(NOISE)
                    tally.count("at the end", "a spend beyond the budget")
                except BudgetError:
                    tally.count("at the end", "refused")
                break
    return tally


def _ledger_file(folder: Path, flips: int) -> dict[str, Tally]:
    path = folder / "bytes"
    with Ledger.create(path, **BUDGET) as ledger:
        for number in range(3):
            ledger.spend(NOISE, key=b"%d" % number)

    def read() -> object:
        return Ledger.verify(path)

    tail = path.with_name("bytes.tail")
    return {
        "damaged bytes, ledger": damaged_bytes(path, read, flips=flips, seed=1),
        "damaged bytes, tail": damaged_bytes(tail, read, flips=flips, seed=2),
    }


def _checkpoint_file(folder: Path, flips: int) -> dict[str, Tally]:
    from skellam.accounting.ledger import Head
    from skellam.federated.aggregation import adam
    from skellam.federated.history import Checkpoint
    from skellam.plan import AdaptiveClip

    path = folder / "checkpoint.npz"
    state = adam(learning_rate=0.1).init(np.arange(50, dtype=np.float32))
    clip = AdaptiveClip(clip=0.1, target=0.5, learning_rate=0.3)
    Checkpoint(7, state, bytes(32), "fingerprint", Head(9, "ab" * 32), clip).save(path)

    def read() -> object:
        found = Checkpoint.load(path)
        arrays = (found.state.model, *found.state.moments)
        octets = tuple(array.tobytes() for array in arrays)
        return found.round, found.run, found.fingerprint, found.head, found.clip, octets

    return {"damaged bytes, checkpoint": damaged_bytes(path, read, flips=flips, seed=3)}


def measure(folder: Path, *, flips: int, every: int = 1) -> dict[str, Tally]:
    """Return every kind of fault and what became of its cases."""
    from benchmarks.killed_runs import RUNS, kill_everywhere

    found = {
        f"kills, {'a ledger with a spend' if existing else 'a new ledger'}"
        f"{', short writes' if torn else ''}": kills(folder, existing=existing, torn=torn)
        for existing in (False, True)
        for torn in (False, True)
    }
    found |= {f"kills, {name}": kill_everywhere(folder, name, every=every) for name in RUNS}
    found["kills until the budget is spent"] = exhausted(folder)
    found["errors of the system"] = system_errors(folder)
    found["older copies put under a held ledger"] = old_copies(folder)
    found |= _ledger_file(folder, flips)
    return found | _checkpoint_file(folder, flips)


def main() -> None:
    show(flips=20_000, every=1)


def sample() -> None:
    """Damage a twentieth of the bytes, and kill at every twentieth call of a run."""
    show(flips=1000, every=20)


def show(*, flips: int, every: int) -> None:
    """Print the table, and exit with an error if a case failed."""
    with TemporaryDirectory() as folder:
        found = measure(Path(folder), flips=flips, every=every)
    print(
        "| fault | cases | as acknowledged | one spend more | refused by an error of ours | lost |"
    )
    print("|---|---|---|---|---|---|")
    for name, tally in found.items():
        numbers = (tally.cases, tally.same, tally.extra, tally.refused, len(tally.failed))
        print(f"| {name} | {' | '.join(f'{number:,}' for number in numbers)} |")
    if failed := [case for tally in found.values() for case in tally.failed]:
        sys.exit("\n".join(failed[:50]))
