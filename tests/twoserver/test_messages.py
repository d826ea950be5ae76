"""Messages: one encoding each, strict parsing, bounded and known sizes."""

import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from oracles.two_servers import begin, entropy, play, vectors
from skellam.errors import DomainError, MessageError, TamperError
from skellam.protocol import wire
from skellam.twoserver import helper, leader, messages, simulation
from skellam.twoserver.keys import SEAL_BYTES, SealingKey, ServerSecrets, seal
from skellam.twoserver.messages import Message, Report, RunOffer, report_info

RUN = begin(3, band=(2, 1), length=100, bits=12)
AHEAD = simulation.run_round(RUN, 0, vectors(RUN, 0), entropy=entropy("messages"))
PLAYED = play(AHEAD, 1, vectors(AHEAD, 1))
FORGETTING = AHEAD.leader.forget(0)


def examples():
    setting = RUN.leader_setting
    bare = replace(RUN.leader.constants, leader_key=bytes(32), helper_key=bytes(32))
    forget = FORGETTING.message(setting=setting)
    bound = RUN.leader.constants.round_digest(1, PLAYED.collecting.gathered.round_input)
    report = Report.decode(PLAYED.reports[100])
    inner = RUN.leader.run.secrets.key.unseal(report.sealed, report_info(bound, 100))
    return {
        messages.Proposal: leader.propose(bare, setting=setting, entropy=entropy("m")).message,
        messages.Grant: RunOffer.decode(RUN.leader.offer).grant,
        messages.RunOffer: RUN.leader.offer,
        messages.RoundStart: PLAYED.start,
        messages.Contribution: inner,
        messages.Report: PLAYED.reports[100],
        messages.Job: PLAYED.job,
        messages.Answer: PLAYED.answer().reply,
        messages.Refusal: PLAYED.answer(objections=lambda _: {100: "no"}).reply,
        messages.Forget: forget,
        messages.Forgotten: helper.handle(AHEAD.helper, forget, setting=RUN.helper_setting).reply,
    }


EXAMPLES = examples()
PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "protocol.md").read_text()
KINDS = [kind for kind in vars(messages).values() if hasattr(kind, "TAG")]


def test_the_examples_cover_every_kind_of_message_and_tags_are_unique():
    assert set(EXAMPLES) == set(KINDS)
    assert len({kind.TAG for kind in KINDS}) == len(KINDS)
    assert all(issubclass(kind, Message) for kind in KINDS)


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_a_message_has_one_encoding(kind):
    data = EXAMPLES[kind]
    assert kind.decode(data).encode() == data
    assert data[1] == kind.TAG


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_every_truncation_and_every_longer_message_is_refused(kind):
    data = EXAMPLES[kind]
    for end in range(0, len(data), 1 + len(data) // 500):
        with pytest.raises(MessageError):
            kind.decode(data[:end])
    with pytest.raises(MessageError, match="1 bytes trail"):
        kind.decode(data + b"\x00")


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_a_message_is_not_read_as_another_kind_or_version(kind):
    data = EXAMPLES[kind]
    with pytest.raises(MessageError, match="of kind"):
        kind.decode(data[:1] + b"\xff" + data[2:])
    with pytest.raises(MessageError, match="need version"):
        kind.decode(b"\x63" + data[1:])


def test_a_report_is_the_packed_vector_and_2461_bytes():
    packed = 100 * 12 // 8
    inner = packed + 2 + 8 + 1168 + 64 + 1 + 4 + 64
    assert len(EXAMPLES[messages.Contribution]) == inner
    assert len(EXAMPLES[messages.Report]) == 2 + 8 + 4 + SEAL_BYTES + inner == packed + 2461


def test_a_job_has_1240_bytes_a_client():
    assert messages.ENTRY.itemsize == 1240
    fixed = 2 + 32 + 4 + 32 + 36 + 4 + 64
    assert len(EXAMPLES[messages.Job]) == fixed + 3 * 1240


def test_an_answer_is_the_packed_vector_and_175_bytes():
    assert len(EXAMPLES[messages.Answer]) == 100 * 12 // 8 + 2 + 32 + 4 + 32 + 36 + 1 + 4 + 64


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_the_reference_has_the_fields_of_a_message_in_order_and_its_size(kind):
    start = PAGE.index(f"`{kind.__name__}`, tag {kind.TAG}, ")
    lines = PAGE[start:].split("\n\n", 2)
    rows = re.findall(r"^\| ([\w, ]+) \|", lines[1], re.MULTILINE)
    assert rows == ["field", "version, tag", *(field.name for field in fields(kind))]
    stated = re.search(r"`([^`]+)` bytes", lines[0])
    numbers = {"w": 2, "n": 3, "r": 0, "label": 16, "links": 32, "dB8": 150}
    if stated is None:
        assert kind is messages.Refusal  # the only one whose length is free
        return
    product = stated[1].replace("ceil(d B / 8)", "dB8")
    assert eval(re.sub(r"(\d) (\w)", r"\1 * \2", product), numbers) == len(EXAMPLES[kind])


def test_the_reference_has_the_constants_in_order():
    start = PAGE.index("The **constants** of a run, `170 + 2 w` bytes")
    rows = re.findall(r"^\| (\w+) \|", PAGE[start:].split("\n\n", 2)[1], re.MULTILINE)
    constants = RUN.leader.constants
    assert rows == ["field", *(field.name for field in fields(constants))]
    assert len(wire.body(constants)) == 170 + 2 * 2


def test_seals_are_bound_to_key_and_info():
    one, other = (ServerSecrets.generate(entropy=entropy(name)).key for name in "ab")
    sealed = seal(one.public, b"info", b"content")
    assert len(sealed) == 7 + SEAL_BYTES
    assert one.unseal(sealed, b"info") == b"content"
    assert seal(one.public, b"info", b"content") != sealed
    for key, info in [(other, b"info"), (one, b"inf"), (one, b"")]:
        with pytest.raises(TamperError, match="seal is not"):
            key.unseal(sealed, info)


def test_a_public_key_that_is_none_is_refused():
    with pytest.raises(MessageError, match="not a public key"):
        seal(b"\xff" * 1216, b"", b"")
    with pytest.raises(DomainError, match="1216 bytes"):
        seal(b"\xff" * 100, b"", b"")


def test_a_sealing_key_is_its_secret():
    key = ServerSecrets.generate(entropy=entropy("key")).key
    again = SealingKey(key.secret)
    assert (again.public, again.key_id) == (key.public, key.key_id)
    assert again.unseal(seal(key.public, b"i", b"x"), b"i") == b"x"
    assert repr(key.secret)[2:12] not in repr(key)
