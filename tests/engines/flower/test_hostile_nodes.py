"""Nodes that send what cannot be read or used: the run goes on, and their names are known."""

from dataclasses import replace

import pytest
from flwr.app import Array, ConfigRecord, Error, Message

from oracles.flower_fleet import Fleet, plan
from oracles.transcript import dealt
from skellam.engines.flower import InProcessGrid, Node
from skellam.engines.flower import client as client_module
from skellam.engines.flower import messages as messages_module
from skellam.engines.flower import rounds as rounds_module
from skellam.engines.flower.messages import content_digest, payload, read_config, read_content
from skellam.secagg.messages import Advertisement, KeyShares, participants_of


def _npy(data):
    return Array("uint8", (3,), "numpy.ndarray", data)


HUGE = b"\x93NUMPY\x01\x00v\x00" + (
    b"{'descr': '<f8', 'fortran_order': False, 'shape': (999999999999,), }".ljust(117) + b"\n"
)
ARRAYS = {
    "EOFError": _npy(b""),
    "BadZipFile": _npy(b"PK\x03\x04" + bytes(30)),
    "MemoryError": _npy(HUGE),
    "TokenError": _npy(b"\x93NUMPY\x01\x00\x06\x00{'a':\n"),
    "raw but short": Array("uint8", (3,), "skellam.raw", bytes(3)),
    "raw but long": Array("uint8", (3,), "skellam.raw", bytes(10**6)),
    "of bits that are too many": Array("uint8", (48,), "skellam.raw", b"\xff" * 48),
}


def spoil(node, stage, change):
    """A network on which one node's answers at one stage are changed."""

    def uplink(message):
        mine = message.metadata.src_node_id == node and not message.has_error()
        if mine and message.metadata.message_type.endswith(stage):
            change(message.content)
        return message

    return {"uplink": uplink}


@pytest.mark.parametrize("name", ARRAYS)
def test_a_malformed_vector_is_silence_of_its_sender_who_is_named(tmp_path, name):
    def change(content):
        content["skellam.vector"]["packed"] = ARRAYS[name]

    _, (report,) = Fleet(tmp_path).start(network=spoil(4, "masked_input", change))
    assert report.failure == ""
    assert report.result.survivors == (1, 2, 4, 5)
    assert [(fault.node, fault.stage) for fault in report.faults] == [(4, "masked_input")]


class HandsOutOnce(InProcessGrid):
    """Like a SuperLink: replies that are pulled together with one that cannot be read are lost."""

    def pull_messages(self, message_ids):
        found = super().pull_messages(message_ids)
        if any(reply.has_content() and "unreadable" in reply.content for reply in found):
            raise KeyError("Unreadable")
        return found


@pytest.mark.parametrize("stage", ["train", *client_module.STAGES])
def test_a_reply_that_flower_cannot_read_takes_no_other_with_it(tmp_path, stage):
    def change(content):
        content["unreadable"] = ConfigRecord()

    fleet = Fleet(tmp_path)
    grid = HandsOutOnce(fleet.app, fleet.nodes, **spoil(4, stage, change))
    _, (report,) = fleet.start(grid=grid)
    assert (report.failure, report.faults) == ("", ())
    assert set(report.result.survivors) >= {1, 2, 4, 5}
    assert (3 in report.result.survivors) == (stage in ("consistency_check", "unmask"))


def test_a_reply_that_never_can_be_read_is_given_up_and_said(tmp_path, monkeypatch, caplog):
    class Broken(InProcessGrid):
        """Cannot read what one node sends."""

        def pull_messages(self, message_ids):
            found = super().pull_messages(message_ids)
            if not found or any(reply.metadata.src_node_id == 4 for reply in found):
                raise KeyError("Unreadable")
            return found

    monkeypatch.setattr(messages_module, "_ATTEMPTS", 2)
    fleet = Fleet(tmp_path)
    _, (report,) = fleet.start(grid=Broken(fleet.app, fleet.nodes))
    assert report.result.participants == (1, 2, 4, 5)
    assert "node 4 dropped out: an answer that cannot be read" in caplog.text


@pytest.mark.parametrize("stage", ["train", *client_module.STAGES])
def test_garbage_at_any_stage_names_its_sender(tmp_path, stage):
    def change(content):
        content["skellam"]["data"] = b"\x02\x01" + bytes(50)

    _, (report,) = Fleet(tmp_path).start(network=spoil(4, stage, change))
    named = "advertise_keys" if stage == "train" else stage
    assert [(fault.node, fault.stage) for fault in report.faults] == [(4, named)]
    assert (3 in report.result.survivors) == (stage in ("consistency_check", "unmask"))


@pytest.mark.parametrize("stage", client_module.STAGES)
def test_a_false_signature_at_any_stage_names_its_sender(tmp_path, stage):
    def change(content):
        record = content["skellam"]
        record["data"] = record["data"][:-1] + bytes([record["data"][-1] ^ 1])

    _, (report,) = Fleet(tmp_path).start(network=spoil(4, stage, change))
    assert report.failure == ""
    assert [(fault.node, fault.stage) for fault in report.faults] == [(4, stage)]


@pytest.mark.parametrize("field", ["channel_key", "mask_key"])
@pytest.mark.parametrize("key", [bytes(32), bytes([1]) + bytes(31)])
def test_a_key_of_low_order_names_its_sender(tmp_path, field, key):
    fleet = Fleet(tmp_path)

    def change(content):
        record = content["skellam"]
        advert = Advertisement.decode(record["data"])
        wrong = replace(advert, **{field: key})
        identity = Node.load(tmp_path / "nodes" / "3.toml").identity
        record["data"] = wrong.signed(identity, contexts[0])

    contexts = []
    uplink = spoil(4, "train", change)["uplink"]

    def downlink(message):
        if message.metadata.message_type == "train" and not contexts:
            config = read_config(message.content)
            contexts.append(config.protocol(content_digest(payload(message.content))).digest)
        return message

    _, (report,) = fleet.start(network={"uplink": uplink, "downlink": downlink})
    assert report.failure == ""
    assert report.result.participants == (1, 2, 4, 5)
    assert [(fault.node, fault.reason) for fault in report.faults] == [
        (4, "a public key is of low order")
    ]


def test_a_node_that_was_blamed_twice_is_left_out(tmp_path):
    asked = []

    def change(content):
        content["skellam"]["data"] = b""

    def downlink(message):
        if message.metadata.message_type == "train":
            asked.append((message.metadata.group_id, message.metadata.dst_node_id))
        return message

    network = {**spoil(4, "share_keys", change), "downlink": downlink}
    _, reports = Fleet(tmp_path, plan(dropout=0.2, cohort=6), count=6).start(
        rounds=4, network=network
    )
    assert [report.failure for report in reports] == [""] * 4
    assert [len(report.faults) for report in reports] == [1, 1, 0, 0]
    assert [number for number, node in asked if node == 4] == ["1", "2"]
    assert [report.invited for report in reports] == [6, 6, 5, 5]


@pytest.mark.parametrize("stage", ["train", *client_module.STAGES])
def test_who_fails_a_round_is_in_its_report_message_and_log(tmp_path, stage, caplog):
    """Two false signatures are one more than the round bears; after two rounds both are out."""

    def change(content):
        record = content["skellam"]
        record["data"] = record["data"][:-1] + bytes([record["data"][-1] ^ 1])

    def uplink(message):
        for node in (3, 4):
            spoil(node, stage, change)["uplink"](message)
        return message

    _, reports = Fleet(tmp_path).start(rounds=3, network={"uplink": uplink})
    named = "advertise_keys" if stage == "train" else stage
    for report in reports[:2]:
        assert report.result is None
        assert {(fault.node, fault.stage) for fault in report.faults} == {(3, named), (4, named)}
        for node in (3, 4):
            text = f"node {node} is to blame at {named}: "
            assert text in report.failure
            assert text in caplog.text
    assert (reports[2].invited, reports[2].faults) == (3, ())
    assert "node 4 was blamed in 2 rounds; it is left out" in caplog.text


class BadDealer:
    """A network on which client 3, which is node 4, deals envelopes that nobody can open."""

    def __init__(self, folder):
        self.identity = Node.load(folder / "nodes" / "3.toml").identity
        self.context = b""

    def downlink(self, message):
        if message.metadata.message_type == "train":
            self.round_ = read_config(message.content).protocol(
                content_digest(payload(message.content))
            )
        if message.metadata.message_type.endswith("share_keys"):
            listed = read_content(message.content, self.round_)
            self.context = participants_of(listed, self.round_).context
        return message

    def change(self, content):
        sent = KeyShares.decode(content["skellam"]["data"])
        spoilt = replace(sent, envelopes=bytes(len(sent.envelopes)))
        content["skellam"]["data"] = dealt(spoilt, self.identity, self.context)

    @property
    def network(self):
        return {**spoil(4, "share_keys", self.change), "downlink": self.downlink}


def test_a_client_whose_envelopes_nobody_can_open_is_named_and_then_left_out(tmp_path):
    fleet = Fleet(tmp_path, plan(cohort=6), count=6)
    _, reports = fleet.start(rounds=3, network=BadDealer(tmp_path).network)
    for report in reports[:2]:
        assert report.result is None
        assert "node 4 is to blame at masked_input: 5 nodes refuse what it sent" in report.failure
        assert {fault.node for fault in report.faults} == {4}
    assert reports[2].failure == ""
    assert reports[2].result.survivors == (1, 2, 4, 5, 6)


@pytest.mark.parametrize("number", [0, 3, 10**19 - 1, 10**19, 2**64 - 1])
def test_no_number_is_too_long_to_be_named(number):
    """A client may choose its number: none keeps it out of the count of those who refuse it."""
    text = f"<class 'skellam.errors.TamperError'>:<'client {number} dealt shares that it did not'>"
    assert rounds_module._named(text) == number


def test_no_more_than_may_collude_can_accuse_a_client(tmp_path):
    """One colluder is borne: what a single node says of client 3 proves nothing."""

    def uplink(message):
        kind, lie = message.metadata.message_type, "client 3 dealt shares that nobody can open"
        if kind.endswith("masked_input") and message.metadata.src_node_id == 2:
            return Message(Error(2, lie), reply_to=asked[2])
        return message

    asked = {}

    def downlink(message):
        asked[message.metadata.dst_node_id] = message
        return message

    _, (report,) = Fleet(tmp_path).start(network={"uplink": uplink, "downlink": downlink})
    assert (report.failure, report.faults) == ("", ())
    assert report.result.survivors == (2, 3, 4, 5)


def test_the_report_says_why_nodes_refuse(tmp_path):
    _, (report,) = Fleet(tmp_path, limits={"round_epsilon": 0.1}).start()
    assert "5 nodes said: <class 'skellam.errors.BudgetError'>:<'limit round_epsilon" in (
        report.failure
    )
