"""Testing: a grid in this process that calls a client app directly, for fast tests of any app."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import count
from typing import Any, TypeAlias

from flwr.app import Context, Error, Message, RecordDict, UserConfig
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

Network: TypeAlias = Callable[[Message], Message | None]
"""What the network makes of a message: itself, another, or ``None`` where it is lost."""
_SERVER = 1
_RAISED = 2


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
