"""Strategies and plans that may run on sums: those that need nothing but the mean of updates."""

from __future__ import annotations

from logging import getLogger
from typing import TypeVar

from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Strategy

from skellam.engines.flower.round_config import MetricRanges
from skellam.engines.leader import HelperLine, LeaderFiles
from skellam.errors import DomainError
from skellam.plan import CalibratedPlan, Noise, Servers
from skellam.secagg.parameters import require_countable

_MEAN_BASED: tuple[type[Strategy], ...] = (
    flower.FedAvg,
    flower.FedAvgM,
    flower.FedAdam,
    flower.FedAdagrad,
    flower.FedYogi,
    flower.FedProx,
)
_LINEAR: tuple[type[Strategy], ...] = (flower.FedAvg, flower.FedAvgM, flower.FedProx)
_REASONS: dict[type[Strategy], str] = {
    flower.Krum: "it compares the updates of single clients with each other",
    flower.MultiKrum: "it compares the updates of single clients with each other",
    flower.Bulyan: "it compares the updates of single clients with each other",
    flower.FedMedian: "a median needs every client's update",
    flower.FedTrimmedAvg: "trimming needs every client's update",
    flower.QFedAvg: "it weighs each client's update by that client's loss",
    flower.FedXgbBagging: "it collects the trees of every client",
    flower.FedXgbCyclic: "it passes one client's trees to the next",
    flower.DifferentialPrivacyClientSideAdaptiveClipping: "the plan clips and adds noise already",
    flower.DifferentialPrivacyClientSideFixedClipping: "the plan clips and adds noise already",
    flower.DifferentialPrivacyServerSideAdaptiveClipping: "it clips every client's update itself",
    flower.DifferentialPrivacyServerSideFixedClipping: "it clips every client's update itself",
}
_DECLARED = "__skellam_mean_based__"
_log = getLogger("skellam.flower")
_S = TypeVar("_S", bound=type[Strategy])


def mean_based(kind: _S) -> _S:
    """Declare, as a decorator, that a strategy of one's own needs only the mean of the updates."""
    setattr(kind, _DECLARED, kind)
    return kind


def require_mean_based(strategy: Strategy) -> None:
    """Raise `DomainError` unless ``strategy`` runs on the mean alone."""
    kind = type(strategy)
    for known, reason in _REASONS.items():
        if isinstance(strategy, known):
            raise DomainError(f"{kind.__name__} cannot run on a secure sum: {reason}")
    if kind not in _MEAN_BASED and getattr(kind, _DECLARED, None) is not kind:
        raise DomainError(
            f"{kind.__name__} is not known to need only the mean of the updates; "
            "if it does, declare it with @mean_based"
        )


def require_linear(strategy: Strategy, plan: CalibratedPlan) -> None:
    """Raise `DomainError` unless noise that cancels over rounds cancels in the model too."""
    if not plan.correlated or type(strategy) in _LINEAR:
        return
    names = ", ".join(kind.__name__ for kind in _LINEAR)
    raise DomainError(
        f"{type(strategy).__name__} may give rounds different weights, so that their noise would "
        f"not cancel; take one of {names}, or plan with correlation=None"
    )


def require_servers(
    plan: CalibratedPlan,
    evaluate_plan: CalibratedPlan | None,
    helper: str | HelperLine | None,
    leader: LeaderFiles | None,
) -> None:
    """Raise `DomainError` unless helper and leader are given where the plans have two servers."""
    two = plan.aggregation is Servers.TWO
    if evaluate_plan is not None and evaluate_plan.aggregation is not plan.aggregation:
        raise DomainError("plan and evaluate_plan must be for as many servers")
    if two != (helper is not None) or two != (leader is not None):
        raise DomainError(
            'helper and leader go with a plan for aggregation="two-servers", and only with it'
        )


def require_plans(
    plan: CalibratedPlan, evaluate_plan: CalibratedPlan | None, metrics: MetricRanges | None
) -> None:
    """Raise `DomainError` unless a fleet can run the plans."""
    for made in (plan, evaluate_plan):
        if made is not None and made.noise is not Noise.SKELLAM:
            raise DomainError(f'plan must have noise="skellam" on a fleet, got "{made.noise}"')
    require_countable(plan.invited)
    plan.spec()
    if evaluate_plan is None:
        return
    if metrics is None or evaluate_plan.dimension != len(metrics):
        raise DomainError(
            f"evaluate_plan must have one dimension for each of evaluate_metrics=, got "
            f"{evaluate_plan.dimension}"
        )
    evaluate_plan.spec()


def adapt(strategy: Strategy, *, evaluates: bool) -> None:
    """Make ``strategy`` ask all nodes: the grid draws the cohort, as the plan has it.

    Evaluation on nodes is off unless metrics are summed with noise. Raises `DomainError` unless
    the strategy needs only the mean of the updates.
    """
    require_mean_based(strategy)
    wanted = {"fraction_train": 1.0, "fraction_evaluate": 1.0 if evaluates else 0.0}
    for name, value in wanted.items():
        found = getattr(strategy, name, value)
        if found != value:
            _log.info("%s is %g here, not %g: the plan says who is asked", name, value, found)
            setattr(strategy, name, value)
