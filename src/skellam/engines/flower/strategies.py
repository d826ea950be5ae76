"""Which strategies may run on sums: those that need nothing but the mean of the updates."""

from __future__ import annotations

from typing import TypeVar

from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Strategy

from skellam.errors import DomainError

_MEAN_BASED: tuple[type[Strategy], ...] = (
    flower.FedAvg,
    flower.FedAvgM,
    flower.FedAdam,
    flower.FedAdagrad,
    flower.FedYogi,
    flower.FedProx,
)
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
_S = TypeVar("_S", bound=type[Strategy])


def mean_based(kind: _S) -> _S:
    """Declare, as a decorator, that a strategy of one's own needs only the mean of the updates."""
    setattr(kind, _DECLARED, kind)
    return kind


def require_mean_based(strategy: Strategy) -> None:
    """Raise `DomainError` unless ``strategy`` runs on the mean alone, over all nodes."""
    kind = type(strategy)
    for known, reason in _REASONS.items():
        if isinstance(strategy, known):
            raise DomainError(f"{kind.__name__} cannot run on a secure sum: {reason}")
    if kind not in _MEAN_BASED and getattr(kind, _DECLARED, None) is not kind:
        raise DomainError(
            f"{kind.__name__} is not known to need only the mean of the updates; "
            "if it does, declare it with @mean_based"
        )
    if getattr(strategy, "fraction_train", 1.0) != 1.0:
        raise DomainError(
            "fraction_train must stay 1.0: SecureGrid draws the cohort, as the plan has it"
        )
    if getattr(strategy, "fraction_evaluate", 0.0) != 0.0:
        raise DomainError(
            "fraction_evaluate must be 0.0: evaluation on nodes would report single clients; "
            "pass evaluate_fn to start() and evaluate on the server"
        )
