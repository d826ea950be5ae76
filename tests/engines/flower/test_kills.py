"""A node killed at any call to the file system goes on, and nothing acknowledged is lost."""

import os
from functools import partial

import pytest
from flwr.app import RecordDict

from oracles.flower_fleet import LIMITS, Fleet, plan
from oracles.hostile_server import Server, train_content
from skellam.accounting.ledger import Ledger
from skellam.engines.flower import Limits
from skellam.engines.flower.messages import config_content
from skellam.engines.flower.node import Spending, StageLog
from skellam.errors import TamperError

CALLS = ("open", "write", "fsync", "replace", "rename", "unlink", "close")
KILLED = 9


def killed_at(point, action):
    """Run ``action`` in a child that dies before its call number ``point``; was it killed?"""
    child = os.fork()
    if child == 0:
        count = 0

        def dying(call):
            def counted(*args, **kwargs):
                nonlocal count
                if count == point:
                    os._exit(KILLED)
                count += 1
                return call(*args, **kwargs)

            return counted

        for name in CALLS:
            setattr(os, name, dying(getattr(os, name)))
        try:
            action()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KILLED


@pytest.fixture(scope="module")
def price():
    return Limits(**LIMITS).price(plan())


@pytest.mark.parametrize("before", [0, 1])
def test_a_node_killed_anywhere_in_a_spend_can_spend_again(tmp_path, price, before):
    """At most the interrupted spend counts as well; one that returned always does."""
    for point in range(100):
        path = tmp_path / f"{point}.spend"
        spending = Spending(path, Limits(**LIMITS))

        spend = partial(spending.spend, price, plan=bytes(32), replayable=False)
        for number in range(before):
            spend(key=bytes([number]))
        killed = killed_at(point, partial(spend, key=b"interrupted"))
        spend(key=b"after")
        found = [spend.key for spend in Ledger.verify(path).spends]
        assert len(found) == len(set(found))
        assert found[:before] == [bytes([number]) for number in range(before)]
        assert set(found[before:]) - {b"interrupted"} == {b"after"}
        if not killed:
            assert b"interrupted" in found
            assert point > 8
            return
    raise AssertionError("the spend never ended")


def test_a_node_killed_anywhere_in_a_stage_never_begins_it_twice(tmp_path):
    for point in range(100):
        log = StageLog(tmp_path / f"{point}.stages")
        killed = killed_at(point, partial(log.enter, bytes(32), "unmask"))
        if not killed:
            with pytest.raises(TamperError):
                log.enter(bytes(32), "unmask")
            assert point >= 1
            return
        log.enter(bytes(32), "consistency_check")
        assert log.count("consistency_check") == 1
        assert log.count("unmask") <= 1
    raise AssertionError("the stage never began")


def asked_to_train(server):
    """Return a node's reply to the first message of the server's round."""
    given = RecordDict({**train_content(), "skellam": config_content(server.config)})
    return server.send("train", {2: given})[2]


@pytest.mark.parametrize("stage", ["train", "masked_input"])
def test_a_node_killed_anywhere_before_its_first_spend_is_over_is_not_locked_out(tmp_path, stage):
    """The ledger is made in the first stage. It spent once or not at all, and trains next time."""
    fleet, folder, before = Fleet(tmp_path), tmp_path / "nodes", {}
    server = Server.of(fleet)
    action, most = partial(asked_to_train, server), 0
    if stage == "masked_input":
        relay, participants = server.enrolled()
        _, boxes = relay.step(server.data(server.ask("share_keys", participants)))
        before = {path: path.read_bytes() for path in folder.glob("1.spend*")}
        action, most = partial(server.ask, "masked_input", {2: boxes[1]}), 1
    for point in range(100):
        for path in folder.glob("1.spend*"):
            path.unlink()
        for path, octets in before.items():
            path.write_bytes(octets)
        killed = killed_at(point, action)
        assert not asked_to_train(Server.of(fleet, grid=server.grid)).has_error()
        spent = len(Ledger.verify(folder / "1.spend").spends)
        assert spent <= most
        if not killed:
            assert spent == most
            assert point > 15
            return
    raise AssertionError("the stage never ended")
