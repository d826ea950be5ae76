"""Cohort sizes of a plan: which rounds run, how often a client takes part, and whose noise counts.

**Which rounds run.** A round runs if at least ``min_cohort`` clients are on its list and at most
the tolerated share of them drops out. Whether it ran is public and depends on the size of the
cohort. Fix a client u, and let r be the chance that it is invited. Neighbouring data sets differ in
u's vector and not in who takes part, so whether rounds run tells nothing by itself. But given that
a round ran, the others differ in law with and without u, and the sum shows about how many of them
stayed: one rate for all rounds would not do. Tell the attacker which others stayed, s in number.
Let X of the others be on the list and drop out, and a1(s), a0(s) be the chances that X is such that
the round runs with and without u. Given s and that the round ran, u was invited with chance
``r'(s) = r a1(s) / (r a1(s) + (1 - r) a0(s))``, and what is released has the law
``(1 - r') Q + r' P``, Q and P the sum of those who stayed without and with u. So a round is a
mixture over s of Poisson samples at the rates r'(s), of weight
``P(s) (r a1(s) + (1 - r) a0(s)) <= P(s) r / r'(s)`` (`run_rates`).

If min_cohort - 1 others are on the list the client decides whether the round runs, and so it may if
they are min_cohort; that is charged to delta (`deciding_chance`). Else u matters at steps alone: k
dropouts are tolerated in a list of n = ceil(k / dropout) and not in one of n - 1, so at
s = n - 1 - k the round runs with u where X = k and not without, and
``a1 / a0 = 1 + P(X = k) / P(min_cohort - s <= X < k)``. The likelihood ratio is monotone, so this
grows with the chances to drop out and is taken at the largest, d = ``expected_dropout``: whoever
did not stay was on the list and dropped out with chance ``r d / (1 - r (1 - d))``. A client that
may drop out itself has a smaller r'. Clients drop out independently of each other and of their
data.

They may drop out before they are counted too: s is a sum of independent draws at rates between
``low = r (1 - d)`` and r. Its law is unimodal and nowhere above ``exp(-v) I_0(v)``, v its variance
at least (the mean of the characteristic function's absolute value), so steps that are g apart have
at most the weight ``1/g + exp(-v) I_0(v)`` together, and those up to s at most
``P(Bin(N - 1, low) <= s)``. Both are over the chance that a round runs.

With two servers a round runs if at least ``min_cohort`` messages come, whoever drops out. Then the
others are those whose message came, and r' is at most r but at m = min_cohort - 1.

**Sizes that are no secret** (`known_size`). Tell the attacker who would drop out if it were drawn.
The H others are a Poisson sample at rate r, and given their number, which is all that decides
whether the round runs, a uniform one (Result D). The fewer they are, the more their share varies,
so H is taken at a rare low value; and of all events of the chance that a round runs, that of the
largest shares costs most. A uniform sample of a fixed size has shares that vary less (Hoeffding
1963, theorem 4).

**How often.** A client's data enters at most ``participations`` rounds; beyond them it sends zeros
with its noise. Where cohorts are random the plan's number is one that a client exceeds with a
chance so small that stopping it changes the law of all releases by less than a ten-thousandth of
delta (`stop_distance`, a total variation).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, assert_never

import numpy as np
from numpy.typing import NDArray

from skellam.cohorts import Tolerance, exact_share
from skellam.errors import InfeasibleError
from skellam.plan.choices import Noise, Sampling, Servers

if TYPE_CHECKING:
    from skellam.plan.plan import CalibratedPlan, Plan

MIN_SHARE: Final = 1e-6
MAX_SHARE: Final = 1e9
"""Variances of a client's noise that the samplers can draw."""
_DELTA_SHARE: Final = 1e-4
"""Part of delta that crowded cohorts, and clients that are stopped, may take each."""
_TAIL_BITS: Final = 40
"""Of the tail of colluders in a cohort where no delta is known."""
_DELTA: Final = 1e-6
"""The delta that is planned for where none is known."""
_UNLIKELY: Final = 1e-18
"""Mass of sizes that are not looked at."""
_BIN: Final = 2e-2
"""Relative width of a bin of rates."""
_EPSILON: Final = 10.0
"""The epsilon up to which stopped clients are accounted for where no target is known."""
_EXPENSIVE: Final = 1.5
"""Growth of the noise's variance from which on colluders make a cohort expensive."""
_EXPECTED_DROPOUT: Final = 0.5
"""Chance to drop out that is accounted for with two servers, where nothing else rests on it."""


def tolerance(plan: Plan) -> Tolerance:
    """Return how many clients of a cohort may drop out and collude; nobody, if noise is central."""
    if not plan.clients_add_noise:
        return Tolerance(dropout=exact_share("dropout", plan.dropout))
    bits = _TAIL_BITS
    if plan.target_delta is not None:
        share = math.log2(plan.rounds / _DELTA_SHARE) - math.log2(plan.target_delta)
        bits = max(bits, math.ceil(share))
    return Tolerance(
        dropout=exact_share("dropout", plan.dropout),
        colluding=exact_share("colluding", plan.colluding),
        population=plan.population_size,
        tail_bits=bits,
    )


def crowded(plan: Plan) -> float:
    """Return the chance that a cohort holds more colluders than are planned for."""
    return 2.0**-plan.tolerance.tail_bits if plan.clients_add_noise and plan.colluding else 0.0


def total_variance(plan: CalibratedPlan, guaranteed: float) -> float:
    """Return the variance of all the noise of which ``guaranteed`` stays unknown to everybody."""
    return guaranteed * surplus(plan, plan.min_cohort)


def surplus(plan: Plan, min_cohort: int) -> float:
    """Return the variance of all the noise over the variance that colluders do not know.

    One number for all cohorts of ``min_cohort`` and more, so that the noise does not depend on
    their size. Of two servers each adds all the noise that is needed against the other.
    """
    if plan.noise_by is not None and plan.noise is not Noise.NONE:
        return float(plan.noise_by.servers)
    if not plan.clients_add_noise or not plan.colluding:
        return 1.0
    known = plan.tolerance.colluding_share(min_cohort)
    if not known < 1:
        raise InfeasibleError(
            f"in a cohort of {min_cohort} every survivor may collude; take a larger min_cohort"
        )
    return math.nextafter(float(1 / (1 - known)), math.inf)


def min_planned(plan: Plan) -> int:
    """Return the smallest cohort that the plan's sampling gives, but for rare ones."""
    match plan.sampling:
        case Sampling.POISSON | Sampling.SELF:
            rounds = plan.rounds * plan.selection_rate
            chance = min(2.0**-20, _DELTA_SHARE * (plan.target_delta or _DELTA) / rounds)
            return max(1, _binomial_floor(plan.population_size - 1, _arrival_rate(plan), chance))
        case _ if plan.aggregation is Servers.TWO:
            return min(2, plan.cohort)
        case Sampling.FIXED | Sampling.ALL:
            return plan.cohort - plan.tolerance.dropouts(plan.cohort)
        case Sampling.CYCLIC:
            size = plan.population_size // plan.groups
            return size - plan.tolerance.dropouts(size)
        case _ as never:
            assert_never(never)


def max_planned(plan: Plan, chance: float) -> int:
    """Return a size that a cohort exceeds with at most this ``chance``, by Bernstein's bound."""
    if not plan.sampling.secret:
        return plan.cohort
    third = -math.log(chance) / 3
    mean = plan.population_size * plan.selection_rate
    reach = mean + third + math.sqrt(third**2 + 6 * third * mean)
    return min(plan.population_size, math.ceil(reach))


def expected_dropout(plan: Plan) -> float:
    """Return the chance, at most, that a client really drops out."""
    if plan.expected_dropout is not None:
        return plan.expected_dropout
    return _EXPECTED_DROPOUT if plan.aggregation is Servers.TWO else plan.dropout / 2


def _arrival_rate(plan: Plan) -> float:
    """Return the chance, at least, that a client is in the size by which a round is skipped."""
    return plan.selection_rate * (1 - expected_dropout(plan))


def min_present(plan: Plan) -> int:
    """Return how many of the population do not drop out of a round, but with `rare_absence`."""
    dropout, count = expected_dropout(plan), plan.population_size
    return count if not dropout else 1 + _binomial_floor(count - 1, 1 - dropout, _rare(plan))


def rare_absence(plan: Plan) -> float:
    """Return the chance that fewer than `min_present` clients would answer."""
    return _rare(plan) if expected_dropout(plan) else 0.0


def _rare(plan: Plan) -> float:
    return min(2.0**-20, _DELTA_SHARE * (plan.target_delta or _DELTA) / plan.rounds)


def min_survivors(plan: CalibratedPlan, cohort: int) -> int:
    """Return how many of ``cohort`` clients must send their vector for the sum to be opened."""
    if plan.aggregation is Servers.TWO:
        return plan.min_cohort
    return max(1, plan.tolerance.survivors(cohort))


def chosen_min_cohort(plan: Plan) -> int:
    """Return the smallest cohort that is summed: as given, or as large as is hardly ever missed.

    The larger it is, the fewer of a cohort may collude, and the less noise they cost.
    """
    if not plan.noise.distributed:
        return plan.min_cohort or 1
    needed = plan.min_cohort or plan.tolerance.min_cohort()
    planned = min_planned(plan)
    if needed > planned and not _bearable(plan, needed):
        borne = f"a dropout of {plan.dropout:g} and {plan.colluding:g} colluding"
        if plan.aggregation is Servers.TWO:
            borne = f"an expected dropout of {expected_dropout(plan):g}"
        raise InfeasibleError(
            f"cohorts of {plan.cohort} are too small for {borne}: {needed} clients must take part "
            "in every round; take a larger cohort" + _hint(plan)
        )
    return plan.min_cohort or max(needed, planned)


def _bearable(plan: Plan, min_cohort: int) -> bool:
    """Return whether what clients cost who decide a round leaves half of delta."""
    if not plan.sampling.secret or plan.public_sizes:
        return min_cohort <= plan.cohort
    charge = plan.rounds * deciding_chance(plan, min_cohort)
    return min_cohort <= plan.invited and charge <= 0.5 * (plan.target_delta or _DELTA)


def _hint(plan: Plan) -> str:
    """Return which cohort would do, if one does."""
    cohort = plan.cohort
    while (cohort := math.ceil(1.25 * cohort)) <= plan.population_size:
        larger = replace(plan, cohort=cohort, participations=None)
        min_cohort = plan.min_cohort or larger.tolerance.min_cohort()
        if min_cohort <= min_planned(larger) or _bearable(larger, min_cohort):
            return f", such as {cohort}"
    return ""


def affordable_cohort(plan: CalibratedPlan) -> int | None:
    """Return a cohort in which colluders cost little noise, if this plan's cohort is none."""
    request = plan.request
    found = request.cohort
    while True:
        candidate = replace(request, cohort=found, min_cohort=None, participations=None)
        try:
            if surplus(candidate, chosen_min_cohort(candidate)) <= _EXPENSIVE:
                return None if found == request.cohort else found
        except InfeasibleError:
            pass
        if request.population is not None and 2 * found > request.population:
            return None
        found *= 2


# How often a client takes part.


def mean_participations(plan: Plan, rounds: int) -> int:
    """Return the expected number of messages that a client sends in ``rounds``, rounded up."""
    if plan.sampling is Sampling.CYCLIC:
        return -(-rounds // plan.groups)
    return max(1, math.ceil(rounds * plan.selection_rate * (1 - 1e-12)))


def require_small_delta(plan: Plan, delta: float) -> None:
    """Raise where a client takes part at all with a chance of at most ``delta``.

    Vectors in the clear would then have epsilon 0 at this delta, so no target asks for any noise.
    """
    if not plan.sampling.random or plan.rate == 1:
        return
    chance = -math.expm1(plan.rounds * math.log1p(-plan.rate))
    if delta >= chance:
        raise InfeasibleError(
            f"delta {delta:g} is not below {chance:g}, the chance that a client takes part in any "
            f"of {plan.rounds:,} rounds at rate {plan.rate:g}: it would allow to publish every "
            "vector without noise; choose a smaller delta, 1 over ten times the population or less"
        )


def chosen_participations(plan: Plan) -> int:
    """Return how many rounds a client's data may enter: as given, or hardly ever exceeded."""
    if plan.participations is not None:
        return min(plan.participations, plan.rounds)
    if not plan.sampling.random:
        return mean_participations(plan, plan.rounds)
    return _binomial_ceiling(plan.rounds, plan.selection_rate, _stop_chance(plan))


def stop_distance(plan: CalibratedPlan) -> float:
    """Return, a round, how far stopping clients is from letting them take part (total variation).

    The chance to exceed ``participations`` in R rounds is convex in R as long as R times the rate
    is below it, so a part of that of all planned rounds covers every shorter run.
    """
    if not plan.sampling.random:
        return 0.0
    from scipy.stats import binom

    chance = float(binom.sf(plan.participations, plan.rounds, plan.selection_rate))
    if chance > 100 * _stop_chance(plan):
        needed = _binomial_ceiling(plan.rounds, plan.selection_rate, _stop_chance(plan))
        raise InfeasibleError(
            f"participations must be at least {needed}: clients are drawn at random and exceed "
            f"{plan.participations} too often for the guarantee in public; "
            'or take sampling="cyclic", where nobody does'
        )
    return min(1.0, chance * (1 + 1e-9) / plan.rounds)


def _stop_chance(plan: Plan) -> float:
    epsilon = _EPSILON if plan.target_epsilon is None else min(plan.target_epsilon, 300.0)
    return _DELTA_SHARE * (plan.target_delta or _DELTA) / (1 + math.exp(epsilon))


# Which rounds run.


def run_rates(plan: CalibratedPlan) -> tuple[tuple[float, float], ...]:
    """Return weights and rates of the Poisson samples that a round that ran is a mixture of.

    The weights sum to 1; that a client decides whether it runs is charged by `deciding_chance`.
    """
    if not _stepped(plan):
        return ((1.0, plan.selection_rate),)
    if 2 * plan.tolerance.dropout > 1:
        raise InfeasibleError(
            f"got a dropout of {plan.dropout:g} with cohorts of secret size; need at most 0.5, for "
            "rounds that run by one client's presence are accounted for up to there; lower dropout"
        )
    return _run_rates(
        plan.population_size - 1,
        plan.selection_rate,
        plan.min_cohort,
        plan.tolerance,
        expected_dropout(plan),
    )


def _stepped(plan: Plan) -> bool:
    """Return whether a client may raise the number of dropouts that a round bears."""
    one = plan.aggregation is not Servers.TWO
    return one and plan.tolerance.dropout > 0 and expected_dropout(plan) > 0


def run_chance(plan: Plan, min_cohort: int) -> float:
    """Return a lower bound on the chance that a round runs, whoever of the others drops out.

    A round runs the more likely the more clients stay and the fewer drop out after they were
    counted, so at worst all of them drop out then, with the largest chance, and none before.
    """
    return _run_chance(
        plan.population_size - 1 if plan.sampling.secret else plan.cohort,
        plan.selection_rate if plan.sampling.secret else 1.0,
        min_cohort,
        None if plan.aggregation is Servers.TWO else plan.tolerance,
        expected_dropout(plan),
    )


@lru_cache(maxsize=256)
def _run_chance(
    count: int, rate: float, min_cohort: int, tolerance: Tolerance | None, dropout: float
) -> float:
    from scipy.special import bdtr

    sizes, chances = _likely_sizes(count, rate)
    allowed = sizes - min_cohort
    if tolerance is not None:
        a, b = tolerance.dropout.numerator, tolerance.dropout.denominator
        allowed = np.minimum(allowed, sizes * a // b)
    runs = np.where(allowed >= 0, bdtr(np.maximum(allowed, 0), sizes, dropout), 0.0)
    return float(chances @ runs) * (1 - 1e-9)


def known_size(plan: CalibratedPlan) -> tuple[int, float]:
    """Return the population and the run chance of cohorts whose size is no secret."""
    return min_present(plan), run_chance(plan, plan.min_cohort)


def deciding_chance(plan: Plan, min_cohort: int) -> float:
    """Return the chance that a client was invited and decided that a round ran, given that it did.

    Who takes part, and so which rounds run, is the same with a client's data and with zeros.
    """
    from scipy.stats import binom

    if not plan.sampling.secret or plan.public_sizes:
        return 0.0
    # The others number at least Bin(N - 1, arrival rate), whoever drops out less often.
    law = binom.cdf if expected_dropout(plan) else binom.pmf
    count, arrival = plan.population_size - 1, _arrival_rate(plan)
    others, allowed = float(law(min_cohort - 1, count, arrival)), plan.tolerance.dropouts
    if _stepped(plan) and allowed(min_cohort + 1) > allowed(min_cohort):
        # One other more, and one dropout more than they could bear without the client.
        stopped = binom.sf(allowed(min_cohort), min_cohort, expected_dropout(plan))
        others += float(stopped * (law(min_cohort, count, arrival) - others))
    # Sizes beyond those that `run_rates` looks at are charged here too.
    decides = plan.selection_rate * others * (1 + 1e-9) + _UNLIKELY
    runs = run_chance(plan, min_cohort)
    return min(1.0, decides / runs) if runs > 0 else 1.0


@lru_cache(maxsize=256)
def _run_rates(
    count: int, rate: float, min_cohort: int, tolerance: Tolerance, dropout: float
) -> tuple[tuple[float, float], ...]:
    from scipy.special import ive
    from scipy.stats import binom

    sizes, _ = _likely_sizes(count, rate)
    a, b = tolerance.dropout.numerator, tolerance.dropout.denominator
    dropouts = np.arange(1, (int(sizes[-1]) + 1) * a // b + 1)
    listed = -(-dropouts * b // a)
    dropouts, listed = dropouts[listed > min_cohort + 1], listed[listed > min_cohort + 1]
    stay = listed - 1 - dropouts
    law = binom(count - stay, rate * dropout / (1 - rate * (1 - dropout)))
    min_dropouts = np.maximum(min_cohort - stay, 0)
    # Differences lose digits; the largest term is a lower bound too.
    without = np.maximum(
        law.cdf(dropouts - 1) - law.cdf(min_dropouts - 1) - 1e-14, law.pmf(dropouts - 1)
    )
    ratio = 1 + law.pmf(dropouts) / np.maximum(without, 1e-300)
    rates = np.minimum(1.0, rate * ratio / (rate * ratio + 1 - rate) * (1 + 1e-9))
    rates = np.maximum.accumulate(rates[::-1])[::-1]
    low = rate * (1 - dropout)
    variance = count * min(low * (1 - low), rate * (1 - rate))
    max_below = 1 / (b // a - 1) + float(ive(0, variance))
    below = np.minimum(binom.cdf(stay, count, low), max_below) * (1 + 1e-9)
    runs = _run_chance(count, rate, min_cohort, tolerance, dropout)
    weights = np.diff(below, prepend=0.0) * np.minimum(1.0, rate / rates) / max(runs, 1e-300)
    stepped, left = list[tuple[float, float]](), 1.0
    for weight, highest in _binned(weights, rates):
        # Bounds on weights may add up to more than 1: the highest rates come first.
        stepped.append((min(weight, left), highest))
        left -= stepped[-1][0]
    return ((left, rate), *stepped)


def _binned(
    weights: NDArray[np.float64], rates: NDArray[np.float64]
) -> Iterator[tuple[float, float]]:
    """Yield few weights and rates that cover these: a rate is rounded up to that of its bin."""
    weight, top = 0.0, 0.0
    for i in np.argsort(-rates).tolist():
        if rates[i] < top * (1 - _BIN) and weight > _UNLIKELY:
            yield weight, top
            weight, top = 0.0, 0.0
        weight, top = weight + float(weights[i]), max(top, float(rates[i]))
    if weight > 0:
        yield weight, top


def _likely_sizes(count: int, rate: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the sizes of Bin(count, rate) with nearly all of its mass, and their chances."""
    from scipy.stats import binom

    # Bernstein: beyond t on either side with a chance of at most exp(-t**2 / (2 V + 2 t / 3)).
    mean, log = count * rate, -math.log(_UNLIKELY / 4)
    t = log / 3 + math.sqrt((log / 3) ** 2 + 2 * log * mean * (1 - rate))
    sizes = np.arange(max(0, math.floor(mean - t)), min(count, math.ceil(mean + t)) + 1)
    return sizes, binom.pmf(sizes, count, rate)


def _binomial_floor(count: int, rate: float, chance: float) -> int:
    """Return the largest size below which Bin(count, rate) is with at most this ``chance``."""
    from scipy.stats import binom

    if rate >= 1:
        return count
    # SciPy's quantiles of such small chances are wrong at times; its sums are not.
    return bisect_left(range(count), True, key=lambda k: binom.cdf(k, count, rate) > chance)


def _binomial_ceiling(count: int, rate: float, chance: float) -> int:
    """Return the least number that Bin(count, rate) exceeds with at most this ``chance``."""
    from scipy.stats import binom

    if rate >= 1:
        return count
    return max(1, bisect_left(range(count), True, key=lambda k: binom.sf(k, count, rate) <= chance))
