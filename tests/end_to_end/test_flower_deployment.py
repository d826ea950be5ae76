"""The guide's fleet on loopback: TLS, node authentication, five SuperNodes, some killed."""

import os
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager

import numpy as np
import pytest

from oracles.digits_by_local_engine import Partitions, example, rounds
from oracles.flower_guide import ROOT, blocks, environment, free_port
from oracles.flower_replay_app import make_replayable
from skellam.accounting.ledger import Ledger

NODES = 5
DIES_BEFORE_MASKING, DIES_AFTER_MASKING = 2, 4
CONFIG = {"num-rounds": 3, "dropout": 0.2, "colluding": 0.2}


class Deployment:
    """A folder in which the guide's blocks run; every process that it starts, it ends by its id."""

    def __init__(self, folder):
        self.folder, self.blocks, self.running = folder, blocks(), {}
        self.base = {"SERVER": f"127.0.0.1:{free_port()}", "NODES": str(NODES)}

    def env(self, node=None):
        more = self.base if node is None else {**self.base, "NODE": str(node)}
        return environment(self.folder / "flwr", **more)

    def run(self, title, node=None, timeout=60):
        done = subprocess.run(
            ["bash", "-ec", self.blocks[title]],
            cwd=self.folder,
            env=self.env(node),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, title, node=None):
        """Start a block's one command in a session of its own, its output in a log."""
        with (self.folder / f"{title.split(': ')[1]}-{node or 0}.log").open("w") as log:
            self.running[(title, node)] = subprocess.Popen(
                ["bash", "-ec", "exec " + self.blocks[title]],
                cwd=self.folder,
                env=self.env(node),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self.running[(title, node)]

    def kill(self, node):
        """Kill a node with its helpers, as a machine that fails would."""
        process = self.running.pop(("node: SuperNode", node))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)

    def end(self):
        # Each process leads a group of its own: its helpers go with it.
        for process in reversed(self.running.values()):
            for sign, patience in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
                try:
                    os.killpg(process.pid, sign)
                    process.wait(patience)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    continue

    def stages(self, node):
        """Return the stages that a node entered, in order, over all rounds."""
        path = self.folder / f"node-{node}.spend.stages"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.split()[1] for line in lines]

    def logs(self):
        return "\n".join(
            f"== {path.name}\n{path.read_text()[-2500:]}" for path in self.folder.glob("*.log")
        )


@contextmanager
def deployed(folder):
    deployment = Deployment(folder)
    try:
        yield deployment
    finally:
        deployment.end()


def wait_until(condition, *, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} took more than {seconds} s"
        time.sleep(0.1)


def set_up(fleet):
    fleet.run("server: certificates")
    fleet.run("server: connection")
    for node in range(1, NODES + 1):
        fleet.run("node: keys", node)
    fleet.start("server: SuperLink")
    log = fleet.folder / "SuperLink-0.log"
    wait_until(lambda: "running" in log.read_text().lower(), seconds=60, what="the SuperLink")
    fleet.run("server: roster", timeout=90)
    for node in range(1, NODES + 1):
        fleet.run("node: limits", node)
        fleet.start("node: SuperNode", node)


@pytest.mark.slow
def test_a_fleet_survives_kills_and_late_nodes_and_its_sums_are_exact(tmp_path):
    """One node dies before it masked, in round 1, and comes back late in round 2; another dies
    after it masked, in round 2, and comes back late in round 3."""
    shutil.copytree(ROOT / "examples" / "flower-digits", tmp_path / "my-app")
    make_replayable(tmp_path / "my-app", tmp_path / "sums.npz")
    with deployed(tmp_path) as fleet:
        set_up(fleet)
        running = fleet.start("server: run")
        try:
            kill_once(fleet, DIES_BEFORE_MASKING, "share_keys", round_=1)
            kill_once(fleet, DIES_AFTER_MASKING, "consistency_check", round_=2)
            assert running.wait(500) == 0
            wait_until((tmp_path / "sums.npz").exists, seconds=5, what="the sums")
        except BaseException:
            print(fleet.logs())
            raise
    assert fleet.stages(DIES_BEFORE_MASKING).count("masked_input") == 2
    assert_sums_are_exact(np.load(tmp_path / "sums.npz"), tmp_path)


def kill_once(fleet, node, stage, *, round_):
    """Kill ``node`` once it began ``stage`` of a round, and start it again after that round."""
    wait_until(
        lambda: fleet.stages(node).count(stage) == round_, seconds=300, what=f"{stage} of {round_}"
    )
    fleet.kill(node)
    ledger = fleet.folder / "run.ledger"
    wait_until(
        lambda: ledger.exists() and len(Ledger.verify(ledger).spends) == round_,
        seconds=300,
        what=f"round {round_}",
    )
    fleet.start("node: SuperNode", node)


def assert_sums_are_exact(found, folder):
    _, server = example()
    plan = server.plan_of(CONFIG, NODES).calibrated(epsilon=10.0, delta=1e-5)
    everybody = (1, 2, 3, 4, 5)
    cast = [(everybody, (1, 3, 4, 5)), (everybody, everybody), (everybody, everybody)]
    played = rounds(plan, Partitions(NODES, 1), cast, found)
    for number, ((members, survivors), (expected, update)) in enumerate(
        zip(cast, played, strict=True), start=1
    ):
        assert found[f"failure-{number}"] == ""
        assert tuple(found[f"participants-{number}"]) == members
        assert tuple(found[f"survivors-{number}"]) == survivors
        assert np.array_equal(found[f"total-{number}"], expected.total.values)
        assert_noise_is_as_planned(plan, survivors, found[f"total-{number}"], update)
    account = Ledger.verify(folder / "run.ledger")
    assert len(account.spends) == 3
    assert account.epsilon() == plan.privacy().epsilon
    for node in range(1, NODES + 1):
        spent = len(Ledger.verify(folder / f"node-{node}.spend").spends)
        assert spent == (2 if node == DIES_BEFORE_MASKING else 3)


def assert_noise_is_as_planned(plan, survivors, total, update):
    """The sample variance of 170 draws is within 7 standard errors but for 1e-11."""
    noise = total - sum(clipped(update(n), plan.clip) for n in survivors)
    expected = plan.total_variance / plan.variance * (plan.noise_multiplier * plan.clip) ** 2
    assert noise.var() == pytest.approx(expected, rel=7 * np.sqrt(2 / len(noise)))


def clipped(vector, clip):
    return vector * min(1.0, clip / np.linalg.norm(vector))


def test_every_shell_block_of_the_guide_is_one_that_a_test_executes():
    tests = "".join(path.read_text() for path in (ROOT / "tests/end_to_end").glob("test_flower_*"))
    assert len(blocks()) == 9
    assert all(f'"{title}"' in tests for title in blocks())
