"""What is killed at every call to the file system, and what must be found afterwards.

Each of these runs in a folder, acknowledges what it released, is killed, and is then started again
in the same folder until it is done. They are the small fleets and tasks of the tests.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from benchmarks.faults import Counting, Tally, killed

sys.path.append(str(Path(__file__).parents[1] / "tests"))

import skellam as sk
from oracles import tiny_task
from skellam import analytics
from skellam import federated as fl
from skellam.accounting.ledger import Ledger
from skellam.engines import local
from skellam.errors import SkellamError

Acknowledge = Callable[[], None]
ENTROPY = sk.SystemEntropy()
torch.set_num_threads(1)  # a forked child would wait for ever for the parent's threads


class Training:
    """Two rounds of training, with their checkpoints, by any engine."""

    rounds = 2

    def __init__(self, aggregate: Callable[[], fl.Aggregation]) -> None:
        self.plan = tiny_task.plan(rounds=self.rounds, cohort=10)
        self.aggregate = aggregate

    def prepare(self, folder: Path) -> None:
        """Make nothing: the first run makes its folder."""

    def act(self, folder: Path, acknowledge: Acknowledge) -> fl.History:
        """Train, or go on with it; every record that is shown is acknowledged."""
        return fl.train(
            tiny_task.task(),
            self.plan,
            aggregate=self.aggregate(),
            entropy=ENTROPY,
            folder=folder / "run",
            resume=True,
            watch=lambda _: acknowledge(),
        )

    def judge(self, folder: Path, acknowledged: int) -> str:
        """Go on to the end: what was shown was spent for, and one spend was wasted at most."""
        path = folder / "run" / "ledger"
        found = _spends(path)
        if found < acknowledged:
            return f"{acknowledged} acknowledged, {found} found"
        history = self.act(folder, lambda: None)
        account = Ledger.verify(path)
        shown = sum(record.skipped is None for record in history.records)
        wasted = len(account.spends) - shown
        if not 0 <= wasted <= 1:
            return f"{wasted} spends more than rounds"
        if shown and account.epsilon() > self.plan.privacy().epsilon:
            return "the budget was exceeded"
        return "extra" if wasted else "same"


class Analytics:
    """Two queries from one ledger, each through the whole protocol."""

    def __init__(self) -> None:
        self.query = analytics.count(clients=6, epsilon=0.5, delta=1e-6)

    def prepare(self, folder: Path) -> None:
        """Make nothing: the first run makes its ledger."""

    def act(self, folder: Path, acknowledge: Acknowledge, first: int = 0) -> None:
        """Ask twice; every answer is acknowledged."""
        with Ledger.open_or_create(folder / "ledger", epsilon=3.0, delta=1e-5) as ledger:
            for number in range(first, first + 2):
                analytics.run(
                    self.query,
                    [["row"]] * 6,
                    entropy=ENTROPY,
                    aggregate=local.secure,
                    ledger=ledger,
                    key=b"%d" % number,
                )
                acknowledge()

    def judge(self, folder: Path, acknowledged: int) -> str:
        """Ask twice more: all that was answered was spent for, and one more at most."""
        found = _spends(folder / "ledger")
        self.act(folder, lambda: None, first=10)
        if _spends(folder / "ledger") != found + 2:
            return "the ledger did not go on"
        return _outcome(acknowledged, found)


class FlowerNode:
    """One round of a fleet of five, in which the files of one node's calls count."""

    def prepare(self, folder: Path) -> None:
        """Write keys, roster and node files."""
        from oracles.flower_fleet import Fleet

        logging.getLogger("flwr").setLevel(logging.ERROR)
        self.fleet = Fleet(folder)

    def act(self, folder: Path, acknowledge: Acknowledge) -> None:  # noqa: ARG002
        """Run a round; the node's masked vector is its acknowledgement."""

        def uplink(reply):
            sent = reply.metadata.message_type == "query.skellam_masked_input"
            if reply.metadata.src_node_id == 2 and sent and not reply.has_error():
                acknowledge()
            return reply

        Counting.on = False
        grid = self.fleet.grid(uplink=uplink)
        app = grid._app  # noqa: SLF001

        def only_one(message, context):
            Counting.on = context.node_id == 2
            try:
                return app(message, context)
            finally:
                Counting.on = False

        grid._app = only_one  # noqa: SLF001
        try:
            self.fleet.start(grid=grid)
        finally:
            Counting.on = True

    def judge(self, folder: Path, acknowledged: int) -> str:
        """Run another round: the node is not locked out, and spends once for it."""
        path = folder / "nodes" / "1.spend"
        found = _spends(path)
        self.fleet.start()
        if _spends(path) != found + 1:
            return "the node was locked out"
        return _outcome(acknowledged, found)


class Helper:
    """Two rounds of a leader, a helper and three clients in one process, which is killed."""

    def prepare(self, folder: Path) -> None:
        """Write the files of all parties."""
        from engines.helper.kill_servers import fleet_in

        self.fleet = fleet_in(folder)

    def act(self, folder: Path, acknowledge: Acknowledge, until: int = 2) -> None:  # noqa: ARG002
        """Run rounds until one; each sum that was opened is checked and acknowledged."""
        from engines.helper.kill_servers import AGREED
        from oracles.helper_fleet import INPUT
        from skellam.engines.helper import HelperService

        with HelperService(self.fleet.config, entropy=ENTROPY) as service:
            leader = self.fleet.lead(service.handle, AGREED)
            if leader.release is not None:
                _require_true(leader.release)
            while leader.next_round < until:
                _require_true(leader.round(leader.next_round, INPUT, self.fleet.collect()))
                acknowledge()

    def judge(self, folder: Path, acknowledged: int) -> str:
        """Go on for a round: the helper's record has every round, and one more at most."""
        from skellam.engines.helper.service import verify

        self.act(folder, lambda: None, until=3)
        (run,) = verify(self.fleet.config)
        rounds, opened = run.max_participations, max(3, acknowledged + 1)
        if not opened <= rounds <= opened + 1:
            return f"{rounds} rounds in the helper's record, {opened} were opened"
        return "same" if rounds == opened else "extra"


def _require_true(release) -> None:
    from engines.helper.kill_servers import AGREED
    from oracles.helper_fleet import truth

    total = release.total.values.astype(np.int64)
    error = (total - truth(AGREED, (10, 11, 12)) + 2**31) % 2**32 - 2**31
    if np.abs(error).max() >= 10 * np.sqrt(2 * AGREED.variance):
        raise AssertionError("a wrong sum")


def _spends(path: Path) -> int:
    """Return the spends that are durable; a file that no line was written to has none."""
    if not path.with_name(path.name + ".tail").exists():
        return 0
    with Ledger.open(path) as ledger:  # which completes a line that a kill cut
        return len(ledger.account.spends)


def _outcome(acknowledged: int, found: int) -> str:
    if not acknowledged <= found <= acknowledged + 1:
        return f"{acknowledged} acknowledged, {found} found"
    return "same" if found == acknowledged else "extra"


RUNS: dict[str, Callable[[], Training | Analytics | FlowerNode | Helper]] = {
    "training": lambda: Training(fl.unmasked),
    "training, secure aggregation": lambda: Training(fl.secure),
    "analytics": Analytics,
    "a Flower node": FlowerNode,
    "leader, helper and clients": Helper,
}


def kill_everywhere(folder: Path, name: str, *, every: int = 1) -> Tally:
    """Kill the run of this name before every call, or before every so many."""
    tally, run, at = Tally(), RUNS[name](), 1
    while True:
        place = folder / f"{name.replace(' ', '-')}-{at}"
        place.mkdir()
        run.prepare(place)
        acknowledged, died = killed(lambda told, place=place: run.act(place, told), at)
        if not died:
            return tally
        try:
            outcome = run.judge(place, acknowledged)
        except SkellamError as error:
            outcome = f"it did not go on: {error!r}"
        tally.count(place.name, outcome)
        at += every
