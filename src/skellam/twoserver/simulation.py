"""Whole rounds in memory: both servers and all clients in one process, through real messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from skellam.entropy import Entropy
from skellam.errors import ProtocolError
from skellam.protocol.identity import Identity, Roster
from skellam.twoserver import client, helper
from skellam.twoserver.client import ClientState, Inputs, Party
from skellam.twoserver.constants import RunConstants, RunLimits
from skellam.twoserver.helper import HelperSetting, HelperState, Refused
from skellam.twoserver.leader import Idle, LeaderSetting, Release, propose
from skellam.vectors import Residues


@dataclass(frozen=True, slots=True, eq=False)
class Simulation:
    """A run between rounds: the state of both servers and of every client."""

    leader: Idle
    helper: HelperState
    clients: Mapping[int, ClientState]
    leader_setting: LeaderSetting
    helper_setting: HelperSetting
    parties: Mapping[int, Party]

    @property
    def release(self) -> Release:
        """What the latest round opened."""
        if self.leader.release is None:
            raise ProtocolError("nothing was opened yet; run a round")
        return self.leader.release


def begin(
    constants: RunConstants,
    identities: Iterable[Identity],
    *,
    entropy: Entropy,
    limits: RunLimits | None = None,
    servers: tuple[Identity, Identity] | None = None,
) -> Simulation:
    """Return a run among ``identities``; without ``limits`` whatever ``constants`` say is done.

    Leader and helper have new identities unless ``servers`` are given.
    """
    accepted = limits or _no_limits(constants)
    members = tuple(identities)
    leading, helping = servers or (Identity.generate(i, entropy=entropy) for i in range(2))
    leader_setting, helper_setting = _settings(leading, helping, members, accepted)
    proposed = propose(constants, setting=leader_setting, entropy=entropy)
    helper_state = helper.grant(proposed.message, setting=helper_setting, entropy=entropy)
    return resume(
        proposed.granted(helper_state.reply, setting=leader_setting),
        helper_state,
        {identity.number: ClientState() for identity in members},
        members,
        servers=(leading, helping),
        limits=accepted,
    )


def resume(
    leader: Idle,
    helper_state: HelperState,
    clients: Mapping[int, ClientState],
    identities: Iterable[Identity],
    *,
    servers: tuple[Identity, Identity],
    limits: RunLimits | None = None,
) -> Simulation:
    """Return a run that goes on among ``identities``, with the states that all were left in."""
    accepted = limits or _no_limits(leader.constants)
    members = tuple(identities)
    leading, helping = servers
    leader_setting, helper_setting = _settings(leading, helping, members, accepted)
    rounds = leader.constants.participations
    return Simulation(
        leader=leader,
        helper=helper_state,
        clients=clients,
        leader_setting=leader_setting,
        helper_setting=helper_setting,
        parties={
            each.number: Party(each, leading.public, helping.public, accepted, rounds)
            for each in members
        },
    )


def _no_limits(constants: RunConstants) -> RunLimits:
    return RunLimits(
        min_noise_multiplier=0.0,
        max_participations=constants.participations,
        min_cohort=1,
        helper_noise_alone=True,
    )


def _settings(
    leading: Identity, helping: Identity, members: tuple[Identity, ...], limits: RunLimits
) -> tuple[LeaderSetting, HelperSetting]:
    roster = Roster({each.number: each.public for each in members})
    return (
        LeaderSetting(leading, helping.public, roster),
        HelperSetting(helping, leading.public, roster, limits),
    )


def run_round(
    simulation: Simulation,
    round_: int,
    vectors: Mapping[int, Residues],
    *,
    entropy: Entropy,
    round_input: bytes = bytes(32),
    label: bytes | None = None,
    before_job: Callable[[], object] | None = None,
) -> Simulation:
    """Return the run after ``round_``, in which the clients of ``vectors`` took part.

    Each vector is asked for once if their ``label`` is given. ``before_job`` is called when all
    reports are in and before the helper is asked. The error of a client or server that refuses to
    go on is raised.
    """
    s = simulation
    if label is None:
        label = next((vector.label for vector in vectors.values()), b"")
    collecting = s.leader.begin(round_, round_input, label=label)
    start = collecting.start_message(setting=s.leader_setting)
    constants = s.leader.constants
    inputs = Inputs(constants.plan, round_input, constants.norm_bound)
    reported = dict[int, ClientState]()

    def reports() -> Iterator[bytes]:
        for number, vector in vectors.items():
            joined = client.join(
                s.clients[number], s.leader.offer, start, party=s.parties[number], inputs=inputs
            )
            state = joined.report(vector, entropy=entropy)
            reported[number] = state.sent()
            yield state.message

    waiting = collecting.add(reports(), setting=s.leader_setting).close()
    if before_job is not None:
        before_job()
    job = waiting.job(setting=s.leader_setting)
    answered = helper.handle(s.helper, job, setting=s.helper_setting)
    if isinstance(answered, Refused):
        raise ProtocolError(f"the helper refused: {answered.rejections}")
    return replace(
        s,
        leader=waiting.open(answered.reply, setting=s.leader_setting),
        helper=answered.state,
        clients={**s.clients, **reported},
    )
