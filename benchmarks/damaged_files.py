"""Every file that the library reads, and what must come of it when its bytes change.

A file with a digest of its own reads as before or is refused. Text that people write, and data that
others wrote, has none: there a changed digit is another valid content, and an error must be ours.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from benchmarks.faults import Tally

sys.path.append(str(Path(__file__).parents[1] / "tests"))

import skellam as sk
from skellam.errors import SkellamError

ENTROPY = sk.SystemEntropy()


class File(NamedTuple):
    """A file, how it is read, and whether a changed byte may make another valid content."""

    name: str
    path: Path
    read: Callable[[], object]
    free: bool = False


def damaged_bytes(file: File, *, flips: int, seed: int) -> Tally:
    """Flip a bit, cut, drop a byte, zero the end or nest; it must read as before or fail."""
    tally, whole, state = Tally(), file.path.read_bytes(), file.read()
    for case, octets in _damages(whole, flips, random.Random(seed)):
        file.path.write_bytes(octets)
        try:
            outcome = "same" if file.read() == state else "another state was read"
        except SkellamError:
            outcome = "refused"
        except Exception as error:  # noqa: BLE001
            outcome = f"not an error of ours: {error!r}"
        if file.free and outcome == "another state was read":
            outcome = "other"
        tally.count(f"{file.name}, {case}", outcome)
    file.path.write_bytes(whole)
    return tally


def _damages(whole: bytes, flips: int, draw: random.Random) -> Iterator[tuple[str, bytes]]:
    bits = [*range(8 * len(whole))]
    for bit in bits if len(bits) <= flips else draw.sample(bits, flips):
        at, mask = bit // 8, 1 << bit % 8
        yield f"bit {bit}", whole[:at] + bytes([whole[at] ^ mask]) + whole[at + 1 :]
    cuts = range(len(whole))
    for at in cuts if 8 * len(whole) <= flips else draw.sample(cuts, min(len(cuts), flips // 8)):
        yield f"cut at {at}", whole[:at]
        yield f"without byte {at}", whole[:at] + whole[at + 1 :]
        yield f"zeros from {at}", whole[:at] + bytes(len(whole) - at)
    for key, opening in ((b"", b"["), (b"", b'{"a":'), (b"a=", b"[")):
        yield f"{key + opening!r} without end", key + 100_000 * opening


def _ledger(folder: Path) -> Iterator[File]:
    from skellam.accounting import Gaussian
    from skellam.accounting.ledger import Ledger

    path = folder / "ledger"
    with Ledger.create(path, epsilon=1.0, delta=1e-5) as ledger:
        for number in range(3):
            ledger.spend(Gaussian(sigma=20.0, l2=1.0), key=b"%d" % number)
    yield File("ledger", path, lambda: Ledger.verify(path))
    yield File("ledger's tail", folder / "ledger.tail", lambda: Ledger.verify(path))


def _run(folder: Path) -> Iterator[File]:
    from oracles import tiny_task
    from skellam import federated as fl
    from skellam import report
    from skellam.federated.history import Checkpoint, Folder, read_operator
    from skellam.federated.sampling import Participations

    plan = tiny_task.plan(rounds=2, cohort=6, sampling="cyclic")
    fl.train(tiny_task.task(), plan, aggregate=fl.unmasked(), entropy=ENTROPY, folder=folder)
    run = Folder(folder)

    def checkpoint() -> object:
        found = Checkpoint.load(folder / "checkpoint.npz")
        arrays = tuple(array.tobytes() for array in (found.state.model, *found.state.moments))
        return found.round, found.run, found.fingerprint, found.head, found.history, arrays

    def participations() -> object:
        found = run.participations()
        return found and (found.round, found.counts.tobytes(), found.members.tobytes())

    history = run.history.read_bytes()

    def resumed() -> object:
        run.go_on(run.checkpoint())
        return run.history.read_bytes() == history or run.history.read_bytes()

    def page() -> object:
        return report.write(folder).read_bytes()

    counts = Participations(1, np.arange(12, dtype=np.uint32), np.arange(6, dtype=np.uint32))
    run.keep_participations(counts)
    yield File("checkpoint.npz", folder / "checkpoint.npz", checkpoint)
    yield File("participations.npz", folder / "participations.npz", participations)
    yield File("run.json", folder / "run.json", lambda: report.read(folder).header)
    yield File("history.jsonl, resumed", run.history, resumed)
    yield File("history.jsonl, shown", run.history, page)
    yield File("history.jsonl.sha256", folder / "history.jsonl.sha256", page)
    yield File("operator.jsonl", folder / "operator.jsonl", lambda: read_operator(folder))


def _keys(folder: Path) -> Iterator[File]:
    from skellam.engines import key_files
    from skellam.protocol.identity import Identity

    secret, roster = folder / "1.key", folder / "roster.json"
    public = key_files.write_identity(secret, Identity.generate(1, entropy=ENTROPY))
    key_files.write_roster(roster, [public])

    def identity() -> object:
        found = key_files.read_identity(secret)
        return found.number, found.key

    yield File("identity", secret, identity)
    yield File("public key", public, lambda: key_files.read_public(public))
    yield File("roster", roster, lambda: dict(key_files.read_roster(roster).keys))


def _flower(folder: Path) -> Iterator[File]:
    from oracles.flower_fleet import node_files, plan
    from skellam.engines.flower.node import Node, RoundInProgress, StageLog
    from skellam.engines.flower.round_config import RoundConfig, UpdateKind
    from skellam.engines.flower.rounds import Progress
    from skellam.plan import AdaptiveClip

    node_files(folder, 2)
    node = folder / "1.toml"
    yield File("node's TOML", node, lambda: Node.load(node).limits, free=True)

    log = StageLog(folder / "1.stages")
    stages = [(bytes([number]) * 32, "train") for number in range(3)]
    for stage in stages:
        log.enter(*stage)
    noted = log.path.read_bytes()

    def begun() -> object:
        """Return whether no stage may begin again; a lost last line counts as another state."""
        kept = []
        for round_id, stage in stages:
            try:
                log.enter(round_id, stage)
            except sk.errors.TamperError:
                kept.append(stage)
        return kept, log.count("train")

    yield File("stage log", log.path, begun)
    log.path.write_bytes(noted)

    made = plan()
    config = RoundConfig(made, 1, bytes(32), 5, UpdateKind.DIFFERENCE, bytes(32))
    state = RoundInProgress(config, bytes(32), bytes(100), np.arange(50, dtype=np.float32))
    path = folder / "round"
    state.store(path)

    def taken() -> object:
        octets = path.read_bytes()
        try:
            found = RoundInProgress.take(path)
        finally:
            path.write_bytes(octets)
        update = None if found.update is None else found.update.tobytes()
        return found.config, found.content, found.phase, update

    yield File("round in progress", path, taken)

    begin = Progress.begin(AdaptiveClip(clip=0.5), entropy=ENTROPY)
    kept = begin.begun(made).knowing({7: 1, 8: 2})
    progress = folder / "progress"
    kept.keep(progress, made)
    yield File("server's progress", progress, lambda: begin.restored(progress, made))


def _helper(folder: Path) -> Iterator[File]:
    from engines.helper.kill_servers import AGREED, fleet_in
    from oracles.helper_fleet import INPUT
    from skellam.engines import leader as leading
    from skellam.engines.helper import HelperConfig, HelperService
    from skellam.engines.helper.service import verify
    from skellam.twoserver.client import ClientState

    fleet = fleet_in(folder).without_tls()
    with HelperService(fleet.config, entropy=ENTROPY) as service:
        leader = fleet.lead(service.handle, AGREED)
        leader.round(leader.next_round, INPUT, fleet.collect())
    config = fleet.config
    (state,) = config.state.rglob("*.run")
    client = fleet.path(10)
    toml = fleet.toml
    lead = folder / "leader.run"
    yield File("helper's TOML", toml, lambda: HelperConfig.load(toml).limits, free=True)
    yield File("helper's state", state, lambda: verify(config))
    yield File("leader's state", lead, lambda: leading._read(lead).to_bytes())  # noqa: SLF001
    yield File(
        "report of a client", client, lambda: ClientState.from_bytes(client.read_bytes()).to_bytes()
    )


def _texts(folder: Path) -> Iterator[File]:
    from oracles import tiny_task
    from skellam.cli import query

    plan = tiny_task.plan()
    path = folder / "plan.json"
    plan.save(path)
    yield File("plan.json", path, lambda: sk.Plan.load(path).to_json())
    table = folder / "rows.csv"
    table.write_text("user,value\n" + "".join(f"u{n},{n / 7}\n" for n in range(20)))
    yield File("CSV", table, lambda: query._columns(table, "user", "value"), free=True)  # noqa: SLF001
    import pyarrow as pa
    from pyarrow import parquet

    rows = folder / "rows.parquet"
    parquet.write_table(pa.table({"user": ["a", "b"] * 9, "value": [*range(18)]}), rows)
    yield File("Parquet", rows, lambda: query._columns(rows, "user", "value"), free=True)  # noqa: SLF001


def _data(folder: Path) -> Iterator[File]:
    from oracles.example_writer import example
    from oracles.tff_files import write_hdf5, write_sqlite
    from skellam.federated.data import files as readers
    from skellam.federated.data import loaders

    x, y = np.arange(24, dtype=np.float32).reshape(6, 4), np.arange(6)

    def held(clients) -> object:
        return [
            (name, clients[name].inputs.tobytes(), clients[name].targets.tobytes())
            for name in clients
        ]

    parts = folder / "clients"
    parts.mkdir()
    np.savez_compressed(parts / "a.npz", inputs=x, targets=y)
    yield File("npz", parts / "a.npz", lambda: held(loaders.folder(parts)), free=True)
    leaf = folder / "leaf.json"
    user = {"x": x.tolist(), "y": y.tolist()}
    leaf.write_text(json.dumps({"users": ["a"], "num_samples": [6], "user_data": {"a": user}}))
    yield File("LEAF's JSON", leaf, lambda: held(readers.leaf(leaf)), free=True)
    hdf5 = folder / "tff.h5"
    write_hdf5(hdf5, {"a": {"x": x, "y": y}})
    yield File("HDF5", hdf5, lambda: held(readers.tff(hdf5, inputs="x", target="y")), free=True)
    sqlite = folder / "tff.sqlite"
    rows = [example({"x": row, "y": [n]}) for n, row in enumerate(x.tolist())]
    write_sqlite(sqlite, {"train": {"a": rows}})
    yield File(
        "SQLite", sqlite, lambda: held(readers.tff(sqlite, inputs="x", target="y")), free=True
    )


def _reproduction(folder: Path) -> Iterator[File]:
    from skellam.tasks.reproduction import RESULTS, SETTINGS, Cell, Mechanism, Reproduction, Result

    results, settings = folder / RESULTS, folder / SETTINGS
    made = Reproduction.of("digits", None, folder)
    made.require_same_settings()
    for seed in (1, 2):
        cell = Cell(next(iter(Mechanism)), 10.0, 12, 3, 0.1, 0.5, seed)
        made.record(Result(cell, accuracy=0.5, curve=((1, 0.25), (2, 0.5))))
    yield File("results of reproduce", results, made.results)
    yield File("settings of reproduce", settings, made.require_same_settings)


KINDS: dict[str, Callable[[Path], Iterator[File]]] = {
    "ledger": _ledger,
    "run": _run,
    "keys": _keys,
    "flower": _flower,
    "helper": _helper,
    "texts": _texts,
    "data": _data,
    "reproduction": _reproduction,
}
"""What writes the files of each kind into a folder."""
