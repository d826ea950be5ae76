"""A node: who it is, whom it knows, what it allows, and where it keeps account.

`Limits` are what a client demands whatever the server says. Nothing here needs Flower.
"""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skellam import _checks
from skellam.accounting.gdp import dominating, outside_by_distance
from skellam.engines.flower.client_state import Spending, StageLog
from skellam.engines.key_files import read_identity, read_public, read_roster
from skellam.errors import BudgetError, DataError, DomainError, TamperError, ThresholdError
from skellam.plan import CalibratedPlan, Noise, Servers, guarantees
from skellam.secagg import Identity, Party, Roster, RoundParameters
from skellam.twoserver import RunLimits
from skellam.twoserver import client as twoserver
from skellam.twoserver.constants import MAX_ROUNDS

if TYPE_CHECKING:
    from skellam.accounting import NoiseMechanism
    from skellam.accounting.ledger import Budget

NODE_CONFIG_KEY = "skellam"
"""The key of a SuperNode's ``--node-config`` that names its file."""
_SERVERS = ("leader", "helper")


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
        record = _read_toml(file)
        limits = record.pop("limits", None)
        names = {f.name: f.default is MISSING for f in fields(Limits)}
        required = [name for name, needed in names.items() if needed]
        if not isinstance(limits, dict) or not set(required) <= set(limits) <= set(names):
            raise DataError(
                f"{file} must have a table [limits] with {', '.join(required)}; "
                f"it may have {', '.join(sorted(set(names) - set(required)))}"
            )
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
            Limits(**limits),
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


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as a node's TOML file: {error}") from error
