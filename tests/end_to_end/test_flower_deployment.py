"""The guide's fleet on loopback: TLS, node authentication, five SuperNodes, some killed, late or
hostile, and then a server that attacks them."""

import json
import os
import shutil
import signal

import numpy as np
import pytest

from oracles.digits_by_local_engine import Partitions, example, rounds
from oracles.flower_deployment import NODES, deployed, set_up, wait_until
from oracles.flower_guide import ROOT, blocks
from oracles.flower_replay_app import configure, make_attack, scripted
from skellam.accounting.ledger import Ledger

CONFIG = {"num-rounds": 4, "dropout": 0.25, "colluding": 0.25}
EPSILON = 8.0
PATIENCE = 240.0
"""Seconds for a stage; the SuperLink needs up to 60 to notice that a node is dead or stopped."""
SCRIPT = {
    "1-2-train": "killed in training",
    "1-3-share_keys": "killed",
    "2-4-train": "late",
    "2-5-masked_input": "killed",
    "3-1-train": "low order",
    "3-5-train": "exits",
    "3-2-consistency_check": "killed",
    "4-3-train": "unreadable",
    "4-4-unmask": "killed",
}
CAST = [
    ((1, 3, 4, 5), (1, 4, 5)),
    ((1, 2, 3, 5), (1, 2, 3)),
    ((2, 3, 4, 5), (2, 3, 4, 5)),
    ((1, 2, 4, 5), (1, 2, 4, 5)),
]
"""Participants and survivors of each round: who masked and was killed later is in the sum."""
SPENT = {1: 3, 2: 3, 3: 2, 4: 3, 5: 4}
"""Rounds in which each node masked its vector; node 5 was killed before the second could leave."""


@pytest.mark.slow
def test_a_fleet_survives_kills_late_and_hostile_nodes_and_a_hostile_server(tmp_path):
    """In four rounds a node is killed at each of the five stages, one is late, one advertises a
    key of low order, one sends what nobody can read and one exits while it trains. Then the same
    nodes meet a server that attacks them."""
    app = tmp_path / "my-app"
    shutil.copytree(ROOT / "examples" / "flower-digits", app)
    scripted(app, tmp_path / "sums.npz", SCRIPT)
    configure(app, epsilon=EPSILON, num_rounds=4, dropout=0.25, colluding=0.25)
    configure(app, stage_timeout=PATIENCE)
    shutil.copytree(app, tmp_path / "attack")
    make_attack(tmp_path / "attack", tmp_path / "attack.json")
    with deployed(tmp_path) as fleet:
        set_up(fleet)
        try:
            running = fleet.start("server: run")
            for name, action in SCRIPT.items():
                if action.startswith("killed"):
                    kill(fleet, name)
                if action == "late":
                    hold_up(fleet, name)
            assert running.wait(900) == 0
            wait_until((tmp_path / "sums.npz").exists, seconds=5, what="the sums")
            limit_trainings(fleet, len(CAST) + 2)
            assert fleet.start("server: run", app="attack").wait(900) == 0
            wait_until((tmp_path / "attack.json").exists, seconds=5, what="the attack")
        except BaseException:
            print(fleet.logs())
            raise
    assert_sums_are_exact(np.load(tmp_path / "sums.npz"), tmp_path)
    assert_attacks_failed(json.loads((tmp_path / "attack.json").read_text()), fleet)


def kill(fleet, name):
    """Kill a node at the stage that ``name`` says, and start it again as soon as that works."""
    _, node, _ = name.split("-")
    marks = fleet.folder / "marks"
    wait_until((marks / name).exists, seconds=900, what=name)
    fleet.kill(int(node))
    fleet.revive(int(node))
    (marks / f"{name}-revived").touch()


def hold_up(fleet, name):
    """Stop a node while it trains, and let it go on when the others are at the next stage."""
    round_, node, _ = map(str, name.split("-"))
    wait_until((fleet.folder / "marks" / name).exists, seconds=900, what=name)
    process = fleet.running["node: SuperNode", int(node)]
    os.killpg(process.pid, signal.SIGSTOP)
    others = set(range(1, NODES + 1)) - {int(node)}
    wait_until(
        lambda: any(fleet.stages(other).count("share_keys") >= int(round_) for other in others),
        seconds=900,
        what="the stage after a late node",
    )
    os.killpg(process.pid, signal.SIGCONT)


def limit_trainings(fleet, limit):
    for node in range(1, NODES + 1):
        file = fleet.folder / f"node-{node}.toml"
        file.write_text(file.read_text() + f"max_trainings = {limit}\n")


def assert_sums_are_exact(found, folder):
    _, server = example()
    plan = server.plan_of(CONFIG, NODES).calibrated(epsilon=EPSILON, delta=1e-5)
    failed = {(3, 5)}
    played = rounds(plan, Partitions(NODES, 1), CAST, found, failed)
    for number, ((members, survivors), (expected, update)) in enumerate(
        zip(CAST, played, strict=True), start=1
    ):
        assert found[f"failure-{number}"] == ""
        assert tuple(found[f"participants-{number}"]) == members
        assert tuple(found[f"survivors-{number}"]) == survivors
        assert np.array_equal(found[f"total-{number}"], expected.total.values)
        assert_noise_is_as_planned(plan, members, survivors, found[f"total-{number}"], update)
    blamed = [found[f"faults-{number}"].tolist() for number in (1, 2, 3, 4)]
    assert blamed == [[], [], ["advertise_keys: a public key is of low order"], []]
    account = Ledger.verify(folder / "run.ledger")
    assert len(account.spends) == len(CAST)
    assert account.epsilon() == plan.privacy().epsilon
    for node, spent in SPENT.items():
        assert len(Ledger.verify(folder / f"node-{node}.spend").spends) == spent


def assert_attacks_failed(found, fleet):
    assert len(found["lr"]) == NODES
    assert all("is false" in reason for reason in found["lr"].values())
    for limit in ("min_colluding", "round_epsilon", "max_dropout", "min_cohort"):
        assert [limit in reason for reason in found["plans"].values()].count(True) == 1
    assert found["trained"] == NODES
    assert found["state"] == ["{}"] * NODES
    assert len(found["free"]) == NODES
    assert all("limit max_trainings" in reason for reason in found["free"].values())
    for node, spent in SPENT.items():
        assert fleet.stages(node).count("train") == len(CAST) + 2
        assert len(Ledger.verify(fleet.folder / f"node-{node}.spend").spends) == spent


def assert_noise_is_as_planned(plan, members, survivors, total, update):
    """The sample variance of 170 draws is within 7 standard errors but for 1e-11."""
    noise = total - sum(clipped(update(n), plan.clip) for n in survivors)
    total_variance = plan.codec(public_seed=bytes(32), cohort=len(members)).spec.noise.variance
    expected = total_variance / plan.variance * (plan.noise_multiplier * plan.clip) ** 2
    assert noise.var() == pytest.approx(expected, rel=7 * np.sqrt(2 / len(noise)))


def clipped(vector, clip):
    return vector * (clip / max(clip, np.linalg.norm(vector)))


def test_every_shell_block_of_the_guide_is_one_that_a_test_executes():
    paths = [*(ROOT / "tests/end_to_end").glob("test_flower_*")]
    paths.append(ROOT / "tests/oracles/flower_deployment.py")
    tests = "".join(path.read_text() for path in paths)
    assert len(blocks()) == 14
    assert all(f'"{title}"' in tests for title in blocks())
