"""Simulated fleets: nodes of Flower's simulation, and a grid in this process for fast tests.

All are on one machine, with keys that this machine makes up. A server cannot put a real node into
this mode: it is taken only inside the simulation's own worker processes, and only if the app allows
it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

from flwr.app import Context, Error, Message, RecordDict, UserConfig
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from skellam.engines import durable
from skellam.engines.flower.node import NODE_CONFIG_KEY, Limits, Node
from skellam.entropy import SystemEntropy, derive_key, random_bytes
from skellam.errors import DomainError
from skellam.plan import Plan
from skellam.secagg import Identity, Roster

Network: TypeAlias = Callable[[Message], Message | None]
"""What the network makes of a message: itself, another, or ``None`` where it is lost."""
_SERVER = 1
_RAISED = 2
_START = 30.0
"""Seconds within which all nodes of a simulation are there."""


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


def simulated_nodes(grid: Grid, plan: Plan) -> int:
    """Return how many nodes a simulation has, once they are all there."""
    deadline = time.monotonic() + _START
    while (
        found := len(list(grid.get_node_ids()))
    ) < plan.population_size and time.monotonic() < deadline:
        time.sleep(0.2)
    return max(found, plan.population_size)


def simulated_roster(run_id: int, nodes: int) -> Roster:
    """Return the roster of a simulation with ``nodes`` nodes, numbered from 0."""
    return Roster({n: _identity(run_id, n).public for n in range(nodes)})


def simulation_folder(run_id: int) -> Path:
    """Return where a simulation keeps its files; it is made if need be."""
    folder = _folder() / str(run_id)
    durable.make_folder(folder, mode=durable.SECRET_FOLDER)
    return folder


def _identity(run_id: int, number: int) -> Identity:
    return Identity(number, derive_key(_secret(), f"simulation/{run_id}/{number}".encode()))


def _secret() -> bytes:
    folder = _folder()
    path = folder / "secret"
    if not path.exists():
        new = folder / f"secret.{os.getpid()}"
        durable.replace(new, random_bytes(32, entropy=SystemEntropy()), mode=durable.SECRET)
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
    durable.make_folder(folder, mode=durable.SECRET_FOLDER)
    return folder


def _in_simulation() -> bool:
    """Return whether this is a worker of the simulation engine, a fact of this machine."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


# A grid in this process.


def _faithful(message: Message) -> Message:
    return message


class InProcessGrid(Grid):
    """Runs ``app`` for each of ``nodes``, given by their node configurations, as messages come.

    Content and state are copied where they would cross a process. A handler that raises gives the
    error reply that a SuperNode would send, with what it left in the state. ``downlink`` and
    ``uplink`` see what goes to the nodes and what comes from them.
    """

    def __init__(
        self,
        app: ClientApp,
        nodes: Sequence[Mapping[str, Any]],
        *,
        run_id: int = 1,
        run_config: Mapping[str, Any] | None = None,
        downlink: Network = _faithful,
        uplink: Network = _faithful,
    ) -> None:
        self._app = app
        self._downlink, self._uplink = downlink, uplink
        self._replies: dict[str, Message] = {}
        self._ids = (f"message-{run_id}-{n}" for n in count())
        self.contexts = {
            number: Context(
                run_id, number, UserConfig(config), RecordDict(), UserConfig(run_config or {})
            )
            for number, config in enumerate(nodes, start=2)
        }
        # Messages can be made only by a task; in this process it is this one.
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, run_id, _SERVER

    def get_node_ids(self) -> list[int]:
        """Return the numbers of the nodes."""
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Handle each message at once and return their numbers."""
        return [self._handle(message) for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return, once, the replies that came."""
        return [self._replies.pop(i) for i in message_ids if i in self._replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Handle all messages and return the replies; nobody is ever late."""
        del timeout
        return self.pull_messages(self.push_messages(messages))

    def _handle(self, message: Message) -> str:
        message_id = next(self._ids)
        message.metadata.__dict__["_message_id"] = message_id
        arrived = self._downlink(deepcopy(message))
        reply = None if arrived is None else self._uplink(self._call(arrived))
        if reply is not None:
            reply.metadata.__dict__["_message_id"] = f"reply-{message_id}"
            self._replies[message_id] = deepcopy(reply)
        return message_id

    def _call(self, message: Message) -> Message:
        context = self.contexts[message.metadata.dst_node_id]
        try:
            return self._app(message, context)
        except Exception as error:  # noqa: BLE001  (as a SuperNode does)
            return Message(Error(_RAISED, f"{type(error)}:<'{error}'>"), reply_to=message)
        finally:
            context.state = deepcopy(context.state)

    # A run that nobody asked for.

    def set_run(self, run: Any) -> None:  # noqa: ANN401  (Flower's type is private)
        """Keep ``run``."""
        self._run = run

    @property
    def run(self) -> Any:  # noqa: ANN401
        """The run that was set."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a message of this run."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)
