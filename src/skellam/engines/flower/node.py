"""A node: who it is, whom it knows, what it allows, and the files in which it keeps account.

`Limits` are what a client demands whatever the server says. What Flower keeps for an app dies with
the run and can be read by another app of the same series, and two messages of a lying server may be
handled at the same time from the same state. So each stage of each round begins once, ever; every
participation is spent before the masked vector leaves; and what must outlive a stage lies beside
both, readable by the node's owner alone. Nothing here needs Flower.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.accounting.gdp import dominating, outside_by_distance
from skellam.accounting.ledger.file import is_ledger
from skellam.engines import durable
from skellam.engines.flower.round_config import RoundConfig
from skellam.engines.key_files import read_config, read_identity, read_public, read_roster
from skellam.errors import (
    BudgetError,
    DataError,
    DomainError,
    PhaseError,
    TamperError,
    ThresholdError,
)
from skellam.plan import CalibratedPlan, Noise, Servers, guarantees
from skellam.secagg import Identity, Party, Roster, RoundParameters
from skellam.twoserver import RunLimits
from skellam.twoserver import client as twoserver
from skellam.twoserver.constants import MAX_ROUNDS

if TYPE_CHECKING:
    from skellam.accounting import Mechanism, NoiseMechanism
    from skellam.accounting.ledger import Budget, Filter, Ledger

NODE_CONFIG_KEY = "skellam"
"""The key of a SuperNode's ``--node-config`` that names its file."""
_SERVERS = ("leader", "helper")
_FORMAT = b"skellam/round-in-progress/1"
_STAGE_LINE = re.compile(r"[0-9a-f]{0,64}|[0-9a-f]{64} [a-z_]*")
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most that a client gives away, and the least company that it accepts.

    Epsilon is that of this client against the server, which knows who takes part: no sampling
    helps. All of it is at ``delta``.
    """

    round_epsilon: float
    total_epsilon: float
    delta: float
    min_cohort: int
    """Fewest clients in a sum: participants less the dropouts that the plan tolerates."""
    max_participations: int
    min_colluding: float
    """Share of colluding clients that a plan must bear, in its noise and in the protocol."""
    min_colluders: int = 1
    """Colluding clients that every round must bear. A share is one of a cohort drawn at random; a
    server that picks its cohorts puts all its clients into one, and only their number bounds it."""
    max_dropout: float = 1 / 3
    """Largest share of dropouts that a plan may tolerate."""
    max_trainings: int | None = None
    """Rounds for which this node trains at all, also those that fail later; three times
    ``max_participations`` where it is not given."""
    helper_noise_alone: bool = False
    """Whether to take part where only the helper of two servers adds noise, and may see sums."""
    plans: tuple[str, ...] = ()
    """Digests, in hexadecimal, of the only plans to take part in; any plan where there are none."""
    models: tuple[str, ...] = ()
    """Digests, in hexadecimal, of the only models to train; any model where there are none."""

    def __post_init__(self) -> None:
        for name in ("round_epsilon", "total_epsilon"):
            _checks.assign(self, **{name: _checks.positive(name, getattr(self, name))})
        for name in ("delta", "min_colluding"):
            _checks.assign(self, **{name: _checks.open_unit(name, getattr(self, name))})
        for name, minimum in (("min_cohort", 2), ("max_participations", 1), ("min_colluders", 1)):
            _checks.assign(self, **{name: _checks.integer(name, getattr(self, name), minimum)})
        share = _checks.between("max_dropout", self.max_dropout, 0, 0.5)
        _checks.assign(self, max_dropout=share)
        trainings = self.max_trainings
        limit = 3 * self.max_participations if trainings is None else trainings
        _checks.assign(self, max_trainings=_checks.integer("max_trainings", limit, 1))
        for name in ("plans", "models"):
            digests = tuple(_digest(name, text) for text in getattr(self, name))
            _checks.assign(self, **{name: digests})

    @classmethod
    def for_simulation(cls) -> Limits:
        """Return limits that stop nothing, for nodes that are no real ones."""
        return cls(
            round_epsilon=1e6,
            total_epsilon=1e6,
            delta=1e-9,
            min_cohort=2,
            max_participations=10**9,
            min_colluding=1e-9,
            max_dropout=0.5,
            helper_noise_alone=True,
        )

    @property
    def run(self) -> RunLimits:
        """What is demanded of a run of two servers; the noise has its price."""
        return RunLimits(
            min_noise_multiplier=0.0,
            max_participations=MAX_ROUNDS,
            min_cohort=self.min_cohort,
            helper_noise_alone=self.helper_noise_alone,
        )

    def price(self, plan: CalibratedPlan) -> NoiseMechanism:
        """Return what one round of ``plan`` costs this client, computed from its noise alone.

        The plan's own statement of epsilon is not read. Raises `BudgetError` if the round costs
        more than ``round_epsilon``.
        """
        self._require_plan(plan)
        mechanism = guarantees.round_mechanism(plan)
        epsilon = _epsilon(mechanism, self.delta, self.round_epsilon)
        if not epsilon <= self.round_epsilon:
            raise BudgetError(
                f"limit round_epsilon: the plan costs {epsilon:.4g} a round at delta "
                f"{self.delta:g}; this node allows {self.round_epsilon:g}"
            )
        return mechanism

    def _require_plan(self, plan: CalibratedPlan) -> None:
        if plan.noise is not Noise.SKELLAM:
            raise DomainError(
                f'a fleet needs noise="skellam", got "{plan.noise}": only sums of Skellam noise '
                "have the planned law whatever the cohort"
            )
        if self.plans and plan.digest.hex() not in self.plans:
            raise TamperError("limit plans: this node takes part in other plans than this one")
        if plan.aggregation is Servers.TWO:
            return
        if not plan.colluding >= self.min_colluding:
            raise BudgetError(
                f"limit min_colluding: the plan bears {plan.colluding:.0%} of colluding clients; "
                f"this node demands {self.min_colluding:.0%}"
            )
        if not plan.dropout <= self.max_dropout:
            raise BudgetError(
                f"limit max_dropout: the plan bears {plan.dropout:.0%} of dropouts; this node "
                f"allows {self.max_dropout:.0%}"
            )

    @property
    def budget(self) -> Budget:
        """The budget over all rounds; it has a filter, for servers choose plans as they like."""
        from skellam.accounting.ledger import Budget, GdpFilter

        return Budget(self.total_epsilon, self.delta, GdpFilter())

    def require_cohort(self, *, survivors: int, colluders: int) -> None:
        """Raise `ThresholdError` unless enough are in the sum, and enough colluders are borne.

        Both follow from the participants that this client counted itself. With no tolerated
        colluder a single one, with half of the dropouts, could open every vector.
        """
        if survivors < self.min_cohort:
            raise ThresholdError(
                f"limit min_cohort: the sum may hold as few as {survivors}; "
                f"this node demands {self.min_cohort}"
            )
        if colluders < self.min_colluders:
            raise ThresholdError(
                f"limit min_colluders: in a cohort of this size the plan bears {colluders}; this "
                f"node demands {self.min_colluders}, so plan a larger share or a larger cohort"
            )

    def require_model(self, digest: bytes) -> None:
        """Raise `TamperError` if only other models may be trained."""
        if self.models and digest.hex() not in self.models:
            raise TamperError(
                "limit models: this node trains other models than the one it was given"
            )

    def require_turn(self, participations: int) -> None:
        """Raise `BudgetError` if this client took part ``participations`` times already."""
        if participations >= self.max_participations:
            raise BudgetError(
                f"limit max_participations: this node took part in {participations} rounds; "
                f"it allows {self.max_participations}"
            )

    def require_training(self, trainings: int) -> None:
        """Raise `BudgetError` if this client trained for ``trainings`` rounds already."""
        if self.max_trainings is not None and trainings >= self.max_trainings:
            raise BudgetError(
                f"limit max_trainings: this node trained for {trainings} rounds; "
                f"it allows {self.max_trainings}"
            )


# Its files.


@dataclass(frozen=True, slots=True)
class StageLog:
    """The stages that a node ever began, one line each."""

    path: Path

    def enter(self, round_id: bytes, stage: str, *, limits: Limits | None = None) -> None:
        """Note durably that ``stage`` begins; raise `TamperError` if it ever began before.

        With ``limits`` it counts as a training, and raises `BudgetError` if there were too many:
        under the lock, for a server may send two messages at once.
        """

        def check(lines: list[str]) -> None:
            begun = self._begun(lines)
            if [round_id.hex(), stage] in begun:
                raise TamperError(f"stage {stage} of this round began before; a replay is refused")
            if limits is not None:
                limits.require_training(_count(begun, stage))

        self._log.append(f"{round_id.hex()} {stage}", check=check)

    def count(self, stage: str) -> int:
        """Return in how many rounds ``stage`` began."""
        return _count(self._begun(self._log.lines()), stage)

    @property
    def _log(self) -> durable.Log:
        return durable.Log(self.path, durable.SECRET)

    def _begun(self, lines: list[str]) -> list[list[str]]:
        """Return round and stage of every line; version 0.1 left torn ones where it was killed."""
        for line in lines:
            if not _STAGE_LINE.fullmatch(line):
                raise DataError(
                    f"{self.path} was changed: a line is {line[:100]!r}; restore it from a copy"
                )
        return [line.split() for line in lines]


@dataclass(frozen=True, slots=True)
class Spending:
    """A node's ledger, made at first use."""

    path: Path
    limits: Limits

    def require_spendable(self, mechanism: Mechanism) -> None:
        """Raise `BudgetError` unless one more round by ``mechanism`` is within the limits."""
        with self._open() as ledger:
            self.limits.require_turn(len(ledger.account.spends))
            if not ledger.fits(mechanism):
                raise self._exhausted()

    def participations(self, plan: bytes) -> int:
        """Return how many rounds of the plan with this digest were spent."""
        if not is_ledger(self.path):
            return 0
        with self._open() as ledger:
            return sum(spend.note == _note(plan) for spend in ledger.account.spends)

    def spend(self, mechanism: Mechanism, *, key: bytes, plan: bytes, replayable: bool) -> None:
        """Spend one round durably, or raise `BudgetError` and change nothing."""
        with self._open() as ledger:
            self.limits.require_turn(len(ledger.account.spends))
            try:
                ledger.spend(
                    mechanism, adaptive=True, replayable=replayable, key=key, note=_note(plan)
                )
            except BudgetError:
                raise self._exhausted() from None

    @contextmanager
    def _open(self) -> Iterator[Ledger]:
        budget = self.limits.budget
        with open_ledger(
            self.path,
            epsilon=budget.epsilon,
            delta=budget.delta,
            filter_=budget.filter,
            mode=durable.SECRET,
        ) as ledger:
            if ledger.budget != budget:
                raise DomainError(
                    "this node's spend file was begun with another total_epsilon or delta; "
                    "these limits cannot change while the file is kept"
                )
            yield ledger

    def _exhausted(self) -> BudgetError:
        return BudgetError(
            f"limit total_epsilon: another round would exceed {self.limits.total_epsilon:g} at "
            f"delta {self.limits.delta:g}, over all runs that this node ever took part in"
        )


def open_ledger(
    path: Path,
    *,
    epsilon: float,
    delta: float,
    filter_: Filter | None = None,
    mode: int = durable.PUBLIC,
) -> Ledger:
    """Return the ledger at ``path``, which is made with ``mode`` if there is none."""
    from skellam.accounting.ledger import Ledger

    if is_ledger(path):
        return Ledger.open(path)
    return Ledger.open_or_create(path, epsilon=epsilon, delta=delta, filter=filter_, mode=mode)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RoundInProgress:
    """A round in progress; ``phase`` is as secret as the keys in it, ``update`` as the data.

    Without an ``update`` zeros are sent, and nothing is spent: none of the data was looked at.
    """

    config: RoundConfig
    content: bytes
    """Digest of all that this node was given to train on."""
    phase: bytes
    update: NDArray[np.floating[Any]] | None

    @property
    def protocol(self) -> RoundParameters:
        """What all parties to the round agree on."""
        return self.config.protocol(self.content)

    def then(self, phase: bytes, *, keep_update: bool = False) -> RoundInProgress:
        """Return the state for the next stage."""
        return replace(self, phase=phase, update=self.update if keep_update else None)

    def store(self, path: Path) -> None:
        """Write all of it, once, for the owner's eyes."""
        header = {
            "config": self.config.to_json(),
            "content": self.content.hex(),
            "phase": self.phase.hex(),
            "update": None if self.update is None else self.update.dtype.str,
        }
        vector = b"" if self.update is None else self.update.tobytes()
        octets = durable.seal(json.dumps(header).encode() + b"\n" + vector, _FORMAT)
        new = path.with_name(path.name + ".new")
        with durable.explained(path):
            with os.fdopen(os.open(new, _WRITE, durable.SECRET), "wb") as file:
                file.write(octets)
            # Not synced: what a crash brings back of earlier stages, the stage log keeps from use.
            new.rename(path)

    @classmethod
    def take(cls, path: Path) -> RoundInProgress:
        """Return the round in progress and remove it: whatever happens, it is used once."""
        mine = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            # Of two processes one gets the file; the other finds no round.
            path.rename(mine)
        except FileNotFoundError:
            raise PhaseError(
                "no round is in progress on this node; it must be asked to train first"
            ) from None
        with durable.explained(path, "read"):
            octets = durable.unseal(mine.read_bytes(), _FORMAT)
            mine.unlink()
        if octets is None:
            raise DataError(
                f"{path} was changed: its digest does not match; this node takes part again in "
                "the next round"
            )
        header, _, vector = octets.partition(b"\n")
        found = json.loads(header)
        dtype = found["update"]
        return cls(
            RoundConfig.from_json(found["config"]),
            bytes.fromhex(found["content"]),
            bytes.fromhex(found["phase"]),
            None if dtype is None else np.frombuffer(vector, dtype=np.dtype(dtype)),
        )


def wipe(path: Path) -> None:
    """Leave nothing of a round in progress, nor of one that a kill interrupted."""
    for file in (path, *path.parent.glob(f"{escape(path.name)}.*")):
        with durable.explained(file, "remove"):
            file.unlink(missing_ok=True)


# The node.


@dataclass(frozen=True, slots=True)
class Node:
    """One client of the fleet. ``spend`` is its ledger; its other files lie beside it.

    ``leader`` and ``helper`` are the public keys of two servers, where there are two.
    """

    identity: Identity
    roster: Roster
    limits: Limits
    spend: Path
    leader: bytes | None = None
    helper: bytes | None = None

    @classmethod
    def load(cls, path: str | Path) -> Node:
        """Read a node's TOML file; the paths in it are relative to its folder."""
        file = Path(path)
        limits, record = read_config(file, Limits)
        if set(record) - set(_SERVERS) != {"identity", "roster", "spend"}:
            raise DataError(
                f"{file} must name the files identity, roster and spend; with two servers also "
                "the public keys leader and helper"
            )
        if len(set(_SERVERS) & set(record)) == 1:
            raise DataError(f"{file} must name the public keys of both leader and helper")
        paths = {name: file.parent / str(value) for name, value in record.items()}
        return cls(
            read_identity(paths["identity"]),
            read_roster(paths["roster"]),
            limits,
            paths["spend"],
            *(read_public(paths[name]) for name in _SERVERS if name in paths),
        )

    @property
    def stages(self) -> StageLog:
        """What this node ever began."""
        return StageLog(self._sibling(".stages"))

    @property
    def spending(self) -> Spending:
        """What this node ever spent."""
        return Spending(self.spend, self.limits)

    @property
    def state(self) -> Path:
        """Where the round in progress is kept."""
        return self._sibling(".state")

    def party(self, round_: RoundParameters) -> Party:
        """Return this node as a party to ``round_``."""
        return Party(round_, self.roster, self.identity)

    @property
    def two_servers(self) -> twoserver.Party:
        """The node as a client of two servers, whose keys its own file names."""
        if self.leader is None or self.helper is None:
            raise DomainError(
                "this node knows no leader and helper; name their public keys in its file"
            )
        limits = self.limits
        return twoserver.Party(
            self.identity, self.leader, self.helper, limits.run, limits.max_participations
        )

    @property
    def reports(self) -> Path:
        """Where this node keeps what it ever sent to two servers."""
        return self._sibling(".reports")

    def _sibling(self, suffix: str) -> Path:
        return self.spend.with_name(self.spend.name + suffix)


def _digest(name: str, text: str) -> str:
    if not (isinstance(text, str) and len(text) == 64 and set(text) <= set("0123456789abcdef")):
        raise DomainError(
            f"{name} must hold SHA-256 digests in lower-case hexadecimal, got {text!r}"
        )
    return text


@lru_cache(maxsize=8)
def _epsilon(mechanism: NoiseMechanism, delta: float, enough: float) -> float:
    """Return a bound by Gaussian DP if it is at most ``enough``, else the least one known."""
    from skellam import accounting

    curve = dominating(mechanism)
    bound = replace(curve, slack=curve.slack + outside_by_distance(mechanism)).epsilon(delta)
    return bound if bound <= enough else accounting.epsilon(mechanism, delta=delta)


def _count(begun: list[list[str]], stage: str) -> int:
    return sum(found[1:] == [stage] for found in begun)


def _note(plan: bytes) -> str:
    return f"plan {plan.hex()}"
