"""What a client demands, whatever the server says."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from skellam import _checks
from skellam.errors import BudgetError, DomainError, TamperError, ThresholdError
from skellam.plan import Noise, Plan, privacy

if TYPE_CHECKING:
    from skellam.accounting import Noise as Mechanism
    from skellam.accounting.ledger import Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most that a client gives away, and the least company that it accepts.

    Epsilon is that of this client against the server, which knows who takes part: no sampling
    helps. All of it is at ``delta``.
    """

    round_epsilon: float
    total_epsilon: float
    delta: float
    smallest_cohort: int
    most_participations: int
    least_colluding: float = 0.0
    """Share of colluding clients that a plan's noise must bear."""
    models: tuple[str, ...] = ()
    """Digests, in hexadecimal, of the only models to train; any model where there are none."""

    def __post_init__(self) -> None:
        for name in ("round_epsilon", "total_epsilon"):
            object.__setattr__(self, name, _checks.positive(name, getattr(self, name)))
        object.__setattr__(self, "delta", _checks.open_unit("delta", self.delta))
        for name, least in (("smallest_cohort", 2), ("most_participations", 1)):
            object.__setattr__(self, name, _checks.integer(name, getattr(self, name), least))
        share = _checks.between("least_colluding", self.least_colluding, 0, 1)
        object.__setattr__(self, "least_colluding", share)
        object.__setattr__(self, "models", tuple(map(_digest, self.models)))

    def price(self, plan: Plan) -> Mechanism:
        """Return what one round of ``plan`` costs this client, computed from its noise alone.

        The plan's own statement of epsilon is not read. Raises `BudgetError` if the round costs
        more than ``round_epsilon``.
        """
        if plan.noise is not Noise.SKELLAM:
            raise DomainError(
                f'a fleet needs noise="skellam", got "{plan.noise}": only sums of Skellam noise '
                "have the planned law whatever the cohort"
            )
        if plan.colluding < self.least_colluding:
            raise BudgetError(
                f"limit least_colluding: the plan's noise bears {plan.colluding:.0%} of colluding "
                f"clients; this node demands {self.least_colluding:.0%}"
            )
        mechanism = privacy.round_mechanism(plan)
        epsilon = _epsilon(mechanism, self.delta)
        if not epsilon <= self.round_epsilon:
            raise BudgetError(
                f"limit round_epsilon: the plan costs {epsilon:.4g} a round at delta "
                f"{self.delta:g}; this node allows {self.round_epsilon:g}"
            )
        return mechanism

    @property
    def terms(self) -> Terms:
        """The budget over all rounds; it has a filter, for servers choose plans as they like."""
        from skellam.accounting.ledger import GdpFilter, Terms

        return Terms(self.total_epsilon, self.delta, GdpFilter())

    def require_company(self, participants: int) -> None:
        """Raise `ThresholdError` unless as many take part, by this client's own count."""
        if participants < self.smallest_cohort:
            raise ThresholdError(
                f"limit smallest_cohort: {participants} take part; "
                f"this node demands {self.smallest_cohort}"
            )

    def require_model(self, digest: bytes) -> None:
        """Raise `TamperError` if only other models may be trained."""
        if self.models and digest.hex() not in self.models:
            raise TamperError(
                "limit models: this node trains other models than the one it was given"
            )

    def require_turn(self, participations: int) -> None:
        """Raise `BudgetError` if this client took part ``participations`` times already."""
        if participations >= self.most_participations:
            raise BudgetError(
                f"limit most_participations: this node took part in {participations} rounds; "
                f"it allows {self.most_participations}"
            )


def _digest(text: str) -> str:
    if not (isinstance(text, str) and len(text) == 64 and set(text) <= set("0123456789abcdef")):
        raise DomainError(
            f"models must hold SHA-256 digests in lower-case hexadecimal, got {text!r}"
        )
    return text


@lru_cache(maxsize=8)
def _epsilon(mechanism: Mechanism, delta: float) -> float:
    from skellam import accounting

    return accounting.epsilon(mechanism, delta=delta)
