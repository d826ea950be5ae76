"""State in bytes: whoever restarts after any phase goes on with the same results."""

from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.two_servers import INPUT, LABEL, begin, entropy, inputs, play, small, vectors
from skellam.errors import MessageError, PhaseError, SkellamError
from skellam.twoserver import client, helper, leader, simulation

BAND = (3, 2, 1)


def through(state):
    return type(state).from_bytes(state.to_bytes())


def untouched(state):
    return state


def story(pass_on):
    """Run four rounds, one of them forgotten and one abandoned, with ``pass_on`` between steps."""
    fresh = begin(3, band=BAND, participations=8, context="story")
    setting, helping = fresh.leader_setting, fresh.helper_setting
    bare = replace(fresh.leader.constants, leader_key=bytes(32), helper_key=bytes(32))
    proposed = pass_on(leader.propose(bare, setting=setting, entropy=entropy("story/leader")))
    aid = helper.grant(proposed.message, setting=helping, entropy=entropy("story/helper"))
    aid = pass_on(aid)
    idle = pass_on(proposed.granted(aid.reply, setting=setting))
    clients = dict.fromkeys(fresh.clients, client.ClientState())
    seen = []
    for t in (0, 1, 3, 4):
        collecting = pass_on(idle.begin(t, INPUT, label=LABEL))
        start = collecting.start_message(setting=setting)
        for number, state in clients.items():
            joined = client.join(
                pass_on(state), idle.offer, start, party=fresh.parties[number], inputs=inputs()
            )
            x = small(joined.constants, [t, number])
            clients[number] = pass_on(joined.report(x, entropy=entropy(f"story/{t}/{number}")))
            collecting = pass_on(collecting.add([clients[number].message], setting=setting))
        waiting = pass_on(collecting.close())
        answered = helper.handle(aid, waiting.job(setting=setting), setting=helping)
        aid = pass_on(answered.state)
        if t == 3:
            idle = pass_on(waiting.abandon())
        else:
            idle = pass_on(waiting.open(aid.reply, setting=setting))
            seen.append(idle.release)
        if t == 1:
            idle = pass_on(idle.forget(0))
        if isinstance(idle, leader.Forgetting):
            answered = helper.handle(aid, idle.message(setting=setting), setting=helping)
            aid = pass_on(answered.state)
            idle = pass_on(idle.done(aid.reply, setting=setting))
    return seen


def test_restarting_after_every_step_gives_the_same_numbers():
    for one, other in zip(story(untouched), story(through), strict=True):
        assert one.round_ == other.round_
        assert np.array_equal(one.total.values, other.total.values)
        assert np.array_equal(one.estimate.values, other.estimate.values)
        assert one.total.label == other.total.label
        assert one.participants.tolist() == other.participants.tolist()


RUN = begin(3, band=BAND)
FIRST = play(RUN, 0, vectors(RUN, 0))
AHEAD = FIRST.after()
PLAYED = play(AHEAD, 1, vectors(AHEAD, 1))
STATES = {
    "Proposed": leader.propose(
        replace(RUN.leader.constants, leader_key=bytes(32), helper_key=bytes(32)),
        setting=RUN.leader_setting,
        entropy=entropy("state"),
    ),
    "Idle": AHEAD.leader,
    "Collecting": PLAYED.collecting,
    "Waiting": PLAYED.waiting,
    "Forgetting": AHEAD.leader.forget(0),
    "HelperState": PLAYED.answer().state,
    "ClientState": PLAYED.states[100],
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_has_one_encoding(name):
    data = STATES[name].to_bytes()
    assert type(STATES[name]).from_bytes(data).to_bytes() == data
    assert data[1] == type(STATES[name]).TAG


@pytest.mark.parametrize("name", STATES)
def test_a_truncated_longer_or_flipped_state_is_refused(name):
    kind, data = type(STATES[name]), STATES[name].to_bytes()
    for at in range(len(data)):
        flipped = data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]
        with pytest.raises(MessageError, match="damaged"):
            kind.from_bytes(flipped)
    for end in [*range(0, len(data), 41), len(data) - 1]:
        with pytest.raises(MessageError):
            kind.from_bytes(data[:end])
    with pytest.raises(MessageError):
        kind.from_bytes(data + b"\x00")


def test_a_state_is_not_read_as_another_kind_or_version():
    for name, state in STATES.items():
        for other, wrong in STATES.items():
            if name != other:
                with pytest.raises(MessageError, match="of kind"):
                    type(wrong).from_bytes(state.to_bytes())
    content = b"\x09" + AHEAD.leader.to_bytes()[1:-32]
    with pytest.raises(MessageError, match="got version 9 of the protocol"):
        leader.Idle.from_bytes(content + checksum(content))


def checksum(content: bytes) -> bytes:
    return sha256(b"skellam/twoserver/state/" + content).digest()


@settings(max_examples=300)
@given(st.sampled_from(["Idle", "HelperState", "ClientState"]), st.data())
def test_whatever_a_state_was_changed_to_the_errors_are_ours(name, data):
    """Somebody who writes a true checksum under a false state."""
    content = bytearray(STATES[name].to_bytes()[:-32])
    at = data.draw(st.integers(2, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    try:
        state = type(STATES[name]).from_bytes(bytes(content) + checksum(bytes(content)))
        match state:
            case leader.Idle():
                play(replace(AHEAD, leader=state), 1, vectors(AHEAD, 1)).after()
            case helper.HelperState():
                played = play(PLAYED.after(), 2, vectors(AHEAD, 2))
                helper.handle(state, played.job, setting=AHEAD.helper_setting)
            case client.ClientState():
                client.join(
                    state,
                    AHEAD.leader.offer,
                    PLAYED.start,
                    party=AHEAD.parties[100],
                    inputs=inputs(),
                )
    except SkellamError:
        return
    assert state.to_bytes()[:-32] == bytes(content)


def test_a_retry_after_a_restart_sends_identical_bytes():
    state = PLAYED.states[100]
    assert through(state).message == state.message != b""
    assert through(state.sent()).message == b""
    assert through(state.sent()).participations == state.participations == 2


def test_no_secret_is_printed():
    secrets = [
        AHEAD.leader.run.secrets.sealing,
        AHEAD.leader.run.secrets.noise,
        AHEAD.helper.secrets.sealing,
        AHEAD.helper.secrets.noise,
    ]
    printed = "".join(repr(state) for state in [*STATES.values(), AHEAD])
    for secret in secrets:
        assert repr(secret)[2:12] not in printed


def test_a_states_size_follows_from_the_run():
    """The helper's: constants, keys, chain, the band's sums of masks, the answer, its clients."""
    sizes = []
    for length in (1000, 2000):
        run = begin(3, band=BAND, length=length, bits=16)
        for t in range(4):
            run = simulation.run_round(run, t, vectors(run, t), entropy=entropy("size"))
        sizes.append((len(run.helper.to_bytes()), len(run.leader.to_bytes())))
    (helper_1, leader_1), (helper_2, leader_2) = sizes
    assert helper_2 - helper_1 == 1000 * (2 * 2 + 2)
    assert leader_2 - leader_1 == 1000 * (2 * 2 + 2 * 8 + 2 + 8)


def test_after_the_run_neither_server_has_its_secrets_or_another_round():
    run = AHEAD
    for state, secrets in [
        (run.helper, run.helper.secrets),
        (run.leader, run.leader.run.secrets),
    ]:
        ended = through(state.ended())
        data = ended.to_bytes()
        assert secrets.sealing not in data
        assert secrets.noise not in data
    with pytest.raises(PhaseError, match="rounds from 8 on"):
        helper.handle(run.helper.ended(), PLAYED.job, setting=run.helper_setting)
    with pytest.raises(PhaseError, match="rounds from 8 on"):
        run.leader.ended().begin(1, INPUT)
    again = helper.handle(run.helper.ended(), FIRST.job, setting=run.helper_setting)
    assert again.reply == run.helper.reply
    assert np.array_equal(run.leader.ended().release.total.values, run.release.total.values)
