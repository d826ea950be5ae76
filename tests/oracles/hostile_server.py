"""A server that does what a server does, stage by stage, so that a test can do something else."""

from dataclasses import dataclass

from flwr.app import ConfigRecord, Message, RecordDict

from oracles.flower_fleet import Fleet, model
from skellam.engines.flower.messages import (
    config_content,
    content_digest,
    content_of,
    read_content,
    read_masked_vector,
)
from skellam.engines.flower.round_config import RoundConfig, UpdateKind, run_config_digest
from skellam.entropy import SystemEntropy, random_bytes
from skellam.secagg import Setting, server
from skellam.secagg.messages import Advertisement


@dataclass
class Server:
    """Does what a server does, stage by stage, so that a test can do something else at any."""

    fleet: Fleet
    grid: object
    config: RoundConfig

    @classmethod
    def of(cls, fleet, *, made=None, invited=5, number=1, grid=None):
        round_id = random_bytes(32, entropy=SystemEntropy())
        run_config = run_config_digest({})
        config = RoundConfig(
            made or fleet.plan, number, round_id, invited, UpdateKind.DIFFERENCE, run_config
        )
        return cls(fleet, grid or fleet.grid(), config)

    def protocol(self):
        return self.config.protocol(content_digest(train_content()))

    def train(self, contents=None):
        """Return the replies to the first message, what a node gets being ``contents[node]``."""
        record = config_content(self.config)
        given = {
            node: RecordDict({**(contents or {}).get(node, train_content()), "skellam": record})
            for node in self.grid.get_node_ids()
        }
        return self.send("train", given)

    def ask(self, stage, data):
        """Return the replies to ``data``, one for all or by node."""
        nodes = self.grid.get_node_ids()
        data = data if isinstance(data, dict) else dict.fromkeys(nodes, data)
        contents = {node: content_of(d, self.protocol()) for node, d in data.items()}
        return self.send(f"query.skellam_{stage}", contents)

    def send(self, kind, contents):
        group = str(self.config.number)
        messages = [Message(c, node, kind, group_id=group) for node, c in contents.items()]
        replies = self.grid.send_and_receive(messages, timeout=300)
        return {reply.metadata.src_node_id: reply for reply in replies}

    def data(self, replies):
        return [read_content(reply.content, self.protocol()) for reply in replies.values()]

    def enrolled(self):
        """Run honestly until it is known who takes part."""
        desk = server.CollectKeys(Setting(self.protocol(), self.fleet.roster))
        return desk.step(self.data(self.train()))

    def adverts(self, contents=None):
        """Return what the clients advertise, in the order of a participant list."""
        found = self.data(self.train(contents))
        return sorted(found, key=lambda data: Advertisement.decode(data).sender)

    def to_masks(self):
        """Run honestly until the masked vectors are in; return the next phase and its letter."""
        relay, participants = self.enrolled()
        gather, boxes = relay.step(self.data(self.ask("share_keys", participants)))
        masked = self.ask("masked_input", {number + 1: box for number, box in boxes.items()})
        found = [read_masked_vector(reply.content, self.protocol()) for reply in masked.values()]
        return gather.step(found)


def train_content(arrays=None, key="arrays", **config):
    """What FedAvg would send."""
    return RecordDict({key: arrays or model(), "config": ConfigRecord({"lr": 0.1, **config})})


def reasons(replies):
    """Return the text of every error, by node as JSON has it."""
    return {str(node): r.error.reason for node, r in replies.items() if r.has_error()}


def refusals(replies):
    assert all(reply.has_error() for reply in replies.values())
    return {node: reply.error.reason for node, reply in replies.items()}


def assert_refused(replies, text):
    for reason in refusals(replies).values():
        assert text in reason
