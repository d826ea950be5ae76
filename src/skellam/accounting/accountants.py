"""Accountants for a list of releases; the answer is the smallest of all that are valid.

An accountant turns every release into a curve of one kind and adds them up. It is left out where it
has no bound for one of the releases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Literal, TypeAlias, get_args

from skellam import _checks
from skellam.accounting.curves import GdpCurve, RdpCurve, Slack
from skellam.accounting.gdp import (
    dominating,
    outside_by_atoms,
    outside_by_distance,
    sampler_distance,
)
from skellam.accounting.mechanisms import Mechanism, noise_of, rate_of
from skellam.accounting.pld import Pld, dominating_pld, mechanism_pld, own_pair
from skellam.accounting.rdp import dominating_rdp, own_orders, own_rdp, paper_rdp
from skellam.errors import CertificateError, DomainError, KindError

Release: TypeAlias = tuple[Mechanism, int]
Method: TypeAlias = Literal["best", "gdp", "rdp", "pld", "paper"]
Composed: TypeAlias = GdpCurve | RdpCurve | Pld
_NEGLIGIBLE = 1e-6
"""The part of delta below which the sampler's distance needs no better treatment."""
_Accountant: TypeAlias = Callable[[Sequence[Release]], Composed | None]


def epsilon(
    mechanism: Mechanism, *, delta: float, rounds: int = 1, method: Method = "best"
) -> float:
    """Return an upper bound on epsilon of ``rounds`` releases at ``delta``; it may be infinite."""
    return composed_epsilon([(mechanism, rounds)], delta=delta, method=method)


def delta(
    mechanism: Mechanism, *, epsilon: float, rounds: int = 1, method: Method = "best"
) -> float:
    """Return an upper bound on delta of ``rounds`` releases at ``epsilon``."""
    return composed_delta([(mechanism, rounds)], epsilon=epsilon, method=method)


def composed_epsilon(
    releases: Iterable[Release], *, delta: float, method: Method = "best"
) -> float:
    """Return an upper bound on epsilon of all ``releases`` (mechanism, rounds) together."""
    _checks.open_unit("delta", delta)
    checked = _checked(releases)
    ideal, charge = _ideal_curves(checked, method), _charge(checked, outside_by_distance)
    smallest = min(_charged(curve, charge).epsilon(delta) for curve in ideal)
    samplers = Slack(distance=sum(n * sampler_distance(mechanism) for mechanism, n in checked))
    if samplers.charge(smallest) <= _NEGLIGIBLE * delta:
        return smallest
    charge = _charge(checked, outside_by_atoms)
    return min(smallest, *(_charged(curve, charge).epsilon(delta) for curve in ideal))


def composed_delta(
    releases: Iterable[Release], *, epsilon: float, method: Method = "best"
) -> float:
    """Return an upper bound on delta of all ``releases`` (mechanism, rounds) together."""
    _checks.non_negative("epsilon", epsilon)
    return min(curve.delta(epsilon) for curve in curves(releases, method=method))


def curves(releases: Iterable[Release], *, method: Method = "best") -> list[Composed]:
    """Return the composed curve of every accountant of ``method`` that covers all ``releases``.

    Each comes twice, with either way to charge for the sampler.
    """
    checked = _checked(releases)
    charges = {_charge(checked, way) for way in (outside_by_distance, outside_by_atoms)}
    return [_charged(curve, x) for curve in _ideal_curves(checked, method) for x in charges]


def _ideal_curves(releases: Sequence[Release], method: Method) -> list[Composed]:
    found, refusals = list[Composed](), list[str]()
    for accountant in _accountants(method):
        try:
            curve = accountant(releases)
        except CertificateError as error:
            refusals.append(str(error))
        else:
            found += [] if curve is None else [curve]
    if not found:
        kinds = sorted({type(noise_of(mechanism)).__name__ for mechanism, _ in releases})
        reasons = "; ".join(dict.fromkeys(refusals)) or "use another method"
        raise CertificateError(f"method {method!r} has no bound for {', '.join(kinds)}: {reasons}")
    return found


def _charge(releases: Sequence[Release], way: Callable[[Mechanism], Slack]) -> Slack:
    return reduce(add, (way(mechanism) * rounds for mechanism, rounds in releases))


def _charged(curve: Composed, charge: Slack) -> Composed:
    return replace(curve, slack=curve.slack + charge)


def _accountants(method: Method) -> list[_Accountant]:
    match method:
        case "gdp":
            return [_gaussian]
        case "rdp":
            return [_gaussian_rdp, _own_rdp]
        case "pld":
            return [_losses]
        case "paper":
            return [_paper]
        case "best":
            return [_gaussian, _losses_if_own, _gaussian_rdp, _own_rdp, _paper]
        case _:
            names = ", ".join(get_args(Method))
            raise DomainError(f"method must be one of {names}, got {method!r}")


def _gaussian(releases: Sequence[Release]) -> Composed:
    """Add up dominating Gaussians: in closed form, or by loss distributions under sampling."""
    if all(rate_of(mechanism) == 1 for mechanism, _ in releases):
        return reduce(add, (dominating(noise_of(m)) * rounds for m, rounds in releases))
    return reduce(add, (dominating_pld(m) * n for m, n in releases))


def _losses(releases: Sequence[Release]) -> Composed:
    """Add up loss distributions, of the mechanisms themselves where they are known."""
    return _losses_if_own(releases) or _gaussian(releases)


def _losses_if_own(releases: Sequence[Release]) -> Composed | None:
    if all(own_pair(mechanism) is None for mechanism, _ in releases):
        return None
    return reduce(add, (mechanism_pld(m) * rounds for m, rounds in releases))


def _gaussian_rdp(releases: Sequence[Release]) -> Composed:
    return reduce(add, (dominating_rdp(m) * rounds for m, rounds in releases))


def _own_rdp(releases: Sequence[Release]) -> Composed | None:
    orders = own_orders(mechanism for mechanism, _ in releases)
    return _sum_of((own_rdp(m, orders), rounds) for m, rounds in releases)


def _paper(releases: Sequence[Release]) -> Composed | None:
    return _sum_of((paper_rdp(m), rounds) for m, rounds in releases)


def _sum_of(parts: Iterable[tuple[RdpCurve | None, int]]) -> RdpCurve | None:
    total: RdpCurve | None = None
    for curve, rounds in parts:
        if curve is None:
            return None
        total = curve * rounds if total is None else total + curve * rounds
    return total


def _checked(releases: Iterable[Release]) -> list[Release]:
    checked = [_release(item) for item in releases]
    if not checked:
        raise DomainError("there must be at least one release to account for")
    if len({noise_of(mechanism).adjacency for mechanism, _ in checked}) > 1:
        raise DomainError("releases under different adjacencies cannot be added; use one for all")
    return checked


def _release(item: Release) -> Release:
    if not isinstance(item, tuple) or len(item) != 2:
        raise KindError(f"a release must be a pair (mechanism, rounds), got {item!r}")
    mechanism, rounds = item
    noise_of(mechanism)
    return mechanism, _checks.integer("rounds", rounds, 1)
