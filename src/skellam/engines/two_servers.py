"""Two-server rounds: the run's constants follow from the plan, and a round in this process."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np

from skellam.codec import Codec, WrapEstimate
from skellam.engines import local
from skellam.engines.local import AnyEntropy, ClientUpdate, EntropySource, Round, RoundResult, Spend
from skellam.errors import DomainError
from skellam.plan import CalibratedPlan, Noise, Servers
from skellam.twoserver import RunConstants, simulation
from skellam.twoserver.leader import Release
from skellam.vectors import Reals, Residues


def constants(
    plan: CalibratedPlan,
    *,
    run_id: bytes,
    rounds: int | None = None,
    participations: int | None = None,
) -> RunConstants:
    """Return what leader, helper and clients agree on for a run of ``plan``.

    ``rounds`` and ``participations`` are the plan's unless given. Clients and helper compare the
    constants with limits of their own.
    """
    require_two_servers(plan)
    total = plan.rounds if rounds is None else rounds
    return RunConstants(
        run_id=run_id,
        plan=plan.digest,
        variance=plan.variance,
        norm_bound=norm_bound(plan) * (1 + 1e-9),  # whatever a client's own arithmetic gives
        noise_by="helper" if plan.noise_by == "helper" else "both",
        band=plan.band,
        separation=plan.groups if plan.correlated else 1,
        participations=min(
            total, plan.participations if participations is None else participations
        ),
        bits=plan.bits,
        length=plan.spec().message_len,
        rounds=total,
        min_cohort=plan.min_cohort,
    )


def norm_bound(plan: CalibratedPlan) -> float:
    """Return the norm of vectors that the plan's noise protects as well as what clients send.

    Rounding is accounted for as part of the mechanism, so that this is no bound on the rounded
    vector itself: it is the deviation of one server's noise over the effective multiplier, and over
    the norm of the band where there is one.
    """
    if plan.noise is Noise.NONE:
        return plan.scale * plan.sent_clip
    return math.sqrt(plan.variance) / plan.effective_multiplier / math.hypot(*plan.band)


def require_two_servers(plan: CalibratedPlan) -> None:
    """Raise unless ``plan`` is for two servers."""
    if plan.aggregation is not Servers.TWO:
        raise DomainError(
            'the plan is for one server; plan with aggregation="two-servers", or use secure'
        )


def two_servers(
    plan: CalibratedPlan,
    round_: Round,
    update: ClientUpdate,
    *,
    entropy: AnyEntropy,
    spend: Spend = local.spend_nothing,
) -> RoundResult:
    """Run the whole protocol of leader, helper and clients; each opens what it may see alone.

    Every round is a run of its own, so that nothing has to be kept between them: the caller keeps
    clients to the planned participations.
    """
    require_two_servers(plan)
    local.require_independent(plan)
    local.require_cohort(plan, round_)
    local.require_survivors(plan, round_)
    codec, source = round_.codec(plan), local.by_purpose(entropy)
    run_id = sha256(b"skellam/2/two-servers" + codec.label).digest()
    begun = simulation.begin(
        constants(plan, run_id=run_id, rounds=1),
        [local.identity(n, source) for n in round_.survivors],
        entropy=source("server"),
    )
    ended = simulation.run_round(
        begun,
        0,
        Vectors(codec, round_.survivors, update, source),
        entropy=source("protocol"),
        round_input=round_.model,
        label=codec.label,
        before_job=spend,
    )
    total, wrap = opened(plan, codec, ended.release)
    return RoundResult(total, round_.survivors, wrap)


def opened(plan: CalibratedPlan, codec: Codec, release: Release) -> tuple[Reals, WrapEstimate]:
    """Return what a round of two servers opened, in the units of the updates, and its spread.

    With a band it is the estimate of the round's own sum, and the ring holds c_0 times that.
    """
    total = replace(release.total, label=codec.final_label, messages=len(release.participants))
    if not plan.correlated:
        return codec.decode(total), codec.wrap(total)
    held = np.rint(plan.band[0] * release.estimate.values).astype(np.int64) & (plan.modulus - 1)
    wrap = codec.wrap(replace(total, values=held.astype(total.values.dtype)))
    return codec.decode_estimate(release.estimate), wrap


@dataclass(frozen=True, slots=True)
class Vectors(Mapping[int, Residues]):
    """The clients' messages, each made when it is asked for."""

    codec: Codec
    clients: tuple[int, ...]
    update: ClientUpdate
    entropy: EntropySource

    def __getitem__(self, client: int) -> Residues:
        return local.message(self.codec, client, self.update, None, self.entropy)

    def __iter__(self) -> Iterator[int]:
        return iter(self.clients)

    def __len__(self) -> int:
        return len(self.clients)
