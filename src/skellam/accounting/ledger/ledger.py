"""The ledger: a durable record of spends, the account that follows from it, and their budget.

A spend is durable before `Ledger.spend` returns, and only then may anything be released
(`skellam.accounting.ledger.file` has the crash model). There is no record of what became of a
release: what was written counts, whether or not anybody saw it. An `Account` is what a ledger's
lines say, as values: every number is computed from the record and nothing else.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Self, final

from skellam import _checks
from skellam.accounting.guarantee import ZERO_OUT, Audience, Guarantee, Unit
from skellam.accounting.interop import from_record, to_record
from skellam.accounting.ledger.composition import (
    Admission,
    Budget,
    Filter,
    Filtered,
    epsilon_of,
    from_hex,
    take,
    to_hex,
)
from skellam.accounting.ledger.file import Head, LedgerFile, Signer, Verifier, read, seal, unseal
from skellam.accounting.mechanisms import Adjacency, Mechanism, noise_of, rate_of
from skellam.errors import BudgetError, DomainError, KindError, LedgerError

FIXED = "no mechanism, nor the number of rounds, was chosen from what earlier releases showed"
HIDDEN = "this audience learns neither who took part in a round nor how many"
FILTERED = "mechanisms were chosen from nothing but earlier releases and public knowledge"
_MAX_KEY_BYTES = 64


@dataclass(frozen=True, slots=True)
class Spend:
    """``rounds`` releases by ``mechanism``.

    ``adaptive`` says that the mechanism was chosen from what earlier releases showed,
    ``replayable`` that somebody who knows a seed can take the noise off. ``key`` names the release.
    """

    mechanism: Mechanism
    rounds: int = 1
    adaptive: bool = False
    replayable: bool = False
    key: bytes | None = None
    note: str = ""

    def __post_init__(self) -> None:
        _checks.integer("rounds", self.rounds, 1)
        if not isinstance(self.mechanism, Mechanism):
            raise KindError(f"mechanism must be one, got {type(self.mechanism).__name__}")
        for name in ("adaptive", "replayable"):
            if not isinstance(getattr(self, name), bool):
                raise KindError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if not isinstance(self.note, str):
            raise KindError(f"note must be a string, got {self.note!r}")
        if not (self.key is None or isinstance(self.key, bytes)):
            raise KindError(f"key must be bytes, got {type(self.key).__name__}")
        if self.key is not None and not 0 < len(self.key) <= _MAX_KEY_BYTES:
            raise DomainError(
                f"key must have 1 to {_MAX_KEY_BYTES} bytes, got {len(self.key)}; pass a digest"
            )

    def to_fields(self) -> dict[str, Any]:
        """Return the spend as JSON values."""
        return {
            "kind": "spend",
            "version": 1,
            "mechanism": to_record(self.mechanism),
            "rounds": self.rounds,
            "adaptive": self.adaptive,
            "replayable": self.replayable,
            "key": to_hex(self.key),
            "note": self.note,
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Return the spend that `to_fields` wrote; anything else raises `DomainError`."""
        names = ("mechanism", "rounds", "adaptive", "replayable", "key", "note")
        mechanism, rounds, adaptive, replayable, key, note = take(fields, "spend", *names)
        return cls(from_record(mechanism), rounds, adaptive, replayable, from_hex(key), note)


@dataclass(frozen=True, slots=True)
class Account:
    """A budget and every spend from it in order; ``rounds`` puts equal mechanisms together."""

    budget: Budget
    spends: tuple[Spend, ...] = ()
    rounds: Mapping[Mechanism, int] = field(default_factory=dict, repr=False)

    def plus(self, spend: Spend) -> Self:
        """Return the account after ``spend``, which may exceed the budget but must belong here."""
        rounds = dict(self.rounds)
        count(spend, self.budget, rounds)
        return replace(self, spends=(*self.spends, spend), rounds=rounds)

    def fits(self, mechanism: Mechanism, *, rounds: int = 1) -> bool:
        """Return whether the budget allows ``rounds`` more releases; nothing is spent."""
        more = _checks.integer("rounds", rounds, 1)
        return Admission(self.budget).admits(self.rounds, mechanism, more)

    def find(self, key: bytes) -> Spend | None:
        """Return the last spend under ``key``, if there is one."""
        return next((spend for spend in reversed(self.spends) if spend.key == key), None)

    def epsilon(self, delta: float | None = None) -> float:
        """Return an upper bound on epsilon at ``delta``, the budget's where none is given.

        A filter vouches for its whole capacity, so that is its epsilon from the first spend on.
        """
        budget = self.budget
        at = budget.delta if delta is None else _checks.open_unit("delta", delta)
        if not self.rounds:
            return 0.0
        if budget.filter is None:
            return epsilon_of(self.rounds, at)
        capacity = budget.filter.capacity(budget.epsilon, budget.delta).epsilon(at)
        return min(capacity, budget.epsilon) if at >= budget.delta else capacity

    def remaining(self) -> float:
        """Return the epsilon that is left of the budget, at the budget's delta."""
        budget = self.budget
        if budget.filter is None or not self.rounds:
            return budget.epsilon - self.epsilon()
        spent = Filtered(budget.filter)
        for mechanism, rounds in self.rounds.items():
            spent = spent.plus(mechanism, rounds)
        return budget.epsilon - spent.epsilon(budget.delta)

    def guarantee(
        self, *, audience: Audience = Audience.PUBLIC, participations: int | None = None
    ) -> Guarantee:
        """Return what holds for all that was spent; raise `LedgerError` where nothing does.

        The server sees who takes part: against it sampling is worth nothing, and the rounds that
        count are ``participations``, the largest number that any user took part in; all of them if
        it is not given.
        """
        self._require_secret_noise()
        if Audience(audience) is Audience.HELPER:
            raise LedgerError(
                "a ledger has what releases cost against the leader, and does not say whether the "
                "helper drew all their noise; ask the plan: plan.privacy(audience='helper')"
            )
        if Audience(audience) is Audience.PUBLIC:
            epsilon = self.epsilon()
            seen = (HIDDEN,) if any(rate_of(mechanism) < 1 for mechanism in self.rounds) else ()
        else:
            max_rounds = sum(self.rounds.values()) if participations is None else participations
            epsilon = self._epsilon_against_server(_checks.integer("participations", max_rounds, 1))
            seen = (f"a user takes part in at most {max_rounds} rounds",)
        filter_ = self.budget.filter
        return Guarantee(
            epsilon=epsilon,
            delta=self.budget.delta,
            unit=Unit.USER,
            adjacency=self.adjacency,
            audience=Audience(audience),
            accountant="composition" if filter_ is None else repr(filter_),
            assumptions=(*ZERO_OUT, *seen, FIXED if filter_ is None else FILTERED),
        )

    def _epsilon_against_server(self, participations: int) -> float:
        rounds: Counter[Mechanism] = Counter()
        for mechanism, number in self.rounds.items():
            rounds[noise_of(mechanism)] += min(number, participations)
        if self.budget.filter is not None:
            if any(rate_of(mechanism) < 1 for mechanism in self.rounds):
                raise LedgerError(
                    "a filter of sampled mechanisms says nothing against the server; "
                    "quote the public number, or spend from a ledger without a filter"
                )
            return self.epsilon()
        return epsilon_of(rounds, self.budget.delta)

    def _require_secret_noise(self) -> None:
        for number, spend in enumerate(self.spends, start=2):
            if spend.replayable:
                raise LedgerError(
                    f"line {number} was drawn from a seed, which can take its noise off again: "
                    "there is no guarantee; use SystemEntropy"
                )

    @property
    def adjacency(self) -> Adjacency:
        """Which data sets are neighbours; raises `LedgerError` while nothing was spent."""
        if not self.rounds:
            raise LedgerError("nothing was spent, so there is nothing to guarantee; spend first")
        return noise_of(next(iter(self.rounds))).adjacency


def count(spend: Spend, budget: Budget, rounds: dict[Mechanism, int]) -> None:
    """Add ``spend`` to ``rounds``, or raise `LedgerError` if it does not belong there."""
    if spend.adaptive and budget.filter is None:
        raise LedgerError(
            "this ledger has no filter, so no mechanism may depend on earlier releases; "
            "create one with filter=GdpFilter() or RdpFilter(order)"
        )
    if rounds:
        adjacency = noise_of(next(iter(rounds))).adjacency
        if noise_of(spend.mechanism).adjacency is not adjacency:
            raise LedgerError(
                f"this ledger's neighbours are those of {adjacency}, got "
                f"{noise_of(spend.mechanism).adjacency}; keep another ledger for others"
            )
    rounds[spend.mechanism] = rounds.get(spend.mechanism, 0) + spend.rounds


@final
class Ledger:
    """An append-only record of releases and the budget they share; one process may hold it.

    >>> with Ledger.create("run.ledger", epsilon=4, delta=1e-5) as ledger:  # doctest: +SKIP
    ...     ledger.spend(mechanism, key=b"round-1")  # raises BudgetError, or is durable
    ...     release()
    """

    def __init__(self, file: LedgerFile, lines: _Lines, signer: Signer | None) -> None:
        """Use `create`, `open` or `open_or_create`."""
        self._file = file
        self._lines = lines
        self._signer = signer
        self._admission = Admission(lines.budget)
        self._account: Account | None = None
        self._lock = threading.Lock()

    @classmethod
    def create(
        cls,
        path: str | PathLike[str],
        *,
        epsilon: float,
        delta: float,
        filter: Filter | None = None,  # noqa: A002  (the theorems' word)
        signer: Signer | None = None,
    ) -> Self:
        """Return a new ledger with a budget.

        Only with a ``filter`` may mechanisms depend on what earlier releases showed. Every line is
        signed by ``signer``, if there is one, for instance ``skellam.secagg.Seal(identity)``.
        """
        budget = Budget(epsilon, delta, filter, None if signer is None else signer.public_key)
        line, lines = _first(budget, signer)
        return cls(LedgerFile.create(_path(path), line), lines, signer)

    @classmethod
    def open(cls, path: str | PathLike[str], *, signer: Signer | None = None) -> Self:
        """Return the ledger at ``path``, every line checked, a torn last line completed.

        A ledger that was created with a ``signer`` needs it again: every signature is checked.
        """
        return cls._opened(*LedgerFile.open(_path(path)), signer)

    @classmethod
    def open_or_create(
        cls,
        path: str | PathLike[str],
        *,
        epsilon: float,
        delta: float,
        filter: Filter | None = None,  # noqa: A002  (the theorems' word)
        signer: Signer | None = None,
        mode: int = 0o644,
    ) -> Self:
        """Return the ledger at ``path``, a new one if there is none; its budget must be this one.

        Whatever a kill left of a `create` is gone on with. A new file is made with ``mode``.
        """
        budget = Budget(epsilon, delta, filter, None if signer is None else signer.public_key)
        line, lines = _first(budget, signer)
        file, octets = LedgerFile.open_or_create(_path(path), line, mode=mode)
        if octets is None:
            return cls(file, lines, signer)
        ledger = cls._opened(file, octets, signer)
        if ledger.budget != budget:
            ledger.close()
            raise LedgerError(
                f"{path} has a budget of {ledger.budget}, got {budget}; a budget cannot change: "
                "pass the ledger's own, or the path of another ledger"
            )
        return ledger

    @classmethod
    def _opened(cls, file: LedgerFile, octets: bytes, signer: Signer | None) -> Self:
        try:
            lines = _Lines.read(octets, signer)
            _require_signer(lines.budget, signer)
        except BaseException:
            file.close()
            raise
        return cls(file, lines, signer)

    @staticmethod
    def verify(path: str | PathLike[str], *, verifier: Verifier | None = None) -> Account:
        """Return the account at ``path``, or raise `LedgerError` naming the first line that fails.

        Changes nothing; somebody may be writing. Signatures are checked if ``verifier`` is given,
        for instance ``skellam.secagg.SealVerifier(public_key)``; without one, whoever could write
        the file could write another chain.
        """
        return read_ledger(path, verifier=verifier)[0]

    @property
    def budget(self) -> Budget:
        """What may be spent in all."""
        return self._lines.budget

    @property
    def head(self) -> Head:
        """The number and the digest of the last line; it stands for all lines up to it."""
        return self._lines.head

    @property
    def account(self) -> Account:
        """Everything that was spent so far, as a value."""
        if self._account is None:
            self._account = self._lines.account()
        return self._account

    def contains(self, head: Head) -> bool:
        """Return whether ``head`` was this ledger's once: whether it is the same one, gone on."""
        return self._lines.contains(head)

    def fits(self, mechanism: Mechanism, *, rounds: int = 1) -> bool:
        """Return whether the budget allows ``rounds`` more releases; nothing is spent."""
        more = _checks.integer("rounds", rounds, 1)
        with self._lock:
            return self._admission.admits(self._lines.rounds, mechanism, more)

    def spend(
        self,
        mechanism: Mechanism,
        *,
        rounds: int = 1,
        adaptive: bool = False,
        replayable: bool = False,
        key: bytes | None = None,
        note: str = "",
    ) -> Spend:
        """Write a release down before it is made, or raise `BudgetError` and change nothing.

        ``key`` names the release. Noise that replays gives the same bits under the same key, so a
        second spend costs nothing. Secret noise is drawn anew, and the first release may have been
        seen: a second spend costs again. Whoever still holds the first release asks
        ``ledger.account.find(key)`` instead. Another mechanism under the same key is refused.
        """
        spend = Spend(mechanism, rounds, adaptive, replayable, key, note)
        with self._lock:
            if key is not None and (known := self._lines.by_key.get(key)) is not None:
                if replace(known, note=note) != spend:
                    raise LedgerError(
                        f"the key {key!r} stands for another release: {known}; use a key of its own"
                    )
                if known.replayable:
                    return known
            self._require_budget(spend)
            line, head = seal(spend.to_fields(), self._lines.head, signer=self._signer)
            self._file.append(line)
            self._lines.add(spend, head)
            self._account = None
        return spend

    def _require_budget(self, spend: Spend) -> None:
        rounds = self._lines.rounds
        count(spend, self.budget, dict(rounds))
        if not self._admission.admits(rounds, spend.mechanism, spend.rounds):
            raise BudgetError(
                f"the release would exceed the budget of {self.budget}; nothing was spent and "
                "nothing may be released"
            )

    def epsilon(self, delta: float | None = None) -> float:
        """Return an upper bound on epsilon at ``delta``, the budget's where none is given."""
        return self.account.epsilon(delta)

    def remaining(self) -> float:
        """Return the epsilon that is left of the budget, at the budget's delta."""
        return self.account.remaining()

    def guarantee(
        self, *, audience: Audience = Audience.PUBLIC, participations: int | None = None
    ) -> Guarantee:
        """Return what holds for everything that was spent; `Account.guarantee` says more."""
        return self.account.guarantee(audience=audience, participations=participations)

    def close(self) -> None:
        """Let others write the ledger."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_ledger(
    path: str | PathLike[str], *, verifier: Verifier | None = None
) -> tuple[Account, Head]:
    """Return the account at ``path`` and the head that stands for it; see `Ledger.verify`."""
    lines = _Lines.read(read(_path(path)), verifier)
    return lines.account(), lines.head


@dataclass(slots=True)
class _Lines:
    """What the lines say so far, ready for the next one."""

    budget: Budget
    head: Head
    spends: list[Spend] = field(default_factory=list)
    rounds: dict[Mechanism, int] = field(default_factory=dict)
    by_key: dict[bytes, Spend] = field(default_factory=dict)
    digests: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, octets: bytes, verifier: Verifier | None) -> Self:
        """Return what ``octets`` say, or raise `LedgerError` naming the first line that fails."""
        lines: Self | None = None
        for fields, head in unseal(octets, verifier=verifier):
            try:
                if lines is None:
                    lines = cls(Budget.from_fields(fields), head, digests=[head.digest])
                else:
                    lines.add(Spend.from_fields(fields), head)
            except (ArithmeticError, LookupError, TypeError, ValueError, LedgerError) as error:
                raise LedgerError(f"line {head.line} of the ledger: {error}") from error
        if lines is None:
            raise LedgerError("the ledger is empty; restore the file and its tail from a copy")
        if verifier is not None and lines.budget.public_key != verifier.public_key:
            raise LedgerError("line 1 of the ledger names another signer, or none; pass that one")
        return lines

    def add(self, spend: Spend, head: Head) -> None:
        count(spend, self.budget, self.rounds)
        self.spends.append(spend)
        if spend.key is not None:
            self.by_key[spend.key] = spend
        self.head = head
        self.digests.append(head.digest)

    def contains(self, head: Head) -> bool:
        return 0 < head.line <= len(self.digests) and self.digests[head.line - 1] == head.digest

    def account(self) -> Account:
        return Account(self.budget, tuple(self.spends), dict(self.rounds))


def _require_signer(budget: Budget, signer: Signer | None) -> None:
    if signer is None and budget.public_key is not None:
        raise LedgerError(
            f"line 1 of the ledger names a signer, {budget.public_key.hex()}; pass it as signer=, "
            "or only read the ledger with Ledger.verify"
        )


def _first(budget: Budget, signer: Signer | None) -> tuple[bytes, _Lines]:
    line, head = seal(budget.to_fields(), Head(), signer=signer)
    return line, _Lines(budget, head, digests=[head.digest])


def _path(path: str | PathLike[str]) -> Path:
    try:
        return Path(path)
    except TypeError as error:
        raise KindError(f"path must be a path, got {type(path).__name__}") from error
