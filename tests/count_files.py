"""Files of ``src/skellam`` that run for one call, and small modules with a single importer.

``python tests/count_files.py`` prints the counts; ``--files`` names the files. A file counts if one
of its functions runs during the call. Importing does not count, and neither do generated methods.
"""

import ast
import inspect
import os
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import numpy as np

import skellam as sk

HERE = Path(__file__).parent
SOURCES = Path(sk.__file__).parent


class Trace:
    """The files under ``SOURCES`` whose functions ran while the trace was active."""

    def __init__(self, *, without=()):
        self.files = set()
        self._without = {function.__code__ for function in without}

    @contextmanager
    def active(self):
        self.start()
        try:
            yield self
        finally:
            self.stop()

    def start(self):
        threading.setprofile(self._called)
        sys.setprofile(self._called)

    @staticmethod
    def stop():
        sys.setprofile(None)
        threading.setprofile(None)

    def _called(self, frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_name != "<module>" and code not in self._without:
            self.files.add(code.co_filename)

    def names(self):
        inside = (Path(path) for path in self.files if path.startswith(str(SOURCES) + os.sep))
        return sorted(str(path.relative_to(SOURCES)) for path in inside)


def plan():
    """Return a plan without numbers, as a user starts from."""
    return sk.Plan(dimension=1000, clip=1.0, bits=16, cohort=50, population=1000, rounds=100)


def calibrated():
    made = plan()
    with Trace().active() as trace:
        made.calibrated(epsilon=4, delta=1e-5)
    return trace


def encode():
    codec = plan().calibrated(epsilon=4, delta=1e-5).codec(public_seed=bytes(32))
    vector, entropy = np.full(1000, 0.01, dtype=np.float32), sk.SystemEntropy()
    with Trace().active() as trace:
        codec.encode(vector, entropy=entropy)
    return trace


def epsilon():
    from skellam import accounting

    noise = accounting.Skellam(variance=640_000.0, l2=1000.0, dimension=2**20)
    release = accounting.Sampled(noise, rate=100 / 3400)
    with Trace().active() as trace:
        accounting.epsilon(release, rounds=1500, delta=1 / 3400)
    return trace


def training_round():
    """Return the trace of a training run of one round, without the protocol."""
    from oracles import tiny_task
    from skellam import federated as fl

    task = tiny_task.task()
    cohort = len(task.clients)
    made = sk.Plan(dimension=task.dimension, clip=1.0, cohort=cohort, rounds=1, sampling="all")
    made = made.with_noise(1.0, delta=1e-3)
    train, aggregate = fl.train, fl.unmasked()  # looked up by the package's __getattr__
    with Trace().active() as trace:
        train(task, made, aggregate=aggregate, entropy=sk.SystemEntropy())
    return trace


def flower_client_round():
    """Return the trace of one client's part in a round; the server's part does not count."""
    from oracles.flower_fleet import Fleet
    from skellam.engines.flower import InProcessGrid

    client = 2
    trace = Trace(without=filter(inspect.isfunction, vars(InProcessGrid).values()))

    def downlink(message):
        if message.metadata.dst_node_id == client:
            trace.start()
        return message

    def uplink(message):
        trace.stop()
        return message

    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(Path(folder))
        _, reports = fleet.start(network={"downlink": downlink, "uplink": uplink})
    if not reports:
        raise AssertionError("the round that was to be traced did not take place")
    return trace


CALLS = {
    "plan.calibrated": calibrated,
    "codec.encode": encode,
    "accounting.epsilon": epsilon,
    "fl.train round": training_round,
    "Flower client round": flower_client_round,
}


def sources():
    """Return the Python files under ``SOURCES`` by module name."""
    found = {}
    for path in sorted(SOURCES.rglob("*.py")):
        parts = ("skellam", *path.relative_to(SOURCES).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def importers():
    """Return for each module the modules that import it or a name out of it."""
    found, modules = defaultdict(set), sources()
    for importer, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Import(names=names):
                    targets = [alias.name for alias in names]
                case ast.ImportFrom(module=str(module), level=0, names=names):
                    inner = [f"{module}.{alias.name}" for alias in names]
                    targets = [name if name in modules else module for name in inner]
                case _:
                    continue
            for target in targets:
                if target in modules and target != importer:
                    found[target].add(importer)
    return found


def lone_modules(max_lines):
    """Return modules (not packages) of at most ``max_lines`` lines that one module imports."""
    found = importers()
    return sorted(
        name
        for name, path in sources().items()
        if path.name != "__init__.py"
        and len(path.read_text().splitlines()) <= max_lines
        and len(found[name]) == 1
    )


def count(name):
    """Return the files that run for one call, made in a process of its own: no cache is warm."""
    outcome = subprocess.run(
        [sys.executable, __file__, name],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (SOURCES.parent, HERE)))},
        capture_output=True,
        text=True,
        check=True,
    )
    return outcome.stdout.splitlines()[-1].split()


def main(words):
    if words and words[0] in CALLS:
        for module in sources():
            import_module(module)  # so that no import, which runs class bodies, falls into the call
        print(*CALLS[words[0]]().names())
        return
    for name in CALLS:
        files = count(name)
        print(f"{len(files):4} files run for {name}")
        if "--files" in words:
            print("       " + "\n       ".join(files))
    print(f"{len(sources()):4} files in {SOURCES.name}")
    lone = lone_modules(60)
    print(f"{len(lone):4} modules of at most 60 lines with a single importer: {', '.join(lone)}")


if __name__ == "__main__":
    main(sys.argv[1:])
