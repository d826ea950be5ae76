"""Parties that have a key and abuse it: whatever they sign or seal, errors are ours, and nothing
but the agreed sum opens."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.two_servers import INPUT, begin, entropy, inputs, play, sign_job, vectors
from skellam.errors import ProtocolError, TamperError
from skellam.protocol.wire import split_signature
from skellam.twoserver import client, helper, simulation
from skellam.twoserver.keys import seal
from skellam.twoserver.messages import (
    Contribution,
    Job,
    Rejection,
    Report,
    contribution_context,
    helper_context,
    leader_context,
    report_info,
    seed_info,
    sign_entry,
)

FIRST, SECOND = 100, 107
RUN = begin(3, length=3, band=(2, 1))
LEADING, HELPING = RUN.leader_setting, RUN.helper_setting
AHEAD = simulation.run_round(RUN, 0, vectors(RUN, 0), entropy=entropy("insiders"))
PLAYED = play(AHEAD, 1, vectors(AHEAD, 1))
CONSTANTS = AHEAD.leader.constants
BOUND = CONSTANTS.round_digest(1, INPUT)
LEADER_KEY, HELPER_KEY = AHEAD.leader.run.secrets.key, AHEAD.helper.secrets.key
FORGETTING = AHEAD.leader.forget(0)


def contribution_of(number):
    report = Report.decode(PLAYED.reports[number])
    return LEADER_KEY.unseal(report.sealed, report_info(BOUND, number))


def resealed(number, contribution):
    """Return a report that anybody can make who knows the leader's public key."""
    sealed = seal(LEADER_KEY.public, report_info(BOUND, number), contribution)
    return Report(number, sealed).encode()


def collect(*reports):
    collecting = AHEAD.leader.begin(1, INPUT, label=PLAYED.collecting.gathered.label)
    return collecting.add(reports, setting=LEADING)


def test_every_flipped_byte_of_a_contribution_that_is_sealed_again_is_refused():
    inner = contribution_of(FIRST)
    assert collect(resealed(FIRST, inner)).participants.tolist() == [FIRST]
    for at in range(len(inner)):
        flipped = inner[:at] + bytes([inner[at] ^ (1 << at % 8)]) + inner[at + 1 :]
        assert collect(resealed(FIRST, flipped)).participants.size == 0, at


def test_a_contribution_in_another_clients_envelope_is_refused():
    collected = collect(resealed(SECOND, contribution_of(FIRST)))
    assert collected.participants.size == 0
    assert "of another client" in collected.rejections[0].reason


def test_a_seed_of_the_attackers_choice_does_not_pass_as_a_clients():
    """Whoever could replace it would know the mask; its client's signature is over the seal."""
    part = Contribution.decode(contribution_of(FIRST))
    chosen = seal(HELPER_KEY.public, seed_info(BOUND, FIRST), b"s" * 32)
    job = Job.decode(PLAYED.job)
    entries = job.entries.copy()
    entries["sealed"][0] = np.void(chosen)
    outcome = PLAYED.answer(sign_job(AHEAD, replace(job, entries=entries)))
    assert [rejection.sender for rejection in outcome.rejections] == [FIRST]
    stolen = replace(part, sealed=chosen).signed(
        AHEAD.parties[SECOND].identity, contribution_context(BOUND)
    )
    assert collect(resealed(FIRST, stolen)).participants.size == 0


def test_a_client_whose_last_bits_are_not_zero_is_refused():
    """Residues of 12 bits leave four bits of the last byte: one vector has one encoding."""
    part = Contribution.decode(contribution_of(FIRST))
    for bit in range(4, 8):
        masked = part.masked[:-1] + bytes([part.masked[-1] | 1 << bit])
        lie = replace(part, masked=masked).signed(
            AHEAD.parties[FIRST].identity, contribution_context(BOUND)
        )
        assert collect(resealed(FIRST, lie)).participants.size == 0


def test_clients_that_were_shown_another_input_are_in_no_sum():
    """The leader shows the halves of a cohort two models, and asks for both sums at once."""
    shown = play(AHEAD, 1, vectors(AHEAD, 1), round_input=b"m" * 32, context="other model")
    mixed = Job.decode(PLAYED.job).entries.copy()
    mixed[0] = Job.decode(shown.job).entries[0]
    outcome = PLAYED.answer(sign_job(AHEAD, replace(Job.decode(PLAYED.job), entries=mixed)))
    assert isinstance(outcome, helper.Refused)
    assert [rejection.sender for rejection in outcome.rejections] == [FIRST]


def test_entries_and_answers_of_another_run_are_refused():
    """The same parties and rounds, another run id."""
    other = begin(3, length=3, band=(2, 1), run_id=b"o" * 32, context="run")
    other = simulation.run_round(other, 0, vectors(other, 0), entropy=entropy("insiders"))
    theirs = play(other, 1, vectors(other, 1))
    entries = Job.decode(theirs.job).entries
    outcome = PLAYED.answer(sign_job(AHEAD, replace(Job.decode(PLAYED.job), entries=entries)))
    assert len(outcome.rejections) == 3
    with pytest.raises(TamperError):
        PLAYED.answer(theirs.job)
    with pytest.raises(TamperError):
        PLAYED.waiting.open(theirs.answer().reply, setting=LEADING)
    assert collect(*theirs.reports.values()).participants.size == 0


def test_a_client_that_was_set_back_is_refused_by_the_helper():
    run = begin(3, participations=1)
    after = simulation.run_round(run, 0, vectors(run, 0), entropy=entropy("once"))
    again = replace(after, clients=run.clients)
    honest = replace(again, leader=replace(again.leader, run=run.leader.run))
    replayed = play(replace(honest, helper=run.helper), 1, vectors(run, 1))
    job = replace(Job.decode(replayed.job), head=after.helper.chain.head)
    outcome = helper.handle(after.helper, sign_job(after, job), setting=after.helper_setting)
    assert [rejection.sender for rejection in outcome.rejections] == list(run.clients)


def mutated(data, message, first=2):
    """Return ``message`` without its signature and with some bytes changed, cut or added."""
    body = bytearray(split_signature(message)[0])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(first, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    return (
        bytes(body[: data.draw(st.integers(first, len(body)))])
        if data.draw(st.booleans())
        else bytes(body)
    )


def signed(identity, context, payload):
    return payload + identity.sign(context, payload)


@settings(max_examples=150)
@given(data=st.data())
def test_whatever_a_leader_signs_the_helpers_errors_are_ours(data):
    message = data.draw(st.sampled_from([PLAYED.job, FORGETTING.message(setting=LEADING)]))
    lie = signed(LEADING.identity, leader_context(CONSTANTS), mutated(data, message))
    try:
        outcome = helper.handle(AHEAD.helper, lie, setting=HELPING)
    except ProtocolError:
        return
    if isinstance(outcome, helper.Answered):
        outcome.state.from_bytes(outcome.state.to_bytes())
        assert outcome.state.next_round >= AHEAD.helper.next_round
        assert len(outcome.state.links) == len(AHEAD.helper.links) + 32


@settings(max_examples=100)
@given(data=st.data())
def test_whatever_a_leader_signs_a_clients_errors_are_ours(data):
    message = data.draw(st.sampled_from([PLAYED.start, AHEAD.leader.offer]))
    lie = signed(LEADING.identity, leader_context(CONSTANTS), mutated(data, message))
    offer, start = (lie, PLAYED.start) if message[1] == lie[1] == 67 else (AHEAD.leader.offer, lie)
    try:
        joined = client.join(
            AHEAD.clients[FIRST], offer, start, party=AHEAD.parties[FIRST], inputs=inputs()
        )
    except ProtocolError:
        return
    assert joined.constants == CONSTANTS
    assert joined.start.round_ in {1, *range(2, CONSTANTS.rounds)}


@settings(max_examples=100)
@given(data=st.data())
def test_whatever_a_client_signs_and_seals_the_leaders_errors_are_ours(data):
    identity = AHEAD.parties[FIRST].identity
    inner = mutated(data, contribution_of(FIRST))
    lie = signed(identity, contribution_context(BOUND), inner)
    collected = collect(resealed(FIRST, lie), *(PLAYED.reports[n] for n in (SECOND, 114)))
    assert set(collected.participants.tolist()) >= {SECOND, 114}
    collected.from_bytes(collected.to_bytes())
    outcome = helper.handle(AHEAD.helper, collected.close().job(setting=LEADING), setting=HELPING)
    named = {r.sender for r in outcome.rejections} if isinstance(outcome, helper.Refused) else set()
    assert named <= {FIRST}


@settings(max_examples=100)
@given(data=st.data())
def test_whatever_refusal_the_helper_signs_the_leaders_errors_are_ours(data):
    refusal = PLAYED.answer(objections=lambda _: {SECOND: "no"}).reply
    lie = signed(HELPING.identity, helper_context(CONSTANTS), mutated(data, refusal))
    try:
        after = PLAYED.waiting.refused(lie, PLAYED.reports, setting=LEADING)
    except ProtocolError:
        return
    assert after.from_bytes(after.to_bytes()).to_bytes() == after.to_bytes()


@pytest.mark.parametrize("sender", [0, (1 << 63), (1 << 64) - 1])
def test_numbers_at_the_ends_of_their_range_are_named_and_refused(sender):
    job = Job.decode(PLAYED.job)
    entries = job.entries.copy()
    entries["sender"][-1 if sender else 0] = sender
    outcome = PLAYED.answer(sign_job(AHEAD, replace(job, entries=entries)))
    assert [r.sender for r in outcome.rejections] == [sender]
    report = PLAYED.reports[FIRST]
    renamed = report[:2] + sender.to_bytes(8, "big") + report[10:]
    (rejection,) = collect(renamed).rejections
    assert rejection == Rejection(sender, f"client {sender}: is not on the roster")


def test_an_entry_is_for_one_identity():
    """A client signs for its own number alone; a key under two numbers would count once."""
    identity = AHEAD.parties[FIRST].identity
    sealed = Contribution.decode(contribution_of(FIRST)).sealed
    entries = Job.decode(PLAYED.job).entries.copy()
    entries["sealed"][1] = np.void(sealed)
    entries["signature"][1] = np.void(sign_entry(identity, BOUND, sealed))
    outcome = PLAYED.answer(sign_job(AHEAD, replace(Job.decode(PLAYED.job), entries=entries)))
    assert [rejection.sender for rejection in outcome.rejections] == [SECOND]


def test_a_client_repeats_its_latest_message_in_its_own_round_alone():
    state = PLAYED.states[FIRST]
    run_id = CONSTANTS.run_id
    assert state.message_in(run_id, 1) == state.message
    assert state.message_in(run_id, 0) == state.message_in(b"o" * 32, 1) == b""
    other = begin(3, run_id=b"o" * 32)
    played = play(replace(other, clients={**other.clients, FIRST: state}), 0, vectors(other, 0))
    later = played.states[FIRST]
    assert later.message_in(b"o" * 32, 0) == later.message
    assert later.message_in(run_id, 1) == b""
