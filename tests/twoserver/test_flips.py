"""Every byte of every kind of message, flipped once: refused, or counted as not sent."""

from dataclasses import replace

import pytest

from oracles.two_servers import INPUT, begin, entropy, inputs, play, vectors
from skellam.errors import ProtocolError
from skellam.twoserver import client, helper, leader, simulation

RUN = begin(2, length=3, band=(2, 1))
LEADING, HELPING = RUN.leader_setting, RUN.helper_setting
AHEAD = simulation.run_round(RUN, 0, vectors(RUN, 0), entropy=entropy("flips"))
PLAYED = play(AHEAD, 1, vectors(AHEAD, 1))
PROPOSED = leader.propose(
    replace(RUN.leader.constants, leader_key=bytes(32), helper_key=bytes(32)),
    setting=LEADING,
    entropy=entropy("proposal"),
)
GRANTED = helper.grant(PROPOSED.message, setting=HELPING, entropy=entropy("grant"))
REFUSED = PLAYED.answer(objections=lambda _: {107: "no"})
FORGETTING = AHEAD.leader.forget(0)
FORGET = FORGETTING.message(setting=LEADING)
FORGOTTEN = helper.handle(AHEAD.helper, FORGET, setting=HELPING)


def join(offer, start):
    return client.join(AHEAD.clients[100], offer, start, party=AHEAD.parties[100], inputs=inputs())


CASES = {
    "Proposal": (
        PROPOSED.message,
        lambda data: helper.grant(data, setting=HELPING, entropy=entropy("flipped")),
    ),
    "Grant": (GRANTED.reply, lambda data: PROPOSED.granted(data, setting=LEADING)),
    "RunOffer": (AHEAD.leader.offer, lambda data: join(data, PLAYED.start)),
    "RoundStart": (PLAYED.start, lambda data: join(AHEAD.leader.offer, data)),
    "Job": (PLAYED.job, lambda data: helper.handle(AHEAD.helper, data, setting=HELPING)),
    "Answer": (PLAYED.answer().reply, lambda data: PLAYED.waiting.open(data, setting=LEADING)),
    "Forget": (FORGET, lambda data: helper.handle(AHEAD.helper, data, setting=HELPING)),
    "Forgotten": (FORGOTTEN.reply, lambda data: FORGETTING.done(data, setting=LEADING)),
}


def flips(data: bytes):
    for at in range(len(data)):
        yield data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]


@pytest.mark.parametrize("kind", CASES)
def test_a_flipped_byte_is_refused(kind):
    message, step = CASES[kind]
    step(message)
    for data in flips(message):
        with pytest.raises(ProtocolError):
            step(data)


@pytest.mark.parametrize("top", [1, 0x80])
def test_a_flipped_byte_of_a_report_counts_as_not_sent(top):
    report = PLAYED.reports[100]
    collecting = AHEAD.leader.begin(1, INPUT, label=PLAYED.collecting.gathered.label)
    assert collecting.add([report], setting=LEADING).participants.tolist() == [100]
    flipped = [
        report[:at] + bytes([report[at] ^ top]) + report[at + 1 :] for at in range(len(report))
    ]
    collected = collecting.add(flipped, setting=LEADING)
    assert collected.participants.size == 0
    assert len(collected.rejections) == len(report)


def test_a_flipped_byte_of_a_refusal_is_refused():
    assert isinstance(REFUSED, helper.Refused)
    for data in flips(REFUSED.reply):
        with pytest.raises(ProtocolError):
            PLAYED.waiting.refused(data, PLAYED.reports, setting=LEADING)


@pytest.mark.parametrize("kind", CASES)
def test_every_truncation_and_every_longer_message_is_refused(kind):
    message, step = CASES[kind]
    ends = {*range(0, len(message), 37), len(message) - 1}
    for data in [*(message[:end] for end in ends), message + b"\x00"]:
        with pytest.raises(ProtocolError):
            step(data)
