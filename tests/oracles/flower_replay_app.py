"""Turns a copy of the example into an app whose noise replays, whose nodes fail as a script says,
and whose server writes down sums; and into an app whose server attacks its nodes.

All of it lives in the app's code, which a test puts there: no message and no configuration can.
"""

import json

CLIENT = """
import json
import time
from dataclasses import replace
from pathlib import Path

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from digits_app import client_app
from skellam import SeededEntropy
from skellam.engines.flower import Limits, Node, protect
from skellam.engines.flower.messages import content_digest, payload, read_config
from skellam.secagg.messages import Advertisement

SCRIPT = json.loads(%(script)r)
MARKS = Path(%(marks)r)


def spoilt(record):
    head, end, body = ConfigRecord.deflate(record).partition(b"\\0")
    return head + end + b"\\xff" * len(body)


# Flower finds the class of a record by its name, and then cannot read its bytes.
Unreadable = type("ConfigRecord", (ConfigRecord,), {"deflate": spoilt})


class Scripted(ClientApp):
    def __call__(self, message, context):
        action = planned(message, context)
        digest = None
        if action == "low order":
            config = read_config(message.content)
            digest = config.protocol(content_digest(payload(message.content))).digest
        reply = super().__call__(message, context)
        if action == "killed":
            mark(message, context)
            time.sleep(600)
        if action == "low order":
            identity = Node.load(context.node_config["skellam"]).identity
            advert = Advertisement.decode(reply.content["skellam"]["data"])
            lie = replace(advert, mask_key=bytes(32))
            reply.content["skellam"]["data"] = lie.signed(identity, digest)
        if action == "unreadable":
            reply.content["skellam"] = Unreadable(dict(reply.content["skellam"]))
        return reply


def name(message, context, stage=None, node=None):
    stage = stage or message.metadata.message_type.removeprefix("query.skellam_")
    node = node or int(context.node_config["partition-id"]) + 1
    return f"{message.metadata.group_id}-{node}-{stage}"


def planned(message, context):
    return SCRIPT.get(name(message, context))


def mark(message, context):
    (MARKS / name(message, context)).touch()


def train(message, context):
    match planned(message, context):
        case "killed in training":
            mark(message, context)
            time.sleep(600)
        case "exits":
            raise SystemExit(3)
        case "late":
            mark(message, context)
            time.sleep(20)  # in which the test stops the node
    return client_app.train(message, context)


app = Scripted()
protect(
    app,
    entropy=lambda purpose: SeededEntropy(bytes(32), purpose),
    simulated=Limits.for_simulation(),
)(train)


@app.query("spy")
def spy(message, context):
    seen = ConfigRecord({"state": repr(dict(context.state))})
    return Message(RecordDict({"seen": seen}), reply_to=message)
"""
SERVER = """
import json
import time
from pathlib import Path

from flwr.serverapp import ServerApp
from digits_app import server_app
import numpy as np

app = ServerApp()
ends, evaluate = [], server_app.evaluate
KILLED = [name for name, action in json.loads(%(script)r).items() if "killed" in action]


def timed(number, arrays):
    # Whoever was killed is back before the next round begins.
    for name in KILLED:
        while name.startswith(f"{number}-") and not Path(%(marks)r, f"{name}-revived").exists():
            time.sleep(0.5)
    ends.append(time.monotonic())
    return evaluate(number, arrays)


server_app.evaluate = timed


@app.main()
def main(grid, context):
    result, reports = server_app.run(grid, context)
    sums = {"seconds": np.diff(ends)}
    for report in reports:
        sums[f"failure-{report.number}"] = report.failure
        sums[f"faults-{report.number}"] = [f"{f.stage}: {f.reason}" for f in report.faults]
        sums[f"content-{report.number}"] = list(report.content)
        if report.result is not None:
            sums[f"total-{report.number}"] = report.result.total.values
            sums[f"participants-{report.number}"] = report.result.participants
            sums[f"survivors-{report.number}"] = report.result.survivors
    for name, array in result.arrays.items():
        sums[f"final-{name}"] = array.numpy()
    np.savez(%(out)r, **sums)
"""
ATTACK = """
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp
from digits_app import task
from digits_app.server_app import plan_of, wait_for_clients
from oracles.hostile_server import Server, reasons
from skellam.engines.flower import read_roster
from skellam.engines.flower.messages import config_content
from skellam.engines.flower.round_config import run_config_digest
from skellam.secagg.messages import ParticipantList

app = ServerApp()


def content(**config):
    arrays = task.to_record(task.initial_model())
    return RecordDict({"arrays": arrays, "config": ConfigRecord(config)})


@app.main()
def main(grid, context):
    config = context.run_config
    wait_for_clients(grid, config["num-clients"])
    made = plan_of(config, config["num-clients"]).with_noise(20.0, delta=1e-5)
    fleet = SimpleNamespace(plan=made, roster=read_roster(config["roster"]))
    nodes = list(grid.get_node_ids())
    found = {}

    def server(**changes):
        made_up = Server.of(fleet, grid=grid, number=100, **changes)
        return replace(made_up, config=replace(
            made_up.config, run_config=run_config_digest(config)
        ))

    # A rate of zero for all but one.
    one = server()
    contents = {node: content(lr=0.1 if node == nodes[0] else 0.0) for node in nodes}
    adverts = one.adverts(contents)
    listed = ParticipantList.of(tuple(adverts)).encode()
    found["lr"] = reasons(one.ask("share_keys", listed))

    # Plans that protect nobody, one a node.
    bare = replace(plan_of(config, 5), dropout=0.4, colluding=0.0).with_noise(20.0, delta=1e-5)
    loud = plan_of(config, 5).with_noise(0.2, delta=1e-5)
    fragile = replace(plan_of(config, 9), dropout=0.4).with_noise(20.0, delta=1e-5)
    offers = [server(made=bare), server(made=loud), server(made=fragile), server(invited=2)]
    given = {
        node: RecordDict({**content(lr=0.1), "skellam": config_content(offer.config)})
        for node, offer in zip(nodes, offers)
    }
    found["plans"] = reasons(one.send("train", given))

    # Trainings for nothing; and what lies in the state that other apps can read meanwhile.
    same = dict.fromkeys(nodes, content(lr=0.1))
    found["trained"] = sum(not reply.has_error() for reply in server().train(same).values())
    spied = one.send("query.spy", dict.fromkeys(nodes, RecordDict()))
    found["state"] = [reply.content["seen"]["state"] for reply in spied.values()]
    found["free"] = reasons(server().train(same))
    Path(%(out)r).write_text(json.dumps(found))
"""


def scripted(app, out, script=None):
    """Rewrite the app in the folder ``app``; its server leaves ``out``, an npz file.

    ``script`` says what goes wrong on which node, by ``round-node-stage``; nodes leave marks, and
    whoever revives a node leaves another.
    """
    marks = app.parent / "marks"
    marks.mkdir(exist_ok=True)
    more = {"script": json.dumps(script or {}), "marks": str(marks)}
    (app / "digits_app" / "replay_client.py").write_text(CLIENT % more)
    _server(app, SERVER % {"out": str(out), **more})
    _change(app, "digits_app.client_app:app", "digits_app.replay_client:app")


def make_attack(app, out):
    """Make the server of a scripted app an attacker, which leaves ``out``, a JSON file."""
    _server(app, ATTACK % {"out": str(out)})


def _server(app, text):
    (app / "digits_app" / "replay_server.py").write_text(text)
    _change(app, "digits_app.server_app:app", "digits_app.replay_server:app")


def configure(app, **config):
    """Change defaults of the app's run configuration."""
    project = app / "pyproject.toml"
    lines = project.read_text().splitlines()
    for name, value in config.items():
        key = name.replace("_", "-")
        lines = [f"{key} = {value}" if line.startswith(f"{key} = ") else line for line in lines]
    project.write_text("\n".join(lines) + "\n")


def _change(app, old, new):
    project = app / "pyproject.toml"
    project.write_text(project.read_text().replace(old, new))
