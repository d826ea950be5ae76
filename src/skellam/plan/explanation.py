"""Explanations: every number of a plan with the reason for it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skellam.accounting import Joint, gdp_parameter
from skellam.accounting.guarantee import rounded_up
from skellam.plan import correlation, guarantees, sizes
from skellam.plan.choices import Noise, NoiseBy, Rounding, Sampling, Signal

if TYPE_CHECKING:
    from skellam.plan.plan import CalibratedPlan


@dataclass(frozen=True, slots=True)
class Line:
    """One number of a plan, and why it is what it is."""

    name: str
    value: str
    why: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The lines that explain a plan; ``str`` gives a table."""

    lines: tuple[Line, ...]

    def __str__(self) -> str:
        wide = max(len(line.name) for line in self.lines)
        value = max(len(line.value) for line in self.lines)
        return "\n".join(
            f"{line.name:<{wide}}  {line.value:>{value}}  {line.why}" for line in self.lines
        )

    def as_dict(self) -> dict[str, dict[str, str]]:
        """Return the lines by name."""
        return {line.name: {"value": line.value, "why": line.why} for line in self.lines}


def explain(plan: CalibratedPlan) -> Explanation:
    """Return every number of ``plan`` with the reason for it."""
    parts = (_noise, _cohort, _clip, _ring, _error, _privacy)
    return Explanation(tuple(line for part in parts for line in part(plan)))


def _noise(plan: CalibratedPlan) -> Iterator[Line]:
    if plan.noise_by is not None:
        yield Line(
            "servers", "2", "a leader and a helper that do not collude; clients add no noise"
        )
        yield Line("noise by", str(plan.noise_by), _why_noise_by(plan.noise_by))
    yield from _correlation(plan)
    yield Line(
        "noise multiplier",
        f"{plan.noise_multiplier:.4f}",
        "standard deviation of the noise in the sum, over the clip"
        if plan.noise_by is None
        else "standard deviation of one server's noise, over the clip",
    )
    if plan.noise is Noise.NONE:
        return
    yield Line(
        "effective multiplier",
        f"{plan.effective_multiplier:.4f}",
        "of the Gaussian mechanism that dominates one participation"
        if plan.correlated
        else "of the Gaussian mechanism that dominates a round",
    )


def _correlation(plan: CalibratedPlan) -> Iterator[Line]:
    if plan.correlation is None:
        return
    if not plan.correlated:
        yield Line("band", "1", "no band leaves less noise in the model with these bits")
        return
    why = "multiplies the sums of the last rounds: their noise is taken back later"
    yield Line("band", ",".join(map(str, plan.band)), why)
    if plan.noise_by is None or plan.noise is Noise.NONE:
        return
    run, band = correlation.run_of(plan), plan.band
    both = correlation.chosen(run, band, independent_noises=plan.noise_by.servers)
    clients = correlation.chosen(run, band)
    yield Line(
        "correlation's gain",
        f"{both.gain:.3f}",
        f"noise of independent rounds over this, in the model; {both.last_gain:.3g} at the end",
    )
    if clients.gain != both.gain:
        why = 'the same, over one server with "cyclic" cohorts'
        if clients.gain < 1:
            why += ", which would have less noise"
        yield Line("gain over one server", f"{clients.gain:.3f}", why)


def _cohort(plan: CalibratedPlan) -> Iterator[Line]:
    if plan.sampling is Sampling.CYCLIC:
        why = f"round t asks group t modulo {plan.groups}"
        yield Line("groups", str(plan.groups), why)
    yield Line("participations", str(plan.participations), "rounds that a client's data may enter")
    if not plan.noise.distributed and plan.noise_by is None:
        return
    yield Line("smallest cohort", str(plan.min_cohort), "a round with fewer clients is skipped")
    if not plan.colluding:
        return
    surplus = sizes.surplus(plan, plan.min_cohort)
    why = f"up to {1 - 1 / surplus:.1%} of the noise may be known to colluders, so more is added"
    if (larger := sizes.affordable_cohort(plan)) is not None:
        why += f"; cohorts of {larger} or more would need little more"
    yield Line("noise for colluders", f"{surplus:.3f}", why)


def _clip(plan: CalibratedPlan) -> Iterator[Line]:
    if plan.quantile_noise is None:
        return
    why = "deviation of the share of clients within the clip"
    yield Line("quantile noise", f"{plan.quantile_noise:g}", why)
    if plan.noise is not Noise.NONE:
        joint = guarantees.round_mechanism(plan)
        *_, count = joint.parts if isinstance(joint, Joint) else (joint,)
        part = (gdp_parameter(count) / gdp_parameter(joint)) ** 2
        yield Line("quantile's part", f"{part:.2%}", "of a round's squared GDP parameter")


def _ring(plan: CalibratedPlan) -> Iterator[Line]:
    if plan.noise.continuous:
        return
    s = plan
    if s.rounding is not Rounding.INTEGER:
        headroom = f"{s.signal_multiple:.4g} deviations fill half the modulus"
        if s.correlated:
            headroom += ": a coordinate that wraps once stays wrong"
        yield Line("scale", f"{s.scale:.6g}", headroom)
        yield Line("signal", str(s.signal), _why_signal(plan))
    yield Line("variance", f"{s.variance:.6g}", "of the guaranteed noise, integer domain")
    if s.noise_by is not None:
        yield Line("total variance", f"{s.total_variance:.6g}", "of all the noise in the sum")
    yield Line("rounding", str(s.rounding), _why_rounding(s.rounding))
    if s.rounding is Rounding.UNBIASED:
        yield Line("block", str(s.block), "coordinates certified together; least predicted error")
        if s.coordinate_bound is not None:
            yield Line(
                "coordinate bound",
                f"{s.coordinate_bound:.4g}",
                "clip of each rotated, scaled coordinate",
            )
    yield Line("coordinates", f"{s.sent_dim:,}", _why_kept(plan))
    yield Line(
        "bytes per client",
        f"{plan.bytes_per_client:,}",
        f"{8 * plan.bytes_per_client / plan.dimension:.3g} bits a parameter, each round",
    )
    yield Line("wrap probability", f"{plan.wrap_probability:.1e}", "of a coordinate of the sum")


def _error(plan: CalibratedPlan) -> Iterator[Line]:
    parts = plan.error
    for name in ("noise", "rounding", "wrap", "cut", "compression"):
        part = getattr(parts, name)
        if part:
            yield Line(f"error: {name}", f"{part / parts.total:.2%}", "of the predicted error")
    yield Line(
        "error", f"{math.sqrt(parts.total):.4g}", "root mean square of a coordinate of the mean"
    )
    if plan.noise is not Noise.NONE:
        why = "squared error over Gaussian's, same guarantee"
        yield Line("relative error", f"{plan.relative_error:.4f}", why)


def _privacy(plan: CalibratedPlan) -> Iterator[Line]:
    if plan.target_delta is None or plan.noise is Noise.NONE:
        return
    for name, found in plan.guarantees()._asdict().items():
        mean = name.endswith("_mean")
        if mean and not plan.sampling.random:
            continue
        why = f"for every client: at most {plan.participations} participations"
        if mean:
            times = plan.mean_participations()
            why = f"a client with {times} participations, the mean; many have more"
        elif name == "public":
            why = f"delta {found.delta:.3g}, {plan.rounds} rounds, for whoever sees the releases"
        elif found.epsilon == math.inf:
            why = "it knows all the noise: trusted not to look at what is released"
        shown = name.replace("_mean", " (mean)")
        yield Line(f"epsilon, {shown}", rounded_up(found.epsilon), why)


def _why_noise_by(noise_by: NoiseBy) -> str:
    if noise_by is NoiseBy.BOTH:
        return "each adds what hides the sum from the other: twice the variance in all"
    return "half the noise, and nothing hides the sum from a helper that sees the model"


def _why_signal(plan: CalibratedPlan) -> str:
    watched = "released sums show whether it holds"
    match plan.signal:
        case Signal.ALIGNED:
            return "the modulus holds the sum even if all clients agree: the worst case"
        case Signal.INDEPENDENT:
            return f"an assumption: the sum's norm is clip * sqrt(cohort); {watched}"
        case ratio:
            return f"an assumption: the mean's norm is {ratio:g} of the clip; {watched}"


def _why_rounding(rounding: Rounding) -> str:
    if rounding is Rounding.INTEGER:
        return "the vectors are integers already, and stay unrotated"
    if rounding is Rounding.UNBIASED:
        return "the accounting covers its randomness: no norm inflation, no bias"
    return "the accounting takes the largest norm that it can give"


def _why_kept(plan: CalibratedPlan) -> str:
    if plan.rounding is Rounding.INTEGER:
        return "one for every number of the query"
    if plan.sent_dim == plan.padded_dim:
        return f"{plan.dimension:,} padded for the rotation"
    return f"of {plan.padded_dim:,}: a random subset, rescaled; costs no privacy"
