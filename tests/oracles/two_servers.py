"""Small runs of the two-server protocol, taken apart into their messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from skellam.entropy import SeededEntropy
from skellam.protocol.identity import Identity
from skellam.twoserver import RunConstants, client, helper, leader, simulation
from skellam.twoserver.simulation import Simulation
from skellam.vectors import Residues, residue_dtype

LABEL = b"the plan's label"
INPUT = bytes(range(32))


def entropy(context: str) -> SeededEntropy:
    return SeededEntropy(b"two servers that do not collude.", context)


def constants(**changes) -> RunConstants:
    given = {
        "run_id": b"r" * 32,
        "variance": 3.0,
        "norm_bound": 2.0,
        "participations": 4,
        "bits": 12,
        "length": 5,
        "rounds": 8,
        "min_cohort": 2,
        "plan": b"p" * 32,
    }
    return RunConstants(**{**given, **changes})


def begin(clients: int = 4, *, limits=None, context: str = "run", **changes) -> Simulation:
    source = entropy(f"{context}/begin")
    identities = [Identity.generate(100 + 7 * i, entropy=source) for i in range(clients)]
    return simulation.begin(constants(**changes), identities, entropy=source, limits=limits)


def inputs(round_input: bytes = INPUT, *, norm_bound: float = 2.0) -> client.Inputs:
    return client.Inputs(b"p" * 32, round_input, norm_bound)


def vector(constants: RunConstants, seed, label: bytes = LABEL) -> Residues:
    values = np.random.default_rng(seed).integers(0, 1 << constants.bits, constants.length)
    return Residues(values.astype(residue_dtype(constants.bits)), constants.bits, label=label)


def small(constants: RunConstants, seed, bound: int = 3) -> Residues:
    """Return a vector of small numbers of both signs."""
    values = np.random.default_rng(seed).integers(-bound, bound + 1, constants.length)
    wrapped = values % (1 << constants.bits)
    return Residues(wrapped.astype(residue_dtype(constants.bits)), constants.bits, label=LABEL)


def vectors(run: Simulation, round_: int, members=None, make=vector) -> dict[int, Residues]:
    members = list(run.clients) if members is None else members
    return {number: make(run.leader.constants, [round_, number]) for number in members}


def plain_sum(given: Mapping[int, Residues], bits: int) -> np.ndarray:
    return sum(v.values.astype(np.int64) for v in given.values()) % (1 << bits)


def centred(values: np.ndarray, bits: int) -> np.ndarray:
    half = 1 << (bits - 1)
    return (values.astype(np.int64) + half) % (2 * half) - half


def banded(band, sums, round_, bits):
    total = sum(c * sums.get(round_ - j, 0) for j, c in enumerate(band))
    return total % (1 << bits)


@dataclass(frozen=True)
class Played:
    """A round up to the job, message by message."""

    run: Simulation
    collecting: leader.Collecting
    start: bytes
    states: Mapping[int, client.ClientState]
    waiting: leader.Waiting
    job: bytes

    @property
    def reports(self) -> dict[int, bytes]:
        return {number: state.message for number, state in self.states.items()}

    def answer(self, job: bytes | None = None, **changes):
        return helper.handle(
            self.run.helper, job or self.job, setting=self.run.helper_setting, **changes
        )

    def after(self) -> Simulation:
        """Return the run after the round."""
        answered = self.answer()
        return replace(
            self.run,
            leader=self.waiting.open(answered.reply, setting=self.run.leader_setting),
            helper=answered.state,
            clients={**self.run.clients, **self.states},
        )


def play(
    run: Simulation,
    round_: int,
    given: Mapping[int, Residues],
    *,
    round_input: bytes = INPUT,
    context: str = "play",
    label: bytes = LABEL,
) -> Played:
    source = entropy(f"{context}/{round_}")
    collecting = run.leader.begin(round_, round_input, label=label)
    start = collecting.start_message(setting=run.leader_setting)
    states = {
        number: client.join(
            run.clients[number],
            run.leader.offer,
            start,
            party=run.parties[number],
            inputs=inputs(round_input),
        ).report(x, entropy=source)
        for number, x in given.items()
    }
    collected = collecting.add(
        [state.message for state in states.values()], setting=run.leader_setting
    )
    waiting = collected.close()
    job = waiting.job(setting=run.leader_setting)
    return Played(run, collecting, start, states, waiting, job)


def sign_job(run: Simulation, job) -> bytes:
    """Return the encoding of a job that the leader, who may cheat, signed."""
    from skellam.twoserver.messages import leader_context

    return job.signed(run.leader_setting.identity, leader_context(run.leader.constants))
