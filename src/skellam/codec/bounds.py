"""What one client can change, as the codec states it and the accounting takes it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, assert_never

from skellam import _checks
from skellam.codec.spec import CodecSpec, Conditional, Unbiased, Whole
from skellam.errors import InfeasibleError

ASSUMPTIONS: Final = (
    "the neighbour is the same cohort with one client's vector zeroed and its noise kept",
    "the rounding coins are secret",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RealSensitivity:
    """A real vector within these bounds is rounded without bias; the coins are the mechanism's.

    That coins have 32 bits costs nothing: what is rounded is the vector cut to 32 binary places
    towards zero, which has no larger coordinates (see `skellam._kernels.round_stochastic`).
    """

    l2: float
    largest: float
    dimension: int
    assumptions: tuple[str, ...] = ASSUMPTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerSensitivity:
    """An integer vector within these bounds is what the noise is added to."""

    l2: float
    l1: float
    dimension: int
    assumptions: tuple[str, ...] = ASSUMPTIONS


Sensitivity = RealSensitivity | IntegerSensitivity


def rounded_norm_bound(l2: float, dimension: int, beta: float) -> float:
    """Return the L2 norm that a vector of norm ``l2`` keeps to when rounded with bias ``beta``.

    The smaller branch of Algorithm 1's condition (Kairouz, Liu, Steinke 2021); at ``beta`` 0 only
    the second one holds, and it holds always.
    """
    return math.sqrt(rounded_norm_square(l2, dimension, beta))


def rounded_norm_square(l2: float, dimension: int, beta: float) -> float:
    """Return the square of `rounded_norm_bound`: the condition that is really tested."""
    norm = _checks.non_negative("l2", l2)
    root = math.sqrt(_checks.integer("dimension", dimension, 1))
    always = (norm + root) ** 2
    if _checks.between("beta", beta, 0, math.nextafter(1, 0)) == 0:
        return always
    usual = norm**2 + root**2 / 4 + math.sqrt(-2 * math.log(beta)) * (norm + root / 2)
    return min(usual, always)


def paper_scale(
    *, deviation: float, clip: float, bits: int, clients: int, dimension: int, k: float
) -> float:
    """Return the scale at which ``k`` deviations of the aggregate fill half of ``2**bits``.

    Algorithm 1 with its missing factor put right: ``s**2 (c**2 n**2 / d + n sigma**2) + n / 4 =
    (2**b / 2k)**2``, where ``deviation`` is one client's sigma in real units.
    """
    n = _checks.integer("clients", clients, 1)
    room = (2 ** _checks.integer("bits", bits, 2, 32) / (2 * _checks.positive("k", k))) ** 2 - n / 4
    if not room > 0:
        raise InfeasibleError(
            f"{bits} bits do not hold the rounding of {n} clients at k = {k:g}; "
            f"take at least {_fewest_bits(n, k)} bits"
        )
    signal = (_checks.positive("clip", clip) * n) ** 2 / _checks.integer("dimension", dimension, 1)
    return math.sqrt(room / (signal + n * _checks.non_negative("deviation", deviation) ** 2))


def sensitivity(spec: CodecSpec) -> Sensitivity:
    """Return the bounds that every message keeps to, whatever the input and the public seed.

    The whole number beside the vector, where ``spec.within`` gives it noise, is not part of them:
    it is at most 1.
    """
    match spec.rounding:
        case Unbiased(largest):
            most = spec.radius if largest is None else min(largest, spec.radius)
            return RealSensitivity(l2=spec.radius, largest=most, dimension=spec.carried)
        case Conditional(beta):
            l2 = _up(rounded_norm_bound(spec.radius, spec.carried, beta))
            # Integers: |z| <= z**2, so the L1 norm is at most the square of the L2 norm.
            l1 = _up(l2 * min(math.sqrt(spec.carried), l2))
            return IntegerSensitivity(l2=l2, l1=l1, dimension=spec.carried)
        case Whole(l1=l1):
            return IntegerSensitivity(
                l2=min(whole_norm(spec.clip), l1),
                l1=l1,
                dimension=spec.carried,
                assumptions=ASSUMPTIONS[:1],
            )
        case _ as never:
            assert_never(never)


def whole_norm(clip: float) -> float:
    """Return the L2 norm that whole vectors are held to: ``clip``, and the rounding of its test.

    Adding squares in float64 errs by less than ``2**-41`` of the sum, and ``clip`` may be a rounded
    square root.
    """
    return clip * (1 + 2.0**-40)


def _up(x: float) -> float:
    return math.nextafter(math.nextafter(x, math.inf), math.inf)


def _fewest_bits(clients: int, k: float) -> int:
    return math.floor(math.log2(k * math.sqrt(clients))) + 1
