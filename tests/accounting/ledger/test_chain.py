import json

import pytest

from oracles.identity import ALICE, BOB
from skellam.accounting.ledger.file import Head, _digest, seal, unseal
from skellam.errors import LedgerError

RECORDS = [{"kind": "terms", "epsilon": 0.1}, {"note": "größer\r\n", "n": 10**30}, {"z": None}]


def chain(records=RECORDS, signer=None):
    head, lines = Head(), []
    for fields in records:
        line, head = seal(fields, head, signer=signer)
        lines.append(line)
    return lines


def read(octets, verifier=None):
    return [fields for fields, _ in unseal(octets, verifier=verifier)]


@pytest.mark.parametrize("signer", [None, ALICE])
def test_what_was_sealed_is_read_back(signer):
    octets = b"".join(chain(signer=signer))
    assert read(octets, signer) == RECORDS
    assert [head.line for _, head in unseal(octets, verifier=None)] == [1, 2, 3]


@pytest.mark.parametrize("signer", [None, ALICE])
def test_every_changed_byte_is_seen_and_its_line_is_named(signer):
    octets = b"".join(chain(signer=signer))
    for index, byte in enumerate(octets):
        number = octets.count(b"\n", 0, index) + 1
        for mask in (1, 4, 128):
            changed = octets[:index] + bytes([byte ^ mask]) + octets[index + 1 :]
            with pytest.raises(LedgerError, match=f"line {number} "):
                read(changed)


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2), (0, 1, 1, 2), (1, 2)])
def test_lines_cannot_be_moved_dropped_or_repeated(order):
    lines = chain()
    with pytest.raises(LedgerError, match="does not follow"):
        read(b"".join(lines[i] for i in order))


def test_a_rewritten_chain_needs_the_signers_key():
    for other in (BOB, None):
        with pytest.raises(LedgerError, match=r"line 1 .*not signed"):
            read(b"".join(chain(signer=other)), ALICE)


@pytest.mark.parametrize("signature", ["zz", "", 1, []])
def test_a_signature_that_is_none_is_refused(signature):
    fields = json.loads(chain()[0]) | {"signature": signature}
    del fields["digest"]
    line = json.dumps(fields | {"digest": _digest(fields)}, sort_keys=True, separators=(",", ":"))
    assert read(line.encode() + b"\n") == RECORDS[:1]
    with pytest.raises(LedgerError, match=r"line 1 .*not signed"):
        read(line.encode() + b"\n", ALICE)


@pytest.mark.parametrize("octets", [b"[]\n", b"{}\n", b"NaN\n", b"1e999\n", b"{", b"\n", b"\xff\n"])
def test_what_is_no_record_is_refused_with_its_line(octets):
    with pytest.raises(LedgerError, match="line 1 "):
        read(octets)


def test_a_record_that_json_cannot_hold_exactly_is_not_sealed():
    with pytest.raises(ValueError, match="JSON"):
        seal({"epsilon": float("nan")}, Head(), signer=None)
