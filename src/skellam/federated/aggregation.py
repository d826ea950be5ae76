"""Aggregation and server optimisers: how updates are summed, and what is done with their mean.

Server optimisers take a state in and give a state out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.engines import correlated, local
from skellam.engines.sampling import bernoulli
from skellam.engines.two_servers import two_servers as two_servers_round
from skellam.entropy import Entropy
from skellam.errors import DomainError, ShapeError
from skellam.plan import AdaptiveClip, CalibratedPlan, Noise, Servers
from skellam.plan.sizes import expected_dropout

Vector: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class ServerState:
    """The model after ``step`` updates, and the optimiser's moments of the updates."""

    model: Vector
    moments: tuple[Vector, ...] = ()
    step: int = 0


@dataclass(frozen=True, slots=True)
class ServerOptimiser:
    """``init`` makes the first state of a model, ``apply`` the next one from a mean update.

    ``name`` tells it from others: a run goes on with the optimiser that it began with.
    """

    name: str
    init: Callable[[Vector], ServerState]
    apply: Callable[[ServerState, Vector], ServerState]
    powers: tuple[int, ...] = (1,)
    """With which power of the updates' unit each of the moments grows."""
    momentum: float | None = None
    """Momentum of a server that gives all updates the same weight; None for any other server."""

    def rescaled(self, state: ServerState, ratio: float) -> ServerState:
        """Return ``state`` as if all updates so far had been ``ratio`` times as long."""
        parts = zip(state.moments, self.powers, strict=True)
        return replace(state, moments=tuple(part * np.float32(ratio**p) for part, p in parts))


def fedavg(*, learning_rate: float = 1.0, momentum: float = 0.0) -> ServerOptimiser:
    """Return averaging with momentum: v <- momentum v + update, model <- model + rate v."""
    step = np.float32(_checks.positive("learning_rate", learning_rate))
    kept = np.float32(_checks.between("momentum", momentum, 0, 1))

    def init(model: Vector) -> ServerState:
        return ServerState(model, (np.zeros_like(model),))

    def apply(state: ServerState, update: Vector) -> ServerState:
        _require_like(state, update)
        velocity = kept * state.moments[0] + update
        return ServerState(state.model + step * velocity, (velocity,), state.step + 1)

    settings = f"learning_rate={learning_rate!r}, momentum={momentum!r}"
    return ServerOptimiser(f"fedavg({settings})", init, apply, momentum=float(momentum))


def adam(
    *, learning_rate: float, beta1: float = 0.9, beta2: float = 0.99, eps: float = 1e-3
) -> ServerOptimiser:
    """Return Adam on mean updates (Reddi et al. 2021, FedAdam, with Kingma and Ba's correction)."""
    _checks.positive("learning_rate", learning_rate)
    _checks.between("beta1", beta1, 0, 1 - 1e-9)
    _checks.between("beta2", beta2, 0, 1 - 1e-9)
    _checks.positive("eps", eps)

    def init(model: Vector) -> ServerState:
        return ServerState(model, (np.zeros_like(model), np.zeros_like(model)))

    def apply(state: ServerState, update: Vector) -> ServerState:
        _require_like(state, update)
        count = state.step + 1
        mean = np.float32(beta1) * state.moments[0] + np.float32(1 - beta1) * update
        square = np.float32(beta2) * state.moments[1] + np.float32(1 - beta2) * update**2
        scaled = np.sqrt(square / np.float32(1 - beta2**count)) + np.float32(eps)
        move = np.float32(learning_rate / (1 - beta1**count)) * mean / scaled
        return ServerState(state.model + move, (mean, square), count)

    settings = f"learning_rate={learning_rate!r}, beta1={beta1!r}, beta2={beta2!r}, eps={eps!r}"
    return ServerOptimiser(f"adam({settings})", init, apply, powers=(1, 2))


def _require_like(state: ServerState, update: Vector) -> None:
    if update.shape != state.model.shape or update.dtype != np.float32:
        raise ShapeError(
            f"an update of {update.dtype} {update.shape} does not go with {state.model.shape}"
        )


def require_server(plan: CalibratedPlan, server: ServerOptimiser) -> None:
    """Raise unless noise that cancels over rounds cancels in the model of ``server`` too."""
    if not plan.correlated or server.momentum == plan.server_momentum:
        return
    if server.momentum is None:
        raise DomainError(
            f"{server.name} gives rounds different weights, so that their noise would not cancel; "
            "use fl.fedavg, or plan with correlation=None"
        )
    raise DomainError(
        f"server_momentum={plan.server_momentum:g} is planned for, and {server.name} has another; "
        "plan with the server's momentum"
    )


Dropout: TypeAlias = float | Mapping[int, Collection[int]]


@dataclass(frozen=True, slots=True)
class Aggregation:
    """A way to run rounds, and who drops out of them.

    ``dropout`` is the chance of every client to drop out, or a script: the clients that drop out in
    each round. It is itself a `local.Aggregate`, which draws the dropouts where a round names none:
    what `train` takes as ``aggregate=``, analytics and audits take too.
    """

    run: local.Aggregate
    name: str
    dropout: Dropout = 0.0
    run_correlated: correlated.CorrelatedAggregate | None = None
    """How rounds are run whose noise cancels over rounds, where that can be."""

    def __post_init__(self) -> None:
        if not isinstance(self.dropout, Mapping):
            _checks.between("dropout", self.dropout, 0, 1)

    def __call__(
        self,
        plan: CalibratedPlan,
        round_: local.Round,
        update: local.ClientUpdate,
        *,
        entropy: local.AnyEntropy,
        spend: local.Spend = local.spend_nothing,
    ) -> local.RoundResult:
        """Run one round."""
        if not round_.dropouts:
            self._require_expected(plan)
            drawn = local.by_purpose(entropy)("dropout")
            dropouts = self.dropouts(round_.number, round_.members, entropy=drawn)
            round_ = replace(round_, dropouts=dropouts)
        return self.run(plan, round_, update, entropy=entropy, spend=spend)

    def dropouts(
        self, number: int, members: tuple[int, ...], *, entropy: Entropy
    ) -> tuple[int, ...]:
        """Return the ``members`` of round ``number`` that drop out before they send a message."""
        if isinstance(self.dropout, Mapping):
            return tuple(sorted(set(members).intersection(self.dropout.get(number, ()))))
        chosen = bernoulli(len(members), self.dropout, entropy=entropy)
        return tuple(np.array(members, dtype=np.intp)[chosen].tolist())

    def require(self, plan: CalibratedPlan, clip: AdaptiveClip | None = None) -> None:
        """Raise unless cohorts of the planned size can be summed in this way, with such a clip."""
        two_servers = plan.aggregation is Servers.TWO
        if self.run in {local.secure, two_servers_round} and (
            two_servers != (self.run is two_servers_round)
        ):
            needed = "fl.two_servers()" if two_servers else "fl.secure()"
            raise DomainError(
                f'aggregation="{plan.aggregation}" is planned; use aggregate={needed}, '
                "or fl.unmasked()"
            )
        if self.run is local.secure and plan.noise.continuous:
            raise DomainError(
                f'noise="{plan.noise}" goes through no ring; use aggregate=fl.unmasked()'
            )
        skellam_shares = plan.noise is Noise.SKELLAM and plan.clients_add_noise
        if self.run is local.trusted_sum and not skellam_shares:
            raise DomainError(
                f'noise="{plan.noise}" has no shares to draw at once; use aggregate=fl.unmasked()'
            )
        if self.run is local.non_private:
            if clip is not None:
                raise DomainError("clip must be None: nothing is clipped without privacy")
        elif clip is not None and plan.quantile_noise is None:
            raise DomainError(
                "clip adapts only where the plan has quantile_noise, got None; plan with, for "
                "instance, quantile_noise=0.05, or leave clip out"
            )
        elif clip is None and plan.quantile_noise is not None:
            raise DomainError(
                "clip must be given: the plan spends on a clip that adapts; "
                "or plan without quantile_noise"
            )
        if plan.correlated and not (self.run_correlated or self.run is local.non_private):
            raise DomainError(
                f"correlation is planned, and {self.name} runs every round by itself; use "
                "aggregate=fl.two_servers(), or fl.unmasked()"
            )
        round_ = local.Round(0, bytes(32), tuple(range(plan.invited)))
        local.require_cohort(plan, round_)
        self._require_survival(plan, round_)
        self._require_expected(plan)

    def _require_survival(self, plan: CalibratedPlan, round_: local.Round) -> None:
        tolerated = len(round_.members) - plan.min_survivors(len(round_.members))
        if isinstance(self.dropout, Mapping) or self.dropout * plan.invited <= tolerated:
            return
        raise DomainError(
            f"dropout={self.dropout:g} of about {plan.invited} clients is more than the "
            f"{tolerated} that the plan tolerates, so that most rounds would release nothing; "
            f"plan with dropout={self.dropout:g} or more, or let fewer drop out"
        )

    def _require_expected(self, plan: CalibratedPlan) -> None:
        """Raise if clients drop out more often than the guarantee of random cohorts assumes."""
        if isinstance(self.dropout, Mapping) or not self.private(plan):
            return
        if plan.sampling.random and self.dropout > expected_dropout(plan):
            raise DomainError(
                f"dropout={self.dropout:g} is more than the chance of {expected_dropout(plan):g} "
                "for which skipped and aborted rounds are accounted for; plan with "
                f"expected_dropout={self.dropout:g}, or with a dropout that is twice as large"
            )

    def private(self, plan: CalibratedPlan) -> bool:
        """Return whether what it releases under ``plan`` has a guarantee."""
        return self.run is not local.non_private and plan.noise is not Noise.NONE


def unmasked(*, dropout: Dropout = 0.0) -> Aggregation:
    """Return summing without masks: the same integers as `secure`, for simulation."""
    return Aggregation(local.unmasked, "unmasked", dropout, correlated.unmasked)


def trusted_sum(*, dropout: Dropout = 0.0) -> Aggregation:
    """Return summing with all noise drawn at once: the law of `unmasked`, by a trusted server."""
    return Aggregation(local.trusted_sum, "trusted_sum", dropout)


def secure(*, dropout: Dropout = 0.0) -> Aggregation:
    """Return the whole secure-aggregation protocol among the clients of a round."""
    return Aggregation(local.secure, "secure", dropout)


def two_servers(*, dropout: Dropout = 0.0) -> Aggregation:
    """Return the whole protocol of a leader and a helper that do not collude."""
    return Aggregation(two_servers_round, "two_servers", dropout, correlated.two_servers)


def non_private(*, dropout: Dropout = 0.0) -> Aggregation:
    """Return federated averaging without clipping or noise: what privacy is compared with."""
    return Aggregation(local.non_private, "non_private", dropout)
