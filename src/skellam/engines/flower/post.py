"""Sending to nodes and waiting: whoever fails, dies or is late is simply not among the answers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from logging import getLogger

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
_log = getLogger("skellam.flower")


def exchange(
    grid: Grid, letters: Mapping[int, RecordDict], kind: str, *, group: str, timeout: float
) -> dict[int, RecordDict]:
    """Send each node its letter and return the answers that came in time, by node.

    A dead node's error comes back in the SuperLink's name, so answers are told apart by the message
    that they reply to, never by their source.
    """
    messages = [
        Message(content, node, kind, ttl=timeout, group_id=group)
        for node, content in letters.items()
    ]
    waiting = {
        message_id: node
        for message_id, node in zip(grid.push_messages(messages), letters, strict=False)
        if message_id is not None
    }
    answers: dict[int, RecordDict] = {}
    for reply in _replies(grid, set(waiting), timeout):
        node = waiting.pop(reply.metadata.reply_to_message_id)
        if reply.has_error():
            _log.info("%s: node %d dropped out: %s", kind, node, reply.error.reason)
        else:
            answers[node] = reply.content
    for node in waiting.values():
        _log.info("%s: node %d did not answer within %g s", kind, node, timeout)
    return answers


def _replies(grid: Grid, ids: set[str], timeout: float) -> Iterator[Message]:
    """Yield one reply to each of ``ids`` that comes before the time is over."""
    deadline, pause = time.monotonic() + timeout, _FIRST_PAUSE
    while ids:
        for reply in grid.pull_messages(list(ids)):
            if reply.metadata.reply_to_message_id in ids:
                ids.remove(reply.metadata.reply_to_message_id)
                yield reply
        if time.monotonic() >= deadline:
            return
        time.sleep(pause if ids else 0)
        pause = min(2 * pause, _LONGEST_PAUSE)
