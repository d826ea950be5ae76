"""Kill writers of one ledger at random moments, and check after each kill what the ledger knows.

Run as a process of its own: it forks the writers. A writer spends, then releases: it appends the
round to a file of releases. Prints the number of releases when every check held.
"""

import itertools
import os
import random
import signal
import sys
import time
from pathlib import Path

from skellam.accounting import Gaussian
from skellam.accounting.ledger import Ledger

MECHANISM = Gaussian(sigma=1e4, l2=1.0)


def write_until_killed(path: Path, released: int, ready: int) -> None:
    with Ledger.open(path) as ledger:
        for number in itertools.count(len(ledger.account.spends)):
            ledger.spend(MECHANISM, key=b"round-%d" % number)
            os.write(released, b"%d\n" % number)
            os.write(ready, b"x")


def kill_one(path: Path, releases: Path, delay: float) -> None:
    read_end, write_end = os.pipe()
    released = os.open(releases, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    writer = os.fork()
    if writer == 0:
        try:
            write_until_killed(path, released, write_end)
        finally:
            os._exit(1)
    os.read(read_end, 1)
    time.sleep(delay)
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    for descriptor in (read_end, write_end, released):
        os.close(descriptor)


def check(path: Path, releases: Path) -> int:
    seen = [int(line) for line in releases.read_bytes().split()]
    account = Ledger.verify(path)
    with Ledger.open(path) as ledger:
        assert ledger.account == account
    assert seen == sorted(set(seen))
    assert all(account.find(b"round-%d" % number) for number in seen[-100:])
    assert 0 <= len(account.spends) - len(seen) <= 1 + check.kills
    assert account.rounds == {MECHANISM: len(account.spends)}
    return len(seen)


def main() -> None:
    folder, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    path, releases = folder / "ledger", folder / "released"
    clock = random.Random(seed)
    with Ledger.create(path, epsilon=10.0, delta=1e-6) as ledger:
        ledger.spend(MECHANISM, key=b"round-0")  # imports in advance what a writer needs
    count = 0
    for kill in range(1, kills + 1):
        check.kills = kill
        kill_one(path, releases, clock.uniform(0, 0.05))
        count = check(path, releases)
    print(count)


if __name__ == "__main__":
    main()
