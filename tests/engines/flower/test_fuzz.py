"""Mutated messages at the wire of the fleet: the run goes on, the sum of the others is right, and
the sender is named or silent."""

import random
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from oracles.flower_fleet import Fleet, plan
from oracles.mutations import BYTES, cut
from skellam.engines.flower import rounds
from skellam.engines.flower.messages import Answers
from skellam.errors import SkellamError
from skellam.secagg import Setting

STAGES = ("advertise_keys", "share_keys", "masked_input", "consistency_check", "unmask")
HOSTILE = 4
WRONG = [0, -1, 1 << 62, 1.5, float("nan"), True, "", "x" * 300, b"", bytes(32), [1, 2], [b"a"], []]
ARRAYS = [
    Array("uint8", (3,), "skellam.raw", b""),
    Array("float32", (10**12,), "numpy.ndarray", b"\x93NUMPY"),
    Array("object", (), "", bytes(400)),
]


def mutated(content, others, rng):
    """Return ``content`` with one thing wrong in it."""
    content = deepcopy(content)
    vector = content.get("skellam.vector")
    if vector is not None and rng.random() < 0.5:
        array = vector["packed"]
        if rng.random() < 0.7:
            array.data = rng.choice(BYTES)(array.data, rng)
        else:
            vector["packed"] = rng.choice(ARRAYS)
        return content
    record = content["skellam"]
    match rng.randrange(12):
        case 0:
            record[rng.choice(["data", "round"])] = rng.choice(WRONG)
        case 1:
            del record[rng.choice(["data", "round"])]
        case 2:
            content["skellam"] = rng.choice(
                [MetricRecord({"data": 1}), ArrayRecord(), ConfigRecord()]
            )
        case 3:
            return RecordDict()
        case 4:
            return deepcopy(rng.choice(others))
        case 5:
            record["data"] = rng.randbytes(rng.randrange(400))
        case _:
            record["data"] = rng.choice(BYTES)(record["data"], rng)
    return content


@dataclass
class Stage:
    """A stage of an honest round, which can be played again."""

    round_: rounds.SecureRound
    phase: type
    kept: bytes
    answers: dict
    expected: object

    def play(self, stage, answers):
        """Return the round and what the step gave, with these answers."""
        round_ = replace(self.round_, faults=[], refusals={}, _numbers=dict(self.round_._numbers))
        messages = round_._messages(stage, Answers(answers))
        phase = self.phase.from_bytes(self.kept, Setting(round_.protocol, round_.roster))
        return round_, round_._step(stage, phase, messages)


@cache
def recorded(folder):
    """Return the stages of an honest round."""
    found = {}
    monkeypatch = pytest.MonkeyPatch()
    exchange, step = rounds.SecureRound._exchange, rounds.SecureRound._step
    heard = {}

    def remember(self, stage, *rest):
        heard[stage] = exchange(self, stage, *rest)
        return heard[stage]

    def snapshot(self, stage, phase, messages):
        kept = phase.to_bytes()
        copy = replace(self, _numbers=dict(self._numbers))
        result = step(self, stage, phase, messages)
        found[stage] = Stage(copy, type(phase), kept, deepcopy(heard[stage].contents), result)
        return result

    monkeypatch.setattr(rounds.SecureRound, "_exchange", remember)
    monkeypatch.setattr(rounds.SecureRound, "_step", snapshot)
    _, (report,) = Fleet(folder, plan(bits=13)).start()
    monkeypatch.undo()
    assert report.failure == ""
    return found


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("fleet"))


def signers(stage, following):
    """Return whose messages are in what follows, as far as it says."""
    match stage:
        case "advertise_keys":
            return rounds.ParticipantList.decode(following[1]).senders.tolist()
        case "share_keys":
            return sorted(following[1])
        case "masked_input":
            return following[0].summed.survivors.tolist()
        case "consistency_check":
            return rounds.Agreements.decode(following[1]).senders.tolist()
        case "unmask":
            return None


def assert_the_others_are_served(stage, recording, rng):
    answers = dict(recording.answers)
    others = [content for node, content in answers.items() if node != HOSTILE]
    # Nobody sees another's advertisement before the stage is over.
    copied = [answers[HOSTILE]] if stage == "advertise_keys" else others
    answers[HOSTILE] = mutated(answers[HOSTILE], copied, rng)
    round_, following = recording.play(stage, answers)
    named = {fault.node for fault in round_.faults}
    assert named <= {HOSTILE}
    numbers = signers(stage, following)
    if stage == "unmask":
        assert np.array_equal(following.total.values, recording.expected.total.values)
        assert following.survivors == recording.expected.survivors
    else:
        assert set(numbers) >= {1, 2, 4, 5}
        assert (3 in numbers) != (HOSTILE in named)
    if stage == "masked_input" and 3 not in numbers:
        total = sum(vector(round_, content) for content in others) % (1 << 13)
        assert np.array_equal(np.frombuffer(following[0].summed.total, dtype=np.uint16), total)


def vector(round_, content):
    packed = content["skellam.vector"]["packed"].data
    return unpacked(packed, round_)


def unpacked(packed, round_):
    """Return the residues, by integers alone."""
    number = int.from_bytes(packed, "little")
    mask = (1 << 13) - 1
    return np.array([(number >> 13 * i) & mask for i in range(round_.protocol.length)])


def assert_all_are_served(stages, count, seed):
    rng = random.Random(seed)
    for at in range(count):
        stage = STAGES[at % len(STAGES)]
        assert_the_others_are_served(stage, stages[stage], rng)


def test_no_mutated_answer_stops_the_server(stages):
    assert_all_are_served(stages, 1000, seed=1)


@pytest.mark.slow
def test_ten_thousand_mutated_answers_do_not_stop_the_server(stages):
    assert_all_are_served(stages, 10_000, seed=2)


# What a node is sent.


@dataclass
class Asked:
    """A message that a node got in an honest round, and the files that it had then."""

    message: object
    files: dict
    folder: object

    def play(self, app, context, content):
        """Handle ``content`` as if it had come instead; return what the handler gave or raised."""
        for path in self.folder.glob("3.spend*"):
            path.unlink()
        for path, octets in self.files.items():
            path.write_bytes(octets)
        message = deepcopy(self.message)
        message.content = content
        try:
            return app(message, deepcopy(context))
        except Exception as error:  # noqa: BLE001
            return error


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """One node: its app and context, and all that it was asked in an honest round."""
    fleet, asked = Fleet(tmp_path_factory.mktemp("node"), plan(bits=13)), {}
    folder = fleet.folder / "nodes"

    def downlink(message):
        if message.metadata.dst_node_id == HOSTILE:
            files = {path: path.read_bytes() for path in folder.glob("3.spend*")}
            asked[message.metadata.message_type] = Asked(deepcopy(message), files, folder)
        return message

    grid = fleet.grid(downlink=downlink)
    _, (report,) = fleet.start(grid=grid)
    assert report.failure == ""
    assert len(asked) == len(STAGES)
    return fleet.app, grid.contexts[HOSTILE], asked


def mutated_round(content, rng):
    """Return the content of a train message with one thing wrong in it."""
    content = deepcopy(content)
    match rng.randrange(4):
        case 0:
            name = rng.choice(["weight", "bias"])
            array = content["arrays"][name]
            content["arrays"][name] = rng.choice(
                [*ARRAYS, Array("float32", array.shape, array.stype, cut(array.data, rng))]
            )
        case 1:
            content["skellam"] = rng.choice(
                [MetricRecord({"config": 1}), ConfigRecord(), ConfigRecord({"config": b"{}"})]
            )
        case 2:
            del content[rng.choice(list(content))]
        case _:
            changed = rng.choice(BYTES)(content["skellam"]["config"].encode(), rng)
            content["skellam"]["config"] = changed.decode(errors="replace")
    return content


def assert_refused_in_our_errors(node, count, seed):
    """A node answers as it would have, or refuses in an error of ours and keeps nothing."""
    rng = random.Random(seed)
    app, context, asked = node
    refused = 0
    for at in range(count):
        kind, this = list(asked.items())[at % len(asked)]
        others = [other.message.content for other in asked.values() if other is not this]
        content = this.message.content
        wrong = mutated_round(content, rng) if kind == "train" else mutated(content, others, rng)
        reply = this.play(app, context, wrong)
        if isinstance(reply, Exception):
            assert type(reply).__module__ == "skellam.errors", repr(reply)
            assert not (this.folder / "3.spend.state").exists()
            refused += 1
        else:
            assert isinstance(reply.content["skellam"]["data"], bytes)
    assert refused > 0.8 * count


def test_a_node_refuses_mutated_messages_in_errors_of_ours(node):
    assert_refused_in_our_errors(node, 150, seed=4)


@pytest.mark.slow
def test_a_node_refuses_two_thousand_mutated_messages_in_errors_of_ours(node):
    assert_refused_in_our_errors(node, 2000, seed=5)


def disturbed(rng, direction):
    """A network on which one message of one node, in one direction, is changed."""
    kind = rng.choice(["train", *(f"query.skellam_{stage}" for stage in STAGES[1:])])

    def change(message):
        metadata = message.metadata
        node = metadata.src_node_id if direction == "uplink" else metadata.dst_node_id
        if node == HOSTILE and metadata.message_type == kind and message.has_content():
            if kind == "train" and direction == "downlink":
                record = message.content["skellam"]
                record["config"] = rng.choice(BYTES)(record["config"].encode(), rng).decode(
                    errors="replace"
                )
            else:
                message.content = mutated(message.content, [message.content], rng)
        return message

    return {direction: change}


@pytest.mark.parametrize("direction", ["uplink", "downlink"])
def test_whole_runs_go_on_whatever_one_node_sends_or_gets(tmp_path, direction):
    """Nobody but the node whose message was changed is blamed or lost."""
    rng = random.Random(3)
    limits = {"max_participations": 100, "total_epsilon": 1000.0}
    fleet = Fleet(tmp_path, limits=limits, budget=1e4)
    for _ in range(12):
        _, (report,) = fleet.start(network=disturbed(rng, direction))
        assert report.failure == ""
        assert {fault.node for fault in report.faults} <= {HOSTILE}
        assert set(report.result.survivors) >= {1, 2, 4, 5}


def fate(rng):
    """Return at which message a node goes wrong, and how."""
    kind = rng.choice(["train", *(f"query.skellam_{stage}" for stage in STAGES[1:])])
    return kind, rng.choice(["sends garbage", "gets garbage", "is silent", "repeats another"])


def hostile_network(fates, rng):
    """A network on which every node of ``fates`` goes wrong at one message."""
    last = {}

    def spoilt(content):
        record = content["skellam"]
        name = "config" if "config" in record else "data"
        octets = record[name].encode() if name == "config" else record[name]
        wrong = rng.choice(BYTES)(octets, rng)
        record[name] = wrong.decode(errors="replace") if name == "config" else wrong

    def uplink(message):
        kind = message.metadata.message_type
        planned, how = fates.get(message.metadata.src_node_id, (None, None))
        if message.has_error():
            return message
        if planned == kind and how == "is silent":
            return None
        if planned == kind and how == "repeats another" and kind in last:
            message.content = deepcopy(last[kind])
        if planned == kind and how == "sends garbage":
            spoilt(message.content)
        last[kind] = deepcopy(message.content)
        return message

    def downlink(message):
        if fates.get(message.metadata.dst_node_id) == (
            message.metadata.message_type,
            "gets garbage",
        ):
            spoilt(message.content)
        return message

    return {"uplink": uplink, "downlink": downlink}


@pytest.mark.slow
def test_runs_go_on_with_as_many_hostile_nodes_as_a_round_bears(tmp_path):
    rng = random.Random(7)
    limits = {"max_participations": 100, "total_epsilon": 1000.0}
    made = plan(cohort=12, dropout=0.25, colluding=0.1)
    fleet = Fleet(tmp_path, made, count=12, limits=limits, budget=1e4)
    for _ in range(20):
        fates = {node: fate(rng) for node in rng.sample(range(2, 14), 3)}
        _, (report,) = fleet.start(network=hostile_network(fates, rng))
        assert report.failure == ""
        assert {fault.node for fault in report.faults} <= set(fates)
        assert set(report.result.survivors) >= {n - 1 for n in range(2, 14)} - {
            n - 1 for n in fates
        }


def test_what_is_raised_about_a_message_is_ours(stages):
    recording = stages["masked_input"]
    with pytest.raises(SkellamError):
        recording.play("masked_input", {})
