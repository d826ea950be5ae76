"""Key files and TOML files of parties: identities, public keys, rosters, and limits."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

from skellam.engines import durable
from skellam.errors import DataError
from skellam.protocol.identity import Identity, Roster

PUBLIC_SUFFIX = ".pub"
_IDENTITY, _PUBLIC, _ROSTER = "skellam-identity", "skellam-public-key", "skellam-roster"
_VERSION = 1
_Limits = TypeVar("_Limits")


def write_identity(path: Path, identity: Identity) -> Path:
    """Write the secret key (readable by its owner alone) and, beside it, the public one."""
    public = path.with_name(path.name + PUBLIC_SUFFIX)
    record = {"number": identity.number, "key": identity.key.hex()}
    with durable.explained(path):
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, durable.SECRET)
        except FileExistsError as error:
            raise DataError(f"{path} exists; a key is never overwritten") from error
        with os.fdopen(descriptor, "wb") as file:
            file.write(_octets(_IDENTITY, record))
    shown = {"number": identity.number, "key": identity.public.hex()}
    durable.replace(public, _octets(_PUBLIC, shown), mode=durable.PUBLIC)
    return public


def read_identity(path: Path) -> Identity:
    """Return the identity that `write_identity` wrote."""
    record = _read(path, _IDENTITY)
    return Identity(*_entry(path, record))


def write_roster(path: Path, publics: Iterable[Path]) -> Roster:
    """Write the roster of all whose public keys are in the files ``publics``."""
    keys: dict[int, bytes] = {}
    for public in publics:
        number, key = _entry(public, _read(public, _PUBLIC))
        if number in keys:
            raise DataError(
                f"{public} has the number {number}, which another key has already; "
                "make one of them anew with `skellam keys new --number`"
            )
        keys[number] = key
    record = {"keys": {str(number): keys[number].hex() for number in sorted(keys)}}
    durable.replace(path, _octets(_ROSTER, record), mode=durable.PUBLIC)
    return Roster(keys)


def read_roster(path: str | Path) -> Roster:
    """Return the roster that `write_roster` wrote."""
    record = _read(Path(path), _ROSTER)
    try:
        return Roster({int(n): bytes.fromhex(key) for n, key in record["keys"].items()})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} is no roster; write one with `skellam keys roster`") from error


def read_public(path: Path) -> bytes:
    """Return the public key that `write_identity` wrote beside a secret one."""
    _, key = _entry(path, _read(path, _PUBLIC))
    if len(key) != 32:
        raise DataError(f"{path} has no public key of 32 bytes; copy it again from its client")
    return key


def read_config(path: Path, kind: type[_Limits]) -> tuple[_Limits, dict[str, Any]]:
    """Return the limits of a party's TOML file, in its table ``limits``, and what else is in it."""
    try:
        record = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read as TOML: {error}") from error
    limits = record.pop("limits", None)
    names = {f.name: f.default is MISSING for f in fields(kind)}  # type: ignore[arg-type]
    required = [name for name, needed in names.items() if needed]
    if not isinstance(limits, dict) or not set(required) <= set(limits) <= set(names):
        raise DataError(
            f"{path} must have a table [limits] with {', '.join(required)}; "
            f"it may have {', '.join(sorted(set(names) - set(required)))}"
        )
    return kind(**limits), record


def _octets(kind: str, record: dict[str, Any]) -> bytes:
    sealed = durable.seal_record({kind: _VERSION, **record})
    return f"{json.dumps(sealed, indent=1)}\n".encode()


def _read(path: Path, kind: str) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        # The file may hold a secret key: its text stays out of the message.
        raise DataError(f"{path} cannot be read as {kind}") from error
    if not isinstance(record, dict) or record.get(kind) != _VERSION:
        raise DataError(f"{path} is no {kind} of version {_VERSION}")
    try:
        return durable.unseal_record(record, optional=True)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _entry(path: Path, record: dict[str, Any]) -> tuple[int, bytes]:
    try:
        return int(record["number"]), bytes.fromhex(record["key"])
    except (KeyError, TypeError, ValueError):
        raise DataError(f"{path} has no number or no key; copy it again from its client") from None
