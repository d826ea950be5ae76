"""Records as lines of canonical JSON, each bound to all before it by SHA-256.

A line is one JSON object: the fields of a record, ``line`` (its number), ``previous`` (the digest
of the line before), ``signature`` (over all of these, where there is a signer) and ``digest``
(over everything else, the signature too). A reader demands the very bytes that the writer would
have written, so no byte can change unseen. Unsigned, that guards against accidents alone: whoever
can write the file can write another chain.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from skellam.errors import LedgerError

Fields: TypeAlias = Mapping[str, Any]
_DOMAIN = b"skellam/ledger/1\n"
_GENESIS = "0" * 64


class Signer(Protocol):
    """An identity that signs, for instance with Ed25519."""

    @property
    def public_key(self) -> bytes:
        """The key that others verify with."""

    def sign(self, message: bytes) -> bytes:
        """Return the signature of ``message``."""


class Verifier(Protocol):
    """An identity whose signatures can be checked."""

    @property
    def public_key(self) -> bytes:
        """The key that verifies."""

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Return whether ``signature`` is this identity's for ``message``."""


@dataclass(frozen=True, slots=True)
class Head:
    """Where a chain ends: the number and the digest of its last line."""

    line: int = 0
    digest: str = _GENESIS


def seal(fields: Fields, head: Head, *, signer: Signer | None) -> tuple[bytes, Head]:
    """Return the line that binds ``fields`` to the chain ending at ``head``, and its new head."""
    line = {**fields, "line": head.line + 1, "previous": head.digest, "signature": None}
    if signer is not None:
        line["signature"] = signer.sign(_DOMAIN + _canonical(line)).hex()
    line["digest"] = _digest(line)
    return _canonical(line) + b"\n", Head(head.line + 1, line["digest"])


def unseal(octets: bytes, *, verifier: Verifier | None) -> Iterator[tuple[dict[str, Any], Head]]:
    """Yield the fields and the head of each line; raise `LedgerError` naming the first bad line."""
    head = Head()
    for raw in octets.splitlines(keepends=True):
        fields, head = _unseal_line(raw, head, verifier)
        yield fields, head


def _unseal_line(raw: bytes, head: Head, verifier: Verifier | None) -> tuple[dict[str, Any], Head]:
    number = head.line + 1
    fields, digest = _parse(raw, number)
    if (fields.pop("line", None), fields.pop("previous", None)) != (number, head.digest):
        raise LedgerError(f"line {number} of the ledger does not follow the line before it")
    signature = fields.pop("signature", None)
    if verifier is not None:
        signed = {**fields, "line": number, "previous": head.digest, "signature": None}
        if not _is_signed(signed, signature, verifier):
            raise LedgerError(f"line {number} of the ledger is not signed by the expected key")
    return fields, Head(number, digest)


def _parse(raw: bytes, number: int) -> tuple[dict[str, Any], str]:
    try:
        fields = json.loads(raw)
        canonical = isinstance(fields, dict) and _canonical(fields) + b"\n" == raw
        digest = str(fields.pop("digest", None)) if canonical else ""
        genuine = canonical and digest == _digest(fields)
    except (ValueError, RecursionError):
        genuine = False
    if not genuine:
        raise LedgerError(f"line {number} of the ledger was changed: its digest does not match")
    return fields, digest


def _is_signed(line: Fields, signature: object, verifier: Verifier) -> bool:
    try:
        octets = bytes.fromhex(signature) if isinstance(signature, str) else b""
    except ValueError:
        return False
    return verifier.verify(_DOMAIN + _canonical(line), octets)


def _digest(line: Fields) -> str:
    return hashlib.sha256(_DOMAIN + _canonical(line)).hexdigest()


def _canonical(line: Fields) -> bytes:
    text = json.dumps(line, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")
