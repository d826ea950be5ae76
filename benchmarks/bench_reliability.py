"""Fault injection: kills, errors of the system and damaged bytes, in real files.

``python -m benchmarks reliability`` prints the tables of ``docs/reliability.md`` and exits with an
error if one case fails. A child process works on a ledger, trains, asks queries, answers as a
Flower node, or runs a leader and a helper, while the functions of ``os`` that touch files count
their calls; at the call under test it kills itself, or the call raises. Then the files are read by
the parent, and what was killed is started again.
"""

from __future__ import annotations

import errno
import itertools
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.faults import Tally, counted, killed
from benchmarks.timing import Report

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


def kills_and_errors(folder: Path, *, every: int = 1) -> Iterator[tuple[str, Tally]]:
    """Yield every kind of fault and what became of its cases."""
    from benchmarks.killed_runs import RUNS, kill_everywhere

    for existing, torn in itertools.product((False, True), repeat=2):
        name = "a ledger with a spend" if existing else "a new ledger"
        tally = kills(folder, existing=existing, torn=torn)
        yield f"kills, {name}{', short writes' if torn else ''}", tally
    for name in RUNS:
        yield f"kills, {name}", kill_everywhere(folder, name, every=every)
    yield "kills until the budget is spent", exhausted(folder)
    yield "errors of the system", system_errors(folder)
    yield "older copies put under a held ledger", old_copies(folder)


def damages(folder: Path, *, flips: int) -> Iterator[tuple[str, Tally]]:
    """Yield every file that the library reads and what became of its damages."""
    from benchmarks.damaged_files import KINDS, damaged_bytes

    for kind, write in KINDS.items():
        (folder / kind).mkdir()
        for file in write(folder / kind):
            yield file.name, damaged_bytes(file, flips=flips, seed=1)


def main() -> None:
    show(flips=20_000, every=1)


def sample() -> None:
    """Flip fewer bits, and kill at every twentieth call of a run."""
    show(flips=200, every=20)


def show(*, flips: int, every: int) -> None:
    """Print both tables and how many cases there were; exit with an error if one failed."""
    logging.getLogger("skellam").setLevel(logging.ERROR)
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        report = Report("Faults", "what", "cases", "lost or wrong")
        failed = _table(
            report,
            "kills and errors of the system",
            "| fault | cases | as acknowledged | one spend more | refused by an error of ours "
            "| lost |",
            ("cases", "same", "extra", "refused"),
            kills_and_errors(Path(one), every=every),
        )
        failed += _table(
            report,
            "damaged bytes",
            "| damaged file | cases | read as before | refused by an error of ours "
            "| another valid content | failed |",
            ("cases", "same", "refused", "other"),
            damages(Path(other), flips=flips),
        )
    report.print()
    if failed:
        sys.exit("\n".join(failed[:50]))


def _table(
    report: Report,
    what: str,
    header: str,
    columns: tuple[str, ...],
    found: Iterator[tuple[str, Tally]],
) -> list[str]:
    print(f"\n{header}\n|---|{'---:|' * (len(columns) + 1)}")
    failed, cases = list[str](), 0
    for name, tally in found:
        numbers = (*(getattr(tally, column) for column in columns), len(tally.failed))
        print(f"| {name} | {' | '.join(f'{number:,}' for number in numbers)} |", flush=True)
        failed += tally.failed
        cases += tally.cases
    report.row(what, f"{cases:,}", str(len(failed)))
    return failed
