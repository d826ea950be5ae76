"""Both servers and all clients killed at random points: nothing is lost, nothing answered twice.

Each party has a disk that holds bytes. A crash drops what is in memory; the party goes on from its
disk. Replies get lost. Whatever happens, what is opened is the weighted sum of the rounds that were
opened before, and no round has two answers.
"""

from collections import Counter

import numpy as np
import pytest

from oracles.two_servers import INPUT, LABEL, banded, begin, entropy, inputs, plain_sum, small
from skellam.errors import PhaseError
from skellam.twoserver import client, helper, leader
from skellam.twoserver.messages import Answer

ROUNDS = 10
BAND = (3, 2, 2, 1)


class CrashError(Exception):
    """A party died."""


class Deployment:
    """Three kinds of party with disks, and dice that decide who dies when."""

    def __init__(self, seed, danger):
        self.dice, self.danger = np.random.default_rng(seed), danger
        self.run = begin(3, band=BAND, variance=0.0, rounds=ROUNDS, participations=ROUNDS)
        self.leader_disk = self.run.leader.to_bytes()
        self.helper_disk = self.run.helper.to_bytes()
        self.client_disks = {n: client.ClientState().to_bytes() for n in self.run.clients}
        self.vectors, self.sums = {}, {}
        self.answers, self.released, self.crashes = {}, [], 0

    def maybe_crash(self):
        if self.dice.random() < self.danger:
            self.crashes += 1
            raise CrashError

    def serve(self, message):
        """Return the helper's reply; it may die before or after its one durable write."""
        state = helper.HelperState.from_bytes(self.helper_disk)
        self.maybe_crash()
        answered = helper.handle(state, message, setting=self.run.helper_setting)
        assert isinstance(answered, helper.Answered)
        self.helper_disk = answered.state.to_bytes()
        if answered.reply[1] == Answer.TAG:
            known = self.answers.setdefault(Answer.decode(answered.reply).round_, answered.reply)
            assert known == answered.reply
        self.maybe_crash()
        return answered.reply

    def report(self, number, offer, start, round_):
        """Return a client's message; a client that has one for this round sends it again."""
        state = client.ClientState.from_bytes(self.client_disks[number])
        record = state.run(self.run.leader.constants.run_id)
        if record is None or round_ not in record.rounds:
            joined = client.join(
                state, offer, start, party=self.run.parties[number], inputs=inputs()
            )
            x = self.vectors.setdefault((round_, number), small(joined.constants, [round_, number]))
            source = entropy(f"crash/{self.crashes}/{round_}/{number}")
            state = joined.report(x, entropy=source)
            self.maybe_crash()
            self.client_disks[number] = state.to_bytes()
        return state.message

    def lead(self, round_):
        """Take the leader from its disk as far as it goes; write after every phase."""
        setting, disk = self.run.leader_setting, self.leader_disk
        kind = {113: leader.Idle, 115: leader.Waiting, 116: leader.Forgetting}[disk[1]]
        phase = kind.from_bytes(disk)
        match phase:
            case leader.Idle() if phase.next_round > round_:
                return True
            case leader.Idle():
                collecting = phase.begin(round_, INPUT, label=LABEL)
                start = collecting.start_message(setting=setting)
                reports = [self.report(n, phase.offer, start, round_) for n in self.client_disks]
                phase = collecting.add(reports, setting=setting).close()
            case leader.Waiting() if self.dice.random() < self.danger / 4:
                phase = phase.abandon()
            case leader.Waiting():
                job = phase.job(setting=setting)
                phase = phase.open(self.serve(job), setting=setting)
            case leader.Forgetting():
                reply = self.serve(phase.message(setting=setting))
                phase = phase.done(reply, setting=setting)
        self.maybe_crash()
        self.leader_disk = phase.to_bytes()
        if isinstance(phase, leader.Idle):
            self.check(phase)
        return False

    def check(self, idle):
        if idle.release is None:
            return
        t = idle.release.round_
        self.released.append(t)
        given = {n: self.vectors[t, n] for n in self.client_disks}
        self.sums[t] = plain_sum(given, 12)
        assert np.array_equal(idle.release.total.values, banded(BAND, self.sums, t, 12))

    def play(self):
        for t in range(ROUNDS):
            done = False
            while not done:
                try:
                    done = self.lead(t)
                except CrashError:
                    continue


@pytest.mark.parametrize(
    "seed", [*range(10), *(pytest.param(i, marks=pytest.mark.slow) for i in range(10, 60))]
)
def test_nothing_is_lost_and_no_round_is_answered_twice(seed):
    deployment = Deployment(seed, danger=0.12)
    deployment.play()
    assert deployment.crashes > 0
    assert max(Counter(deployment.released).values()) == 1
    state = helper.HelperState.from_bytes(deployment.helper_disk)
    assert set(deployment.released) <= set(deployment.answers)
    assert state.participations.counts.tolist() == [len(deployment.answers)] * 3
    for disk in deployment.client_disks.values():
        assert client.ClientState.from_bytes(disk).participations >= len(deployment.answers)


def test_a_leader_whose_disk_was_set_back_gets_no_second_answer():
    """It asks for another set, of clients that work for it, in an answered round; then gives up."""
    deployment = Deployment(0, danger=0.0)
    older = deployment.leader_disk
    for t in range(3):
        while not deployment.lead(t):
            pass
    deployment.leader_disk = older
    deployment.client_disks = {n: client.ClientState().to_bytes() for n in (100, 107)}
    deployment.lead(0)
    with pytest.raises(PhaseError, match="round 0 is closed"):
        deployment.lead(0)
    idle = leader.Idle.from_bytes(older)
    forgetting = idle.forget()
    setting = deployment.run.leader_setting
    idle = forgetting.done(deployment.serve(forgetting.message(setting=setting)), setting=setting)
    assert idle.next_round == 3
    assert helper.HelperState.from_bytes(deployment.helper_disk).window == ()
