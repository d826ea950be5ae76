"""Guarantees: the mechanism of a round, and what rounds cost against the public and the servers.

The sensitivity is the one that the codec states for the very arithmetic it will do, and the
variance is the one that the noise is drawn with: neither is written down twice. This is the only
place where a plan's guarantees are made; training, Flower and reports ask it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, assert_never

from skellam import _checks, accounting, codec
from skellam.accounting.guarantee import ZERO_OUT, Audience, Guarantee, Unit
from skellam.errors import DomainError, InfeasibleError
from skellam.noise import ATOM_ERROR, DRAW_DISTANCE
from skellam.plan import clipping, sizes
from skellam.plan.choices import Noise, NoiseBy, Rounding, Sampling, Servers

if TYPE_CHECKING:
    from skellam.plan.plan import CalibratedPlan, Plan

_RARE_SIZE = 1e-15
"""Chance of a cohort so large that its discrete Gaussian shares are thinner than accounted for."""


def target_audience(plan: Plan) -> Audience:
    """Return whom a plan is calibrated against: whoever is not trusted with its weakest number.

    Of two servers each knows its own noise; where cohorts are no secret, that is all that the
    public lacks, and one epsilon holds against everybody.
    """
    if plan.aggregation is Servers.TWO and not plan.sampling.random:
        return Audience.LEADER
    return Audience.PUBLIC


def unknown_variance(plan: CalibratedPlan, audience: Audience) -> float:
    """Return the variance of the noise that ``audience`` cannot know, or of a part of it.

    Secret cohorts are accounted for with one server's noise: a line of a ledger without its
    sampling must be true for the other server.
    """
    match audience:
        case Audience.PUBLIC if plan.aggregation is Servers.TWO and not plan.sampling.random:
            return plan.total_variance
        case Audience.HELPER if plan.noise_by is NoiseBy.HELPER:
            return 0.0
        case _:
            return plan.variance


def round_mechanism(
    plan: CalibratedPlan, audience: Audience | None = None
) -> accounting.NoiseMechanism:
    """Return one round, for an ``audience`` that knows that the client took part.

    With a band it is one participation, in all rounds that it shows in. Without an audience it is
    whom the plan is calibrated against.
    """
    variance = unknown_variance(plan, audience or target_audience(plan))
    if plan.noise is Noise.GAUSSIAN:
        return accounting.Gaussian(sigma=plan.noise_multiplier * plan.clip, l2=plan.clip)
    bound = codec.sensitivity(plan.spec())
    if plan.correlated:
        vector = _participation(plan, bound, variance)
    elif isinstance(bound, codec.RealSensitivity):
        vector = _rounded(plan, bound, variance)
    else:
        vector = _integer(plan, bound, variance)
    if plan.quantile_noise is None:
        return _as_drawn(plan, vector, plan.sent_dim)
    one = codec.IntegerSensitivity(l2=1.0, l1=1.0, dimension=1)
    count = _integer(plan, one, clipping.count_variance(plan))
    return accounting.Joint((_as_drawn(plan, vector, plan.sent_dim), _as_drawn(plan, count, 1)))


def _as_drawn(
    plan: CalibratedPlan, mechanism: accounting.NoiseMechanism, coordinates: int
) -> accounting.NoiseMechanism:
    """Return ``mechanism`` with what its sampler owes to everybody's draws, and crowded cohorts."""
    draws = plan.population_size if plan.clients_add_noise else 2
    return replace(
        mechanism,
        sampler_distance=min(1.0, mechanism.sampler_distance + coordinates * draws * DRAW_DISTANCE),
        atom_error=min(1.0, draws * ATOM_ERROR) if plan.noise.skellam else 0.0,
        rare=min(1.0, mechanism.rare + sizes.crowded(plan)),
    )


def _participation(
    plan: CalibratedPlan, bound: codec.Sensitivity, variance: float
) -> accounting.NoiseMechanism:
    """Return one participation in correlated rounds (Result C): all rounds that it shows in."""
    if isinstance(bound, codec.IntegerSensitivity):
        return accounting.BandedSkellam(
            variance=variance,
            l2=bound.l2,
            band=plan.band,
            separation=plan.groups,
            dimension=bound.dimension,
        )
    return accounting.RoundedBandedSkellam(
        variance=variance,
        l2=bound.l2,
        band=plan.band,
        separation=plan.groups,
        dimension=bound.dimension,
        tail=plan.tail,
        block=plan.block,
        coordinate_bound=bound.coordinate_bound,
    )


def _rounded(
    plan: CalibratedPlan, bound: codec.RealSensitivity, variance: float
) -> accounting.NoiseMechanism:
    if not plan.noise.skellam:
        raise DomainError(
            f'unbiased rounding is accounted for Skellam noise; take rounding="conditional" '
            f'with noise="{plan.noise}"'
        )
    return accounting.RoundedSkellam(
        variance=variance,
        l2=bound.l2,
        dimension=bound.dimension,
        tail=plan.tail,
        block=plan.block,
        coordinate_bound=bound.coordinate_bound,
    )


def _integer(
    plan: CalibratedPlan, bound: codec.IntegerSensitivity, variance: float
) -> accounting.NoiseMechanism:
    l2, l1, dimension = bound.l2, bound.l1, bound.dimension
    match plan.noise:
        case Noise.SKELLAM | Noise.CENTRAL_SKELLAM:
            return accounting.Skellam(variance, l2, l1, dimension)
        case Noise.CENTRAL_DISCRETE_GAUSSIAN:
            return accounting.DiscreteGaussian(math.sqrt(variance), l2, l1, dimension)
        case Noise.DISCRETE_GAUSSIAN:
            return _discrete_gaussian_shares(plan, bound, variance)
        case Noise.GAUSSIAN | Noise.NONE:
            raise InfeasibleError(
                f'a plan with noise="{plan.noise}" has no guarantee for integers; take "skellam"'
            )
        case _ as never:
            assert_never(never)


def _discrete_gaussian_shares(
    plan: CalibratedPlan, bound: codec.IntegerSensitivity, variance: float
) -> accounting.NoiseMechanism:
    """Return the sum of discrete Gaussian shares, whose law depends a little on their number.

    Where sizes are secret, or colluders know a part that depends on them, it is taken for one
    discrete Gaussian of the variance that is left in every cohort, from which the sum of any number
    of shares is at most tau away in log-probability (Kairouz, Liu, Steinke 2021, theorem 1).
    Otherwise the largest cohort has the thinnest shares.
    """
    l2, l1, dimension = bound.l2, bound.l1, bound.dimension
    total = sizes.total_variance(plan, variance)
    if not plan.sampling.secret and not plan.colluding:
        shares = plan.tolerance.survivors(plan.cohort)
        return accounting.DistributedDiscreteGaussian(
            math.sqrt(total / shares), shares, l2, l1, dimension
        )
    shares = plan.tolerance.survivors(sizes.max_planned(plan, _RARE_SIZE))
    tau = accounting.sum_distance(math.sqrt(total / shares), shares)
    return accounting.DiscreteGaussian(
        math.sqrt(variance),
        l2,
        l1,
        dimension,
        sampler_distance=min(1.0, dimension * tau),
        rare=_RARE_SIZE,
    )


def public_mechanism(plan: CalibratedPlan) -> accounting.Mechanism:
    """Return one round as whoever does not know its members sees it."""
    mechanism = round_mechanism(plan, Audience.PUBLIC)
    distance = sizes.stop_distance(plan)
    if distance:
        mechanism = replace(mechanism, distance=distance)
    match plan.sampling:
        case Sampling.POISSON if plan.public_sizes:
            return _known_size(plan, mechanism)
        case Sampling.FIXED if sizes.expected_dropout(plan):
            return _known_size(plan, mechanism)
        case Sampling.POISSON | Sampling.SELF:
            decided = sizes.deciding_chance(plan, plan.min_cohort)
            mechanism = replace(mechanism, rare=min(1.0, mechanism.rare + decided))
            return _sampled(mechanism, sizes.run_rates(plan), plan.participation_probability or 1.0)
        case Sampling.FIXED:
            return accounting.SampledWithoutReplacement(
                mechanism, plan.cohort, plan.population_size
            )
        case Sampling.ALL | Sampling.CYCLIC:
            return mechanism
        case _ as never:
            assert_never(never)


def _known_size(plan: CalibratedPlan, mechanism: accounting.NoiseMechanism) -> accounting.Mechanism:
    population, run_chance = sizes.known_size(plan)
    rare = min(1.0, mechanism.rare + sizes.rare_absence(plan))
    return accounting.SampledKnownSize(
        replace(mechanism, rare=rare), plan.rate, population, run_chance
    )


def _sampled(
    mechanism: accounting.NoiseMechanism, rates: tuple[tuple[float, float], ...], chance: float
) -> accounting.Mechanism:
    """Return ``mechanism`` on a Poisson cohort, or on a mixture of such cohorts."""
    highest = max(rate for _, rate in rates) * chance
    mixture = tuple((weight, rate * chance) for weight, rate in rates)
    return accounting.Sampled(mechanism, highest, mixture if len(rates) > 1 else ())


def server_mechanism(plan: CalibratedPlan) -> accounting.Mechanism:
    """Return one round in which a server knows that the client sent a message."""
    mechanism, chance = round_mechanism(plan, Audience.SERVER), plan.participation_probability
    return mechanism if chance is None else accounting.Sampled(mechanism, chance)


def target_mechanism(plan: CalibratedPlan) -> accounting.Mechanism:
    """Return one round as whoever the plan is calibrated against sees it."""
    if target_audience(plan) is Audience.PUBLIC:
        return public_mechanism(plan)
    return server_mechanism(plan)


def releases(
    plan: CalibratedPlan, *, audience: Audience, rounds: int, participations: int | None = None
) -> tuple[accounting.Mechanism, int]:
    """Return what ``audience`` sees of one client in ``rounds`` rounds: a mechanism, how often.

    Where nothing about cohorts is secret the public counts participations too.
    """
    times = _participations(plan, rounds, participations)
    _require_audience(plan, audience)
    match audience:
        case Audience.SERVER | Audience.LEADER | Audience.HELPER:
            return server_mechanism(plan), times
        case Audience.PUBLIC if not plan.sampling.random:
            return public_mechanism(plan), times
        case Audience.PUBLIC:
            return public_mechanism(plan), rounds
        case _ as never:
            assert_never(never)


def _require_audience(plan: Plan, audience: Audience) -> None:
    servers = {Audience.LEADER, Audience.HELPER}
    known = servers if plan.aggregation is Servers.TWO else {Audience.SERVER}
    if audience not in {Audience.PUBLIC, *known}:
        raise DomainError(
            f"audience must be one of public, {', '.join(sorted(known))} with "
            f'aggregation="{plan.aggregation}", got "{audience}"'
        )


def guarantee(
    plan: CalibratedPlan,
    *,
    audience: Audience,
    delta: float | None = None,
    rounds: int | None = None,
    participations: int | None = None,
    mean: bool = False,
) -> Guarantee:
    """Return what ``rounds`` rounds cost against ``audience``, for every client.

    ``mean`` marks a number that holds for clients with no more than the mean participations.
    """
    chosen = plan.target_delta if delta is None else delta
    if chosen is None:
        raise DomainError("delta must be given: the plan was not calibrated for one")
    total = plan.rounds if rounds is None else _checks.integer("rounds", rounds, 1)
    if audience is Audience.PUBLIC and participations is not None:
        raise DomainError(
            f"participations go with an audience that knows who takes part, got {str(audience)!r}; "
            "leave them out"
        )
    times = _participations(plan, total, participations)
    mechanism, count = releases(
        plan, audience=audience, rounds=total, participations=participations
    )
    epsilon = math.inf
    if unknown_variance(plan, audience):
        epsilon = accounting.epsilon(
            mechanism, rounds=count, delta=chosen, method=plan.accountant.value
        )
    return Guarantee(
        epsilon=epsilon,
        delta=chosen,
        unit=Unit.USER,
        adjacency=accounting.noise_of(mechanism).adjacency,
        audience=audience,
        accountant=str(plan.accountant),
        assumptions=(*ZERO_OUT, *_assumptions(plan, audience, times, mean=mean)),
    )


def _participations(plan: CalibratedPlan, rounds: int, given: int | None) -> int:
    if given is not None:
        return _checks.integer("participations", given, 1, rounds)
    possible = rounds
    if plan.sampling is Sampling.CYCLIC:
        possible = sizes.mean_participations(plan, rounds)
    if rounds <= plan.rounds or plan.request.participations is not None:
        return min(plan.participations, possible)
    # More rounds than planned: as many as a plan for them would choose.
    return min(possible, sizes.chosen_participations(replace(plan.request, rounds=rounds)))


class Guarantees(NamedTuple):
    """The guarantees that belong together: quote the first two, or the weaker of them."""

    public: Guarantee
    server: Guarantee
    """For every client: none takes part more often than the plan allows."""
    server_mean: Guarantee
    """For a client with the mean number of participations, rounded up."""


class TwoServerGuarantees(NamedTuple):
    """The guarantees of two servers that do not collude, each for every client."""

    public: Guarantee
    leader: Guarantee
    helper: Guarantee

    @property
    def server(self) -> Guarantee:
        """The weaker one that rests on no trust in either server."""
        return self.leader

    @property
    def server_mean(self) -> Guarantee:
        """The same: it holds for the mean client too."""
        return self.leader


AnyGuarantees: TypeAlias = Guarantees | TwoServerGuarantees


def all_guarantees(
    plan: CalibratedPlan, *, rounds: int | None = None, delta: float | None = None
) -> AnyGuarantees:
    """Return what ``rounds`` rounds cost against all audiences."""
    total = plan.rounds if rounds is None else rounds
    mean = min(sizes.mean_participations(plan, total), _participations(plan, total, None))

    def against(audience: Audience, times: int | None = None, *, mean: bool = False) -> Guarantee:
        return guarantee(
            plan, audience=audience, delta=delta, rounds=total, participations=times, mean=mean
        )

    if plan.aggregation is Servers.TWO:
        return TwoServerGuarantees(
            *map(against, (Audience.PUBLIC, Audience.LEADER, Audience.HELPER))
        )
    return Guarantees(
        against(Audience.PUBLIC),
        against(Audience.SERVER),
        against(Audience.SERVER, mean, mean=True),
    )


def effective_multiplier(plan: CalibratedPlan) -> float:
    """Return the noise multiplier of the Gaussian mechanism that dominates one round."""
    return 1 / accounting.gdp_parameter(round_mechanism(plan))


def _assumptions(
    plan: CalibratedPlan, audience: Audience, times: int, *, mean: bool
) -> tuple[str, ...]:
    lines = list(_who_takes_part(plan, audience, times, mean=mean))
    if plan.participation_probability is not None:
        lines.append("every invited client draws in secret whether it encodes its update or zeros")
    if plan.aggregation is Servers.TWO:
        lines.extend(_of_two_servers(plan, audience))
    elif plan.noise.distributed:
        leave = f"at most a share of {plan.dropout:.3g}" if plan.dropout else "none"
        lines.append(f"of each cohort {leave} drop out; secure aggregation reveals the sum alone")
        if plan.colluding:
            lines.append(
                f"at most {plan.colluding:.3g} of the population work for the server, and cohorts "
                "are drawn at random among clients of whom these answer no more often than "
                "others: a server that picks cohorts may crowd colluders into one"
            )
    else:
        lines.append("the server adds the noise, and is trusted with the sum and with the noise")
    if plan.correlated:
        lines.extend(_of_correlated_rounds(plan, times))
    if plan.noise.continuous:
        lines.append("numbers are real: the last bits of floating-point noise may give more away")
    return tuple(lines)


def _of_correlated_rounds(plan: CalibratedPlan, times: int) -> Iterator[str]:
    if times > 1:
        yield f"any two rounds of a client are at least {plan.groups} apart"
    yield "vectors and participants depend on earlier rounds through what was opened alone"
    yield "nothing else that depends on private data is shown, or ends the run"
    yield "if what was opened ends the run early, all planned rounds count"
    if plan.rounding is Rounding.UNBIASED:
        yield "the coins of rounding are secret and decide nothing else"


def _of_two_servers(plan: CalibratedPlan, audience: Audience) -> Iterator[str]:
    yield "leader and helper do not collude; any number of clients may work for either"
    match audience:
        case Audience.HELPER if plan.noise_by is NoiseBy.HELPER:
            yield "the helper adds all the noise: nothing holds if it sees what is released"
        case Audience.HELPER:
            yield "the leader draws its noise as agreed and keeps it, and masked vectors, secret"
        case Audience.LEADER:
            yield "the helper draws its noise as agreed and keeps it, and the masks, secret"
        case _:
            who = "each server" if plan.noise_by is NoiseBy.BOTH else "the helper"
            yield f"{who} draws its noise as agreed and keeps it secret"


def _who_takes_part(
    plan: CalibratedPlan, audience: Audience, times: int, *, mean: bool
) -> tuple[str, ...]:
    rounds = "1 round" if times == 1 else f"{times} rounds"
    capped = f"a client's data enters at most {rounds}, which training and Flower enforce"
    if mean:
        capped = f"the client takes part in at most {rounds}, the mean; others do more often"
    leaves = (
        "each client drops out, before or after it is counted, with a chance of at most "
        f"{sizes.expected_dropout(plan):.3g}, independently of its data; "
        "skipped and aborted rounds are public"
    )
    match plan.sampling:
        case Sampling.CYCLIC | Sampling.ALL:
            return (capped,)
        case _ if audience is not Audience.PUBLIC:
            return (capped, "this audience knows who takes part in each round")
        case Sampling.POISSON if plan.public_sizes:
            return ("cohorts are Poisson samples whose members, not sizes, stay secret", leaves)
        case Sampling.POISSON | Sampling.SELF:
            return ("cohorts are Poisson samples; their members and sizes stay secret", leaves)
        case Sampling.FIXED:
            return ("cohorts are uniform samples of fixed size whose members stay secret", leaves)
        case _ as never:
            assert_never(never)


def max_rounds(plan: CalibratedPlan, *, epsilon: float, delta: float | None) -> int:
    """Return the largest number of rounds that cost at most ``epsilon``."""
    target = _checks.positive("epsilon", epsilon)

    def allowed(rounds: int) -> bool:
        return plan.privacy(rounds=rounds, delta=delta).epsilon <= target

    if not allowed(1):
        raise InfeasibleError(f"one round alone costs more than epsilon = {target:g}")
    low, high = 1, 2
    while high < 10**12 and allowed(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return low
