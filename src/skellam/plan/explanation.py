"""A plan in words: every number with the reason for it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skellam.accounting import Joint, gdp_parameter
from skellam.accounting.guarantee import Audience, rounded_up
from skellam.plan import privacy
from skellam.plan.choices import Noise, Rounding

if TYPE_CHECKING:
    from skellam.plan.plan import Plan


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


def explain(plan: Plan) -> Explanation:
    """Return every number of ``plan`` with the reason for it."""
    return Explanation((*_noise(plan), *_clip(plan), *_ring(plan), *_error(plan), *_privacy(plan)))


def _noise(plan: Plan) -> Iterator[Line]:
    yield Line(
        "noise multiplier",
        f"{plan.noise_multiplier:.4f}",
        "standard deviation of the noise in the sum, over the clip",
    )
    if plan.noise is Noise.NONE:
        return
    yield Line(
        "effective multiplier",
        f"{plan.effective_multiplier:.4f}",
        "of the Gaussian mechanism that dominates a round",
    )


def _clip(plan: Plan) -> Iterator[Line]:
    if plan.quantile_noise is None:
        return
    why = "deviation of the share of clients within the clip"
    yield Line("quantile noise", f"{plan.quantile_noise:g}", why)
    if plan.noise is not Noise.NONE:
        joint = privacy.round_mechanism(plan)
        *_, beside = joint.parts if isinstance(joint, Joint) else (joint,)
        part = (gdp_parameter(beside) / gdp_parameter(joint)) ** 2
        yield Line("quantile's part", f"{part:.2%}", "of a round's squared GDP parameter")


def _ring(plan: Plan) -> Iterator[Line]:
    if plan.noise.continuous:
        return
    s = plan.solved
    if s.rounding is not Rounding.WHOLE:
        room = f"{s.signal_multiple:g} deviations fill half the modulus"
        yield Line("scale", f"{s.scale:.6g}", room)
    yield Line("variance", f"{s.variance:.6g}", "of the noise in the sum, integer domain")
    yield Line("rounding", str(s.rounding), _why_rounding(s.rounding))
    if s.rounding is Rounding.UNBIASED:
        yield Line("block", str(s.block), "coordinates certified together; least predicted error")
        if s.largest is not None:
            yield Line("largest", f"{s.largest:.4g}", "clip of each rotated, scaled coordinate")
    yield Line("coordinates", f"{s.kept:,}", _why_kept(plan))
    yield Line(
        "bytes per client",
        f"{plan.bytes_per_client:,}",
        f"{8 * plan.bytes_per_client / plan.dimension:.3g} bits a parameter, each round",
    )
    yield Line("wrap probability", f"{plan.wrap_probability:.1e}", "of a coordinate of the sum")


def _error(plan: Plan) -> Iterator[Line]:
    parts = plan.error
    for name in ("noise", "rounding", "wrap", "cut", "compression"):
        part = getattr(parts, name)
        if part:
            yield Line(f"error: {name}", f"{part / parts.total:.2%}", "of the predicted error")
    yield Line(
        "error", f"{math.sqrt(parts.total):.4g}", "root mean square of a coordinate of the mean"
    )
    if plan.noise is not Noise.NONE:
        yield Line("loss", f"{plan.loss:.4f}", "squared error over Gaussian's, same guarantee")


def _privacy(plan: Plan) -> Iterator[Line]:
    if plan.delta is None or plan.noise is Noise.NONE:
        return
    public = plan.privacy()
    yield Line(
        "epsilon, public",
        rounded_up(public.epsilon),
        f"delta {public.delta:.3g}, {plan.rounds} rounds, for whoever sees the releases",
    )
    mean = privacy.mean_participations(plan, plan.rounds)
    for count, what in ((mean, "mean"), (plan.rounds, "all rounds")):
        server = plan.privacy(audience=Audience.SERVER, participations=count)
        yield Line(
            f"epsilon, server ({what})",
            rounded_up(server.epsilon),
            f"for whoever knows who took part; {count} participations",
        )


def _why_rounding(rounding: Rounding) -> str:
    if rounding is Rounding.WHOLE:
        return "the vectors are whole numbers already, and stay unrotated"
    if rounding is Rounding.UNBIASED:
        return "the accounting covers its randomness: no norm inflation, no bias"
    return "the accounting pays for the largest norm that it can give"


def _why_kept(plan: Plan) -> str:
    if plan.solved.rounding is Rounding.WHOLE:
        return "one for every number of the query"
    if plan.solved.kept == plan.solved.rotated:
        return f"{plan.dimension:,} padded for the rotation"
    return f"of {plan.solved.rotated:,}: a random subset, rescaled; costs no privacy"
