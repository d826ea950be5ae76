"""The guide's fleet on loopback: shell blocks as processes that a test starts, kills and ends."""

import os
import signal
import subprocess
import time
from contextlib import contextmanager

from oracles.flower_guide import ROOT, blocks, environment, free_ports

NODES = 5


class Deployment:
    """A folder in which the guide's blocks run; every process that it starts, it ends by its id."""

    def __init__(self, folder):
        self.folder, self.blocks, self.running = folder, blocks(), {}
        server, helper, *self.ports = free_ports(2 + NODES)
        self.base = {
            "SERVER": f"127.0.0.1:{server}",
            "HELPER": f"127.0.0.1:{helper}",
            "NODES": str(NODES),
        }

    def env(self, node=None):
        own = {} if node is None else {"NODE": str(node), "PORT": str(self.ports[node - 1])}
        # The attacking server is one of the tests' own.
        paths = [str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
        return environment(
            self.folder / "flwr", PYTHONPATH=os.pathsep.join(paths), **self.base, **own
        )

    def run(self, title, node=None, timeout=300):
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

    def start(self, title, node=None, app="my-app"):
        """Start a block's one command in a session of its own, its output in a log."""
        with (self.folder / f"{title.split(': ')[1]}-{node or 0}.log").open("a") as log:
            self.running[(title, node)] = subprocess.Popen(
                ["bash", "-ec", "exec " + self.blocks[title].replace("my-app", app)],
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

    def revive(self, node):
        """Start a node again; until the SuperLink knows that it died, it is turned away."""
        log = self.folder / f"SuperNode-{node}.log"
        before = log.read_text().count("SuperNode ID")
        time.sleep(35)
        self.start("node: SuperNode", node)
        self.await_node(node, before)

    def await_node(self, node, before=0):
        """Wait until a node is connected, once more than ``before``; start it again if it ends."""
        log = self.folder / f"SuperNode-{node}.log"
        deadline = time.monotonic() + 600
        while log.read_text().count("SuperNode ID") == before:
            assert time.monotonic() < deadline, f"SuperNode {node} does not connect"
            if self.running["node: SuperNode", node].poll() is not None:
                self.start("node: SuperNode", node)
            time.sleep(0.5)

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
    wait_until(lambda: "running" in log.read_text().lower(), seconds=300, what="the SuperLink")
    fleet.run("server: roster", timeout=600)
    for node in range(1, NODES + 1):
        fleet.run("node: limits", node)
        fleet.start("node: SuperNode", node)
    for node in range(1, NODES + 1):
        fleet.await_node(node)
