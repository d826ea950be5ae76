"""Reports of a node to two servers: what it checks before it trains, and what it keeps of them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from skellam.engines import durable, two_servers
from skellam.engines.flower.node import Node
from skellam.engines.flower.round_config import RoundConfig
from skellam.entropy import Entropy
from skellam.errors import DataError, MessageError, TamperError
from skellam.twoserver import RunConstants, client
from skellam.twoserver.client import ClientState, Inputs, Joined
from skellam.twoserver.messages import RoundStart, from_server, leader_context
from skellam.vectors import Residues


def join(
    node: Node, config: RoundConfig, content: bytes, offer: bytes, start: bytes
) -> Joined | bytes:
    """Return the round that ``node`` may take part in, or what it sent in this very round before.

    The constants must follow from the plan, by this node's own arithmetic: so what it was told of
    the noise is what both servers signed.
    """
    state, party = _state(node), node.two_servers
    constants = client.read_offer(offer, party=party).constants
    _require_planned(constants, config)
    begun = from_server(RoundStart, start, "leader", party.leader, leader_context(constants))
    if again := state.message_in(constants.run_id, begun.round_):
        return again
    inputs = Inputs(
        config.plan.digest, config.round_input(content), two_servers.norm_bound(config.plan)
    )
    return client.join(state, offer, start, party=party, inputs=inputs)


def send(node: Node, joined: Joined, vector: Residues, *, entropy: Entropy) -> bytes:
    """Return the report with ``vector``, after the participation was written down.

    A server may send two messages at once; of rounds that were joined from one record, one counts.
    """
    state = joined.report(vector, entropy=entropy)
    with _locked(node):
        if _state(node) != joined.state:
            raise TamperError("this node reported in another round meanwhile; nothing is sent")
        durable.replace(node.reports, state.to_bytes(), mode=durable.SECRET)
    return state.message


@contextmanager
def _locked(node: Node) -> Iterator[None]:
    path = node.reports.with_name(node.reports.name + ".lock")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, durable.SECRET)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _state(node: Node) -> ClientState:
    try:
        return ClientState.from_bytes(node.reports.read_bytes())
    except FileNotFoundError:
        return ClientState()
    except (OSError, MessageError) as error:
        raise DataError(f"cannot read {node.reports}: {error}") from error


def _require_planned(constants: RunConstants, config: RoundConfig) -> None:
    blank = bytes(32)
    planned = two_servers.constants(config.plan, run_id=constants.run_id, rounds=constants.rounds)
    offered = replace(constants, leader_key=blank, helper_key=blank)
    # The norm is compared with this client's own when it joins: arithmetic may differ a little.
    if offered != replace(planned, norm_bound=offered.norm_bound):
        raise TamperError("the run that the servers offer does not follow from the plan")
