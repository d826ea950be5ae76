"""The guide's fleet with a helper on loopback: TLS, nodes and helper killed in the middle."""

import os
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest

from oracles.digits_by_local_engine import example
from oracles.flower_deployment import NODES, deployed, set_up, wait_until
from oracles.flower_guide import ROOT
from oracles.flower_replay_app import scripted
from skellam.accounting.ledger import Ledger
from skellam.engines.helper import HelperConfig
from skellam.engines.helper.service import verify
from skellam.twoserver.leader import Idle

ROUNDS = 3
KILLED = (2, 4)


def run(fleet, **config):
    """Start the app with ``config``, its output in a log, and return the process."""
    given = {
        "num-clients": NODES,
        "num-rounds": ROUNDS,
        "roster": fleet.folder / "roster.json",
        **config,
    }
    words = " ".join(
        f"{name}={value}" if isinstance(value, int | float) else f'{name}="{value}"'
        for name, value in given.items()
    )
    with (fleet.folder / f"run-{len(config)}.log").open("w") as log:
        process = subprocess.Popen(
            ["flwr", "run", "my-app", "fleet", "--stream", "-c", words],
            cwd=fleet.folder,
            env=fleet.env(),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    fleet.running[("run", len(config))] = process
    return process


def end_of(running, fleet):
    """Return the status of the run; a node that is not there is started, as an init system does.

    The SuperLink refuses a node that comes back until it has noticed that it was gone.
    """
    deadline = time.monotonic() + 800
    while running.poll() is None and time.monotonic() < deadline:
        for node in KILLED:
            process = fleet.running.get(("node: SuperNode", node))
            if process is None or process.poll() is not None:
                fleet.start("node: SuperNode", node)
        time.sleep(1)
    return running.poll()


def seconds_of_secagg(fleet):
    """Return the seconds of the faster of two rounds of one server, on the same fleet."""
    sums = fleet.folder / "sums.npz"
    sums.unlink()
    ledger = fleet.folder / "secagg.ledger"
    assert run(fleet, **{"ledger": ledger, "num-rounds": 2, "epsilon": 2.0}).wait(600) == 0
    wait_until(sums.exists, seconds=5, what="the sums of secagg")
    with np.load(sums) as found:
        assert {str(found[f"failure-{number}"]) for number in (1, 2)} == {""}
        return found["seconds"].min()


def is_open(folder):
    """Return whether the leader has the helper's grant."""
    return any(path.read_bytes()[1] == Idle.TAG for path in folder.glob("*.run"))


def spends(path):
    return len(Ledger.verify(path).spends) if path.exists() else 0


@pytest.mark.slow
def test_rounds_go_on_when_nodes_die_after_their_message_and_the_helper_before_its_answer(tmp_path):
    """The helper is stopped when the run is open; so its first job waits, and dies with it.

    The last round, in which nobody dies, takes less time than one of one server afterwards.
    """
    shutil.copytree(ROOT / "examples" / "flower-digits", tmp_path / "my-app")
    scripted(tmp_path / "my-app", tmp_path / "sums.npz")
    with deployed(tmp_path) as fleet:
        fleet.run("helper: new")
        fleet.run("server: leader")
        set_up(fleet)
        fleet.run("helper: files")
        for node in range(1, NODES + 1):
            fleet.run("node: two servers", node)
        helper = fleet.start("helper: serve")
        try:
            running = run(
                fleet,
                **{
                    "ledger": tmp_path / "run.ledger",
                    "helper": f"https://{fleet.base['HELPER']}",
                    "leader-key": tmp_path / "leader.key",
                    "helper-key": tmp_path / "helper.key.pub",
                    "helper-authority": tmp_path / "ca.crt",
                    "leader-state": tmp_path / "leader",
                },
            )
            wait_until(lambda: is_open(tmp_path / "leader"), seconds=400, what="the grant")
            os.killpg(helper.pid, signal.SIGSTOP)
            wait_until(
                lambda: spends(tmp_path / "run.ledger") == 1, seconds=400, what="all reports"
            )
            time.sleep(1)  # the job is on its way to a helper that does not answer
            for node in KILLED:
                fleet.kill(node)
            os.killpg(helper.pid, signal.SIGKILL)
            helper.wait(10)
            fleet.start("helper: serve")
            assert end_of(running, fleet) == 0
            wait_until((tmp_path / "sums.npz").exists, seconds=5, what="the sums")
            with np.load(tmp_path / "sums.npz") as opened:
                found = dict(opened)
            secagg = seconds_of_secagg(fleet)
        except BaseException:
            print(fleet.logs())
            raise
    print(f"seconds a round: {found['seconds']}, one server: {secagg}")
    assert_sums_are_right(found)
    assert found["seconds"][-1] < secagg
    assert spends(tmp_path / "run.ledger") == ROUNDS
    (left,) = verify(HelperConfig.load(tmp_path / "helper"))
    assert left.ended
    assert left.max_participations == ROUNDS
    assert left.clients == NODES


def assert_sums_are_right(found):
    """Who was killed after its message is in the sum; those who came back late are in others."""
    _, server = example()
    plan = server.plan_of({"num-rounds": ROUNDS, "helper": "here"}, NODES)
    plan = plan.calibrated(epsilon=10.0, delta=1e-5)
    for number in range(1, ROUNDS + 1):
        assert found[f"failure-{number}"] == ""
        survivors = tuple(found[f"survivors-{number}"])
        assert len(survivors) >= NODES - len(KILLED)
        # All updates are clipped at 1: 170 coordinates of noise, which dominates the sum of five.
        deviation = np.sqrt(plan.total_variance / plan.variance) * plan.noise_multiplier
        total = found[f"total-{number}"]
        spread = np.hypot(deviation, len(survivors) / np.sqrt(len(total)))
        assert deviation / 2 < total.std() < 2 * spread
    assert tuple(found["survivors-1"]) == (1, 2, 3, 4, 5)
