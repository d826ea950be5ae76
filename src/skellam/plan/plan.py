"""The plan: one frozen value from which codec, noise, accounting and protocol all derive.

A `Plan` says what a run will do. `Plan.calibrated` finds what is left open and returns a
`CalibratedPlan`, whose chosen numbers are attributes and which cannot be changed piecemeal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

from skellam import _checks, codec
from skellam.accounting.guarantee import Audience, Guarantee
from skellam.codec import Codec, CodecSpec, WrapEstimate
from skellam.cohorts import Tolerance
from skellam.errors import DataError, DomainError, KindError, ThresholdError
from skellam.plan import choices, clipping, correlation, guarantees, integers, planner, sizes
from skellam.plan.choices import Accountant, Noise, NoiseBy, Rounding, Sampling, Servers, Signal
from skellam.plan.signal_model import PredictedError, SignalModel, predicted_error, wrap_probability

if TYPE_CHECKING:
    from skellam.accounting import Mechanism
    from skellam.plan.explanation import Explanation
    from skellam.plan.guarantees import AnyGuarantees

EXCESS: Final = 1.25
"""How much wider than planned a sum may spread: cohorts of varying size alone do that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run will do: vectors, cohort, noise and ring; `calibrated` finds what is left open.

    ``rounding``, ``block``, ``coordinate_bound``, ``signal_multiple``, ``scale``, ``tail``,
    ``min_cohort`` and ``participations`` are the planner's to choose unless they are given.
    """

    dimension: int
    clip: float
    cohort: int
    rounds: int
    population: int | None = None
    bits: int = 16
    sampling: Sampling = Sampling.POISSON
    participation_probability: float | None = None
    """Chance that an invited client encodes its update and not zeros, with ``sampling="self"``."""
    public_sizes: bool = False
    """Whether cohort sizes are public: then Poisson cohorts are accounted by Result D."""
    min_cohort: int | None = None
    """The smallest cohort that is summed; a round with fewer clients is skipped."""
    participations: int | None = None
    """Rounds whose data of one client may count; beyond them it sends zeros with its noise."""
    noise: Noise = Noise.SKELLAM
    aggregation: Servers = Servers.ONE
    """One server, or two that do not collude: then any number of clients may drop out or collude,
    and ``dropout`` and ``colluding`` stay 0."""
    noise_by: NoiseBy | None = None
    """With two servers, which of them add noise; "both" unless given."""
    correlation: str | tuple[int, ...] | None = None
    """Noise that cancels over rounds, with two servers and cyclic cohorts (Result C): the band, the
    integers by which the sums of the last rounds are multiplied, or ``"auto"``."""
    server_momentum: float = 0.0
    """Momentum of the server, which decides how noise adds up in the model, and so which band is
    best."""
    dropout: float = 0.0
    """Share of a cohort that may drop out without harm to the guarantee."""
    expected_dropout: float | None = None
    """Chance, at most, that a client really drops out, or never answers; half of ``dropout`` unless
    given, and 0.5 with two servers. What skipped or aborted rounds show is accounted for by it."""
    colluding: float = 0.0
    """Share of the population whose noise the server may know."""
    accountant: Accountant = Accountant.BEST
    rounding: Rounding | None = None
    beta: float = math.exp(-0.5)
    """Bias bound of conditional rounding."""
    l1: int | None = None
    """L1 bound of vectors of integers, with ``rounding="integer"``; ``clip`` is their L2 bound and
    ``coordinate_bound`` that of every entry."""
    block: int | None = None
    coordinate_bound: float | None = None
    signal_multiple: float | None = None
    scale: float | None = None
    compression: str | int | None = None
    """Rotated coordinates that are sent: a number, ``"auto"``, or ``None`` for all."""
    compression_error: float = 0.1
    """Relative growth of the error that ``compression="auto"`` may cause."""
    signal: Signal | float = Signal.ALIGNED
    """How updates add up: "aligned", "independent", or the norm of their mean over the clip."""
    quantile_noise: float | None = None
    """With adaptive clipping, the deviation of the noise on the share of clients within the clip;
    0.05 is a good value, and costs little where the cohort is large."""
    tail: float | None = None
    """Mass that a block of coordinates may leave uncertified; it is charged to delta."""
    target_epsilon: float | None = None
    target_delta: float | None = None

    def __post_init__(self) -> None:
        _check(self)

    # What the planner finds.

    def calibrated(self, *, epsilon: float, delta: float) -> CalibratedPlan:
        """Return the plan with the least predicted error whose public epsilon is at most this.

        With two servers and cohorts that are no secret, it holds against both servers too.
        Raises `InfeasibleError` where the bits cannot carry it, and names a width that can.
        """
        return planner.calibrated(_request(self), epsilon=epsilon, delta=delta)

    def matched(self, noise_multiplier: float, *, delta: float | None = None) -> CalibratedPlan:
        """Return the plan that is as private, round for round, as Gaussian noise of this size."""
        return planner.matched(_request(self), noise_multiplier, delta=delta)

    def with_noise(self, noise_multiplier: float, *, delta: float | None = None) -> CalibratedPlan:
        """Return the plan whose noise has exactly this standard deviation over the clip."""
        return planner.with_noise(_request(self), noise_multiplier, delta=delta)

    # Cohorts.

    @property
    def population_size(self) -> int:
        """The population, which is the cohort where everybody takes part."""
        return self.cohort if self.population is None else self.population

    @property
    def rate(self) -> float:
        """Chance that a client's data enters a round."""
        return self.cohort / self.population_size

    @property
    def selection_rate(self) -> float:
        """Chance that a client is asked for a message in a round."""
        return self.rate / (self.participation_probability or 1.0)

    @property
    def invited(self) -> int:
        """Expected number of clients that are asked for a message in a round."""
        return math.ceil(self.population_size * self.selection_rate * (1 - 1e-12))

    @property
    def groups(self) -> int:
        """Number of groups that ``sampling="cyclic"`` deals the population into."""
        return -(-self.population_size // self.cohort)

    @property
    def tolerance(self) -> Tolerance:
        """How many clients of a cohort may drop out, and how many may collude."""
        return sizes.tolerance(self)

    @property
    def clients_add_noise(self) -> bool:
        """Whether every client adds a share of the noise."""
        return self.noise.distributed and self.aggregation is Servers.ONE

    # JSON.

    def to_json(self) -> str:
        """Return the plan as JSON that `from_json` reads."""
        return choices.to_json(self)

    @staticmethod
    def from_json(text: str) -> Plan | CalibratedPlan:
        """Return the plan that `to_json` wrote; anything else raises."""
        return choices.from_json(text)

    def save(self, path: str | Path) -> None:
        """Write the plan to a file."""
        choices.write(Path(path), self)

    @staticmethod
    def load(path: str | Path) -> Plan | CalibratedPlan:
        """Read a plan from a file."""
        return choices.from_json(choices.read(Path(path)))

    @property
    def digest(self) -> bytes:
        """SHA-256 of the canonical JSON: what clients sign and bind their masks to."""
        return choices.digest(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedPlan(Plan):
    """A plan with its noise: what was asked for (`request`) and all that the planner chose.

    ``dataclasses.replace`` of what was asked for raises, since the noise would not fit any more:
    replace it in ``plan.request`` and calibrate again.
    """

    rounding: Rounding
    block: int
    signal_multiple: float
    """Deviations of the sum that half the modulus holds."""
    scale: float
    tail: float
    min_cohort: int
    participations: int
    variance: float
    """Of the noise that is guaranteed in a coordinate of the sum, integer domain; with two servers,
    of each one's."""
    padded_dim: int
    """Coordinates after padding and rotation."""
    sent_dim: int
    """Rotated coordinates that are sent."""
    request: Plan
    """What was asked for, without what the planner chose."""
    band: tuple[int, ...] = (1,)
    """What multiplies the sums of the last rounds before they are opened; (1,) where noise is
    independent."""

    def __post_init__(self) -> None:
        _check(self)
        _checks.non_negative("variance", self.variance)
        _checks.positive("scale", self.scale)
        _checks.open_unit("tail", self.tail)
        _checks.integer("min_cohort", self.min_cohort, 1)
        _checks.integer("participations", self.participations, 1)
        if not self.signal_multiple > 0:
            raise DomainError(f"signal_multiple must be positive, got {self.signal_multiple!r}")
        if not isinstance(self.rounding, Rounding):
            raise KindError(f"rounding must be a Rounding, got {self.rounding!r}")
        _checks.integer("padded_dim", self.padded_dim, 1)
        _checks.integer("sent_dim", self.sent_dim, 1, self.padded_dim)
        _checks.integer("block", self.block, 1, self.sent_dim)
        if self.correlation is not None or self.band != (1,):
            correlation.check_band(self)
        if not isinstance(self.request, Plan) or isinstance(self.request, CalibratedPlan):
            raise KindError(f"request must be a Plan, got {type(self.request).__name__}")
        for field in fields(Plan):
            name, value = field.name, getattr(self, field.name)
            if name not in CHOSEN and value != getattr(self.request, name):
                raise DomainError(
                    f"{name} must be {getattr(self.request, name)!r}, for which the plan was "
                    f"calibrated, got {value!r}; replace it in plan.request and calibrate again"
                )

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of the guaranteed noise in the sum, over the clip."""
        return math.sqrt(self.variance) / (self.scale * self.sent_clip)

    @property
    def sent_clip(self) -> float:
        """The clip of the coordinates that are sent: ``clip sqrt(sent_dim / padded_dim)``."""
        return self.clip * math.sqrt(self.sent_dim / self.padded_dim)

    @property
    def total_variance(self) -> float:
        """Variance of all the noise in a coordinate of the sum: colluders, or one of two servers,
        know a part of it.
        """
        return sizes.total_variance(self, self.variance)

    @property
    def correlated(self) -> bool:
        """Whether the noise of a round is taken back in part by later ones."""
        return self.band != (1,)

    def min_survivors(self, cohort: int) -> int:
        """Return how many of ``cohort`` clients must send their vector for the sum to be opened."""
        return sizes.min_survivors(self, cohort)

    # What it is worth.

    @property
    def mechanism(self) -> Mechanism:
        """One round as whoever the plan was calibrated against sees it; what a ledger spends."""
        return guarantees.target_mechanism(self)

    @property
    def server_mechanism(self) -> Mechanism:
        """One round in which a server knows that the client sent a message."""
        return guarantees.server_mechanism(self)

    @property
    def target_audience(self) -> Audience:
        """Against whom the plan is calibrated."""
        return guarantees.target_audience(self)

    def privacy(
        self,
        *,
        audience: Audience | str | None = None,
        delta: float | None = None,
        rounds: int | None = None,
        participations: int | None = None,
    ) -> Guarantee:
        """Return what ``rounds`` rounds cost against ``audience``.

        Without one it is whom the plan is calibrated against: the public, or with two servers and
        cohorts that are no secret the leader. A server knows who took part: for it
        ``participations`` of one client count, as many as the plan allows unless given.
        """
        return guarantees.guarantee(
            self,
            audience=self.target_audience if audience is None else Audience(audience),
            delta=delta,
            rounds=rounds,
            participations=participations,
        )

    def releases(
        self,
        *,
        audience: Audience | str | None = None,
        rounds: int | None = None,
        participations: int | None = None,
    ) -> tuple[Mechanism, int]:
        """Return what ``audience`` sees of one client: a mechanism, and how often.

        Raises where the audience knows all the noise, as a helper does that alone draws it.
        """
        against = self.target_audience if audience is None else Audience(audience)
        if self.variance and not guarantees.unknown_variance(self, against):
            raise DomainError(f"the {against} draws all the noise: against it nothing is private")
        return guarantees.releases(
            self,
            audience=against,
            rounds=self.rounds if rounds is None else rounds,
            participations=participations,
        )

    def guarantees(self, *, rounds: int | None = None, delta: float | None = None) -> AnyGuarantees:
        """Return what ``rounds`` rounds cost against all audiences, to be quoted together."""
        return guarantees.all_guarantees(self, rounds=rounds, delta=delta)

    def mean_participations(self, rounds: int | None = None) -> int:
        """Return the expected number of messages that a client sends, rounded up."""
        return sizes.mean_participations(self, self.rounds if rounds is None else rounds)

    @property
    def effective_multiplier(self) -> float:
        """Noise multiplier of the Gaussian mechanism that dominates one round.

        With a band, of one participation, which shows in as many rounds as the band is long.
        """
        return guarantees.effective_multiplier(self)

    @property
    def error(self) -> PredictedError:
        """Expected squared error of a coordinate of the mean, by its causes.

        With a band, that of independent rounds which leave as much in the model, mean over rounds.
        """
        if self.noise.continuous or integers.is_integer(self):
            return PredictedError(noise=self.total_variance / self.cohort**2)
        return predicted_error(
            SignalModel.of(self), self.scale, self.noise_multiplier, self.coordinate_bound
        )

    @property
    def relative_error(self) -> float:
        """Predicted squared error over that of continuous Gaussian noise, same guarantee."""
        return self.error.total / (self.effective_multiplier * self.clip / self.cohort) ** 2

    @property
    def wrap_probability(self) -> float:
        """Chance that one coordinate of the sum wraps around, should the signal be as planned."""
        if integers.is_integer(self):
            return integers.WRAP
        return wrap_probability(SignalModel.of(self), self.scale, self.noise_multiplier)

    @property
    def modulus(self) -> int:
        """The number of residues."""
        return 1 << self.bits

    def signal_warning(self, wrap: WrapEstimate) -> str | None:
        """Return what to say of a released sum, if it spreads wider than ``signal`` allows.

        It must exceed the planned spread by `EXCESS`, and by three standard errors: 1e-3 of all
        sums that spread exactly so far.
        """
        planned = self.modulus / (2 * self.signal_multiple)
        wide = wrap.deviation - 3 * wrap.standard_error > EXCESS * planned
        if self.rounding is Rounding.INTEGER or not wide:
            return None
        return (
            f"the sum has a deviation of {wrap.deviation:.4g} and signal={self.signal!s} was "
            f"planned for {planned:.4g}: half the modulus holds {wrap.k:.3g} of them instead of "
            f"{self.signal_multiple:g}, and a coordinate wraps with a chance of "
            f"{wrap.probability:.2g}; privacy is not touched, the mean is; "
            'plan with signal="aligned", or with more bits'
        )

    @property
    def bytes_per_client(self) -> int:
        """Size of one packed message, without the protocol's keys and shares."""
        numbers = self.sent_dim + (self.quantile_noise is not None)
        return -(-numbers * self.bits // 8)

    def explain(self) -> Explanation:
        """Return every number of the plan with the reason for it."""
        from skellam.plan.explanation import explain

        return explain(self)

    @staticmethod
    def from_json(text: str) -> CalibratedPlan:
        """Return the calibrated plan that `to_json` wrote; anything else raises."""
        return _require_calibrated(choices.from_json(text))

    @staticmethod
    def load(path: str | Path) -> CalibratedPlan:
        """Read a calibrated plan from a file."""
        return _require_calibrated(choices.from_json(choices.read(Path(path))))

    # The reverse questions.

    def min_bits(self, *, relative_error: float) -> int:
        """Return the fewest bits with which the error is at most ``1 + relative_error`` times
        that of continuous Gaussian noise.
        """
        return planner.min_bits(self, relative_error=relative_error)

    def max_rounds(self, *, epsilon: float, delta: float | None = None) -> int:
        """Return how many rounds of this noise the budget allows."""
        return guarantees.max_rounds(self, epsilon=epsilon, delta=delta)

    # What derives from it.

    def spec(self, *, cohort: int | None = None) -> CodecSpec:
        """Return the arithmetic of a round with ``cohort`` clients on the participant list."""
        clients = self.invited if cohort is None else _checks.integer("cohort", cohort, 1)
        if clients < self.min_cohort:
            raise ThresholdError(
                f"{clients} clients take part; the plan needs {self.min_cohort}, so skip the round"
            )
        return codec.CodecSpec(
            dimension=self.dimension,
            clip=self.clip,
            scale=self.scale,
            bits=self.bits,
            rounding=_rounding_spec(self),
            noise=_noise_spec(self, self.variance, clients),
            padded_dim=self.padded_dim,
            sent_dim=self.sent_dim,
            clip_count=None
            if self.quantile_noise is None
            else _noise_spec(self, clipping.count_variance(self), clients),
        )

    def codec(self, *, public_seed: bytes, cohort: int | None = None) -> Codec:
        """Return the codec of one round; the noise in the sum is the same for every cohort."""
        return Codec(self.spec(cohort=cohort), public_seed=public_seed)

    def round_seed(self, *, model: bytes, round_: int) -> bytes:
        """Return the public seed of a round: it follows from plan, model and round number alone.

        With a band it is the same in all rounds: their sums are added up as they are.
        """
        if self.correlated:
            model, round_ = bytes(32), 0
        return codec.public_seed(plan=self.digest, model=model, round_=round_)


CHOSEN: Final = frozenset(
    {
        *("rounding", "block", "coordinate_bound", "signal_multiple", "scale", "tail"),
        *("min_cohort", "participations"),
    }
)
"""Fields of a `Plan` that the planner fills in where they are None."""


def _check(plan: Plan) -> None:
    """Raise unless every field is in its domain; turn strings into members of their sets."""
    clipping.check_clip(plan)
    choices.check(plan)
    integers.check(plan)
    clipping.check(plan)
    if plan.correlation is not None:
        correlation.check(plan)


def _request(plan: Plan) -> Plan:
    return plan.request if isinstance(plan, CalibratedPlan) else plan


def _require_calibrated(plan: Plan) -> CalibratedPlan:
    if not isinstance(plan, CalibratedPlan):
        raise DataError("the plan has no noise yet; call .calibrated(epsilon=, delta=) and save it")
    return plan


def _rounding_spec(plan: CalibratedPlan) -> codec.RoundingSpec:
    match plan.rounding:
        case Rounding.UNBIASED:
            return codec.Unbiased(plan.coordinate_bound)
        case Rounding.CONDITIONAL:
            return codec.Conditional(plan.beta)
        case Rounding.INTEGER:
            return codec.Integer(coordinate_bound=int(plan.coordinate_bound or 1), l1=plan.l1 or 1)


def _noise_spec(plan: CalibratedPlan, guaranteed: float, clients: int) -> codec.NoiseSpec:
    total = sizes.total_variance(plan, guaranteed)
    if plan.aggregation is Servers.TWO and plan.noise is Noise.SKELLAM:
        return codec.CentralSkellam(total)
    shares = plan.tolerance.survivors(clients)
    removable = plan.tolerance.dropout > 0
    match plan.noise:
        case Noise.SKELLAM:
            return codec.SkellamShares(total, shares, removable)
        case Noise.CENTRAL_SKELLAM:
            return codec.CentralSkellam(total)
        case Noise.DISCRETE_GAUSSIAN:
            return codec.DiscreteGaussianShares(math.sqrt(total / shares), shares, removable)
        case Noise.CENTRAL_DISCRETE_GAUSSIAN:
            return codec.CentralDiscreteGaussian(math.sqrt(total))
        case Noise.NONE:
            return codec.NoNoise()
        case Noise.GAUSSIAN:
            raise DomainError(
                f'noise="{plan.noise}" is continuous, goes through no ring and has no codec; '
                'take noise="skellam"'
            )
