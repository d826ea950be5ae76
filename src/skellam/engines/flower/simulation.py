"""Simulated nodes: all on one machine, with keys that this machine makes up.

A server cannot put a real node into this mode: it is taken only inside the simulation's own worker
processes, and only if the app allows it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from flwr.app import Context

from skellam.engines.flower.node import NODE_CONFIG_KEY, Limits, Node
from skellam.entropy import SystemEntropy, derive_key, random_bytes
from skellam.errors import DomainError
from skellam.secagg import Identity, Roster


def node_of(context: Context, simulated: Limits | None) -> Node:
    """Return the node that ``context`` belongs to, from its own configuration.

    With ``simulated`` a node of the simulation has those limits; any other must name its file.
    """
    named = context.node_config.get(NODE_CONFIG_KEY)
    if named is not None:
        return Node.load(str(named))
    if not _in_simulation():
        raise DomainError(
            f'this SuperNode\'s --node-config must name its file: {NODE_CONFIG_KEY}="node.toml"'
        )
    if simulated is None:
        raise DomainError(
            "this app runs under Flower's simulation, for which it names no limits: "
            "protect(..., simulated=Limits.for_simulation()), or limits of your own"
        )
    number = int(context.node_config["partition-id"])
    roster = simulated_roster(context.run_id, int(context.node_config["num-partitions"]))
    spend = simulation_folder(context.run_id) / f"{number}.spend"
    return Node(_identity(context.run_id, number), roster, simulated, spend)


def simulated_roster(run_id: int, nodes: int) -> Roster:
    """Return the roster of a simulation with ``nodes`` nodes, numbered from 0."""
    return Roster({n: _identity(run_id, n).public for n in range(nodes)})


def simulation_folder(run_id: int) -> Path:
    """Return where a simulation keeps its files; it is made if need be."""
    folder = _folder() / str(run_id)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _identity(run_id: int, number: int) -> Identity:
    return Identity(number, derive_key(_secret(), f"simulation/{run_id}/{number}".encode()))


def _secret() -> bytes:
    folder = _folder()
    path = folder / "secret"
    if not path.exists():
        new = folder / f"secret.{os.getpid()}"
        new.write_bytes(random_bytes(32, entropy=SystemEntropy()))
        try:
            # The first link wins; whoever comes second reads the first one's secret.
            path.hardlink_to(new)
        except FileExistsError:
            pass
        finally:
            new.unlink()
    return path.read_bytes()


def _folder() -> Path:
    home = os.environ.get("FLWR_HOME")
    folder = (Path(home) if home else Path.home() / ".flwr") / "skellam-simulation"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _in_simulation() -> bool:
    """Return whether this is a worker of the simulation engine, a fact of this machine."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())
