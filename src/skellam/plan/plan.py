"""The joint: one frozen plan, from which codec, noise, accounting and protocol all derive."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from skellam.accounting.guarantee import Audience, Guarantee
from skellam.codec import Codec, CodecSpec
from skellam.errors import DomainError
from skellam.plan import checks, cohorts, planner, privacy, records, specs, whole
from skellam.plan.choices import Accountant, Noise, Rounding, Sampling
from skellam.plan.cohorts import Tolerance
from skellam.plan.load import PredictedError, predicted_error, wrap_probability
from skellam.plan.solution import Solution

if TYPE_CHECKING:
    from skellam.accounting.mechanisms import Mechanism
    from skellam.plan.explanation import Explanation


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run will do: vectors, cohort, noise and ring; `calibrated` finds what is left open.

    ``rounding``, ``block``, ``largest``, ``signal_multiple`` and ``scale`` are the planner's to
    choose unless they are given. ``solution`` holds what it chose.
    """

    dimension: int
    clip: float
    cohort: int
    rounds: int
    population: int | None = None
    bits: int = 16
    sampling: Sampling = Sampling.POISSON
    coin: float | None = None
    """Chance that an invited client sends its update and not zeros, with ``sampling="self"``."""
    noise: Noise = Noise.SKELLAM
    dropout: float = 0.0
    """Share of a cohort that may vanish without harm to the guarantee."""
    colluding: float = 0.0
    """Share of a cohort whose noise the server may know."""
    removable: bool = False
    """Whether noise for dropouts is added first and removed again, instead of left in."""
    accountant: Accountant = Accountant.BEST
    rounding: Rounding | None = None
    beta: float = math.exp(-0.5)
    """Bias bound of conditional rounding."""
    l1: int | None = None
    """L1 bound of vectors of whole numbers, with ``rounding="whole"``; ``clip`` is their L2 bound
    and ``largest`` that of every entry."""
    block: int | None = None
    largest: float | None = None
    signal_multiple: float | None = None
    scale: float | None = None
    compression: str | int | None = None
    """Rotated coordinates that travel: a number, ``"auto"``, or ``None`` for all."""
    compression_loss: float = 0.1
    """Growth of the error that ``compression="auto"`` may cause."""
    mean_norm_ratio: float = 1.0
    """Norm of the mean update over the clip; 1 is the worst case."""
    quantile_noise: float | None = None
    """With adaptive clipping, the deviation of the noise on the share of clients within the clip;
    0.05 is a good value, and costs little where the cohort is large."""
    tail: float | None = None
    """Mass that a block of coordinates may leave uncertified; it is charged to delta."""
    epsilon: float | None = None
    """The target that the plan was calibrated for; `privacy` says what it really costs."""
    delta: float | None = None
    solution: Solution | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        checks.check(self)

    # What the planner finds.

    def calibrated(self, *, epsilon: float, delta: float) -> Self:
        """Return the plan with the least predicted error whose public epsilon is at most this.

        Raises `InfeasibleError` where the bits cannot carry it, and names the fewest that can.
        """
        return planner.calibrated(self, epsilon=epsilon, delta=delta)

    def matched(self, noise_multiplier: float, *, delta: float | None = None) -> Self:
        """Return the plan that is as private, round for round, as Gaussian noise of this size."""
        return planner.matched(self, noise_multiplier, delta=delta)

    def with_noise(self, noise_multiplier: float, *, delta: float | None = None) -> Self:
        """Return the plan whose noise has exactly this standard deviation over the clip."""
        return planner.with_noise(self, noise_multiplier, delta=delta)

    @property
    def solved(self) -> Solution:
        """The solution, or an error that says how to get one."""
        if self.solution is None:
            raise DomainError(
                "the plan has no noise yet; call .calibrated(epsilon=, delta=) or .with_noise(z)"
            )
        return self.solution

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of the guaranteed noise in the sum, over the clip."""
        return self.solved.noise_multiplier(self.clip)

    @property
    def variance(self) -> float:
        """Variance of the guaranteed noise in a coordinate of the sum, integer domain."""
        return self.solved.variance

    # What it is worth.

    @property
    def mechanism(self) -> Mechanism:
        """One round as the public sees it."""
        return privacy.public_mechanism(self)

    def privacy(
        self,
        *,
        audience: Audience | str = Audience.PUBLIC,
        delta: float | None = None,
        rounds: int | None = None,
        participations: int | None = None,
    ) -> Guarantee:
        """Return what ``rounds`` rounds cost against ``audience``.

        The server knows who took part: for it ``participations`` of one user count (the mean
        number, unless given).
        """
        return privacy.guarantee(
            self,
            audience=Audience(audience),
            delta=delta,
            rounds=rounds,
            participations=participations,
        )

    @property
    def effective_multiplier(self) -> float:
        """Noise multiplier of the Gaussian mechanism that dominates one round."""
        return privacy.effective_multiplier(self)

    @property
    def error(self) -> PredictedError:
        """Expected squared error of a coordinate of the mean, by its causes."""
        if self.noise.continuous or whole.is_whole(self):
            surplus = cohorts.surplus(self, self.invited)
            return PredictedError(noise=self.variance * surplus / self.cohort**2)
        s = self.solved
        return predicted_error(specs.load(self), s.scale, self.noise_multiplier, s.largest)

    @property
    def loss(self) -> float:
        """Predicted error over that of continuous Gaussian noise at the same guarantee."""
        return self.error.total / (self.effective_multiplier * self.clip / self.cohort) ** 2

    @property
    def wrap_probability(self) -> float:
        """Chance that one coordinate of the sum wraps around, should the signal be as planned."""
        if whole.is_whole(self):
            return whole.WRAP
        return wrap_probability(specs.load(self), self.solved.scale, self.noise_multiplier)

    @property
    def bytes_per_client(self) -> int:
        """Size of one packed message, without the protocol's keys and shares."""
        numbers = self.solved.kept + (self.quantile_noise is not None)
        return -(-numbers * self.bits // 8)

    def explain(self) -> Explanation:
        """Return every number of the plan with the reason for it."""
        from skellam.plan.explanation import explain

        return explain(self)

    # The reverse questions.

    def fewest_bits(self, *, loss: float) -> int:
        """Return the fewest bits with which the error stays within ``1 + loss`` of Gaussian's."""
        return planner.fewest_bits(self, loss=loss)

    def most_rounds(self, *, epsilon: float, delta: float | None = None) -> int:
        """Return how many rounds of this noise the budget allows."""
        return planner.most_rounds(self, epsilon=epsilon, delta=delta)

    # What derives from it.

    def tolerance(self, invited: int) -> Tolerance:
        """Return how many of ``invited`` clients may vanish, and how many may collude."""
        return cohorts.tolerance(self, invited)

    def spec(self, *, shares: int | None = None, tolerated: Tolerance | None = None) -> CodecSpec:
        """Return the arithmetic of a round in which ``shares`` clients add noise."""
        return specs.spec(self, shares=shares, tolerated=tolerated)

    def codec(
        self, *, public_seed: bytes, shares: int | None = None, tolerated: Tolerance | None = None
    ) -> Codec:
        """Return the codec of one round; every cohort carries exactly the planned variance."""
        return Codec(self.spec(shares=shares, tolerated=tolerated), public_seed=public_seed)

    @property
    def invited(self) -> int:
        """Expected number of clients that send a message in a round."""
        return math.ceil(self.people * cohorts.invitation_rate(self))

    @property
    def people(self) -> int:
        """The population, which is the cohort where everybody takes part."""
        return self.cohort if self.population is None else self.population

    # JSON.

    def to_json(self) -> str:
        """Return the plan as JSON that `from_json` reads."""
        return records.to_json(self)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the plan that `to_json` wrote; anything else raises."""
        return records.from_json(cls, text)

    def save(self, path: str | Path) -> None:
        """Write the plan to a file."""
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a plan from a file."""
        return cls.from_json(records.read(Path(path)))

    @property
    def digest(self) -> bytes:
        """SHA-256 of the canonical JSON: what clients sign and bind their masks to."""
        return records.digest(self)
