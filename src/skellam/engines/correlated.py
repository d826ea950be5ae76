"""Correlated rounds in this process: unmasked, or through the protocol of leader and helper.

A round opens a sum over the last rounds, so each takes what the one before left, as bytes, and
leaves bytes for the next (`RoundResult.later`). They are to be kept with the model: whoever runs a
round again from older bytes must draw the same noise again, or leave the round out. Otherwise its
sum is opened twice, and the clients of ALL rounds of the band are in it (`federated.train` sees to
that).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Annotated, Protocol, final

import numpy as np

from skellam.codec import Codec
from skellam.engines import local
from skellam.engines.local import AnyEntropy, ClientUpdate, EntropySource, Round, RoundResult, Spend
from skellam.engines.two_servers import Vectors, constants, opened, require_two_servers
from skellam.entropy import derive_key, random_bytes
from skellam.plan import CalibratedPlan
from skellam.protocol.identity import Identity
from skellam.protocol.wire import Blob, Digest, Many, Nested, Uint
from skellam.twoserver import ring, simulation
from skellam.twoserver.client import ClientState
from skellam.twoserver.helper import HelperState
from skellam.twoserver.leader import Idle, Release
from skellam.twoserver.state import MAX_CLIENTS, Stored
from skellam.vectors import Reals

_State = Blob((1 << 32) - 1)


class CorrelatedAggregate(Protocol):
    """A way to run one round of a band."""

    def __call__(
        self,
        plan: CalibratedPlan,
        round_: Round,
        update: ClientUpdate,
        earlier: bytes,
        *,
        entropy: AnyEntropy,
        spend: Spend = local.spend_nothing,
    ) -> RoundResult:
        """Return the estimate of the round's sum; ``earlier`` is what the last round left."""


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Window(Stored):
    """Sums and estimates of the last rounds, without masks."""

    TAG = 128
    sums: ring.Window = ()
    estimates: ring.Window = ()


def unmasked(
    plan: CalibratedPlan,
    round_: Round,
    update: ClientUpdate,
    earlier: bytes,
    *,
    entropy: AnyEntropy,
    spend: Spend = local.spend_nothing,
) -> RoundResult:
    """Run a round without masks: the same integers as `two_servers`, for simulation."""
    _require(plan, round_)
    codec, at = round_.codec(plan), round_.number
    agreed = constants(plan, run_id=bytes(32))
    window = _Window.from_bytes(earlier) if earlier else _Window()
    source = local.by_purpose(entropy)
    summed = local.sum_without_noise(codec, round_.survivors, update, source)
    spend()
    total = replace(summed, values=ring.band_sum(summed.values, window.sums, at, agreed))
    total = local.with_central_noise(codec, total, entropy=source("server"))
    estimate = ring.estimate(total.values, window.estimates, at, agreed)
    later = _Window(
        ring.advanced(window.sums, ring.to_slot(at, summed.values), agreed),
        ring.advanced(window.estimates, ring.to_slot(at, estimate), agreed),
    )
    members = np.array(round_.survivors, dtype=np.uint64)
    release = Release(at, total, Reals(estimate, total.replayable), members, ())
    return _result(plan, codec, release, round_, later)


@dataclass(frozen=True, slots=True)
class _Client:
    """What one client remembers."""

    number: Annotated[int, Uint(8)]
    state: Annotated[bytes, _State]


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Run(Stored):
    """Both servers and all clients between two rounds; identities follow from ``root``."""

    TAG = 129
    root: Digest
    leader: Annotated[bytes, _State]
    helper: Annotated[bytes, _State]
    clients: Annotated[tuple[_Client, ...], Many(Nested(_Client), MAX_CLIENTS)]

    @classmethod
    def begin(cls, plan: CalibratedPlan, entropy: EntropySource) -> _Run:
        root = random_bytes(32, entropy=entropy("identities"))
        run_id = sha256(b"skellam/2/correlated/run" + root).digest()
        begun = simulation.begin(
            constants(plan, run_id=run_id), (), entropy=entropy("servers"), servers=_servers(root)
        )
        return cls(root, begun.leader.to_bytes(), begun.helper.to_bytes(), ())

    def resumed(self, members: tuple[int, ...]) -> simulation.Simulation:
        known = {each.number: ClientState.from_bytes(each.state) for each in self.clients}
        return simulation.resume(
            Idle.from_bytes(self.leader),
            HelperState.from_bytes(self.helper),
            {n: known.get(n, ClientState()) for n in members},
            [_identity(n, self.root) for n in members],
            servers=_servers(self.root),
        )

    def after(self, ended: simulation.Simulation) -> _Run:
        states = {each.number: each.state for each in self.clients}
        states |= {number: state.to_bytes() for number, state in ended.clients.items()}
        return _Run(
            self.root,
            ended.leader.to_bytes(),
            ended.helper.to_bytes(),
            tuple(_Client(number, states[number]) for number in sorted(states)),
        )


def two_servers(
    plan: CalibratedPlan,
    round_: Round,
    update: ClientUpdate,
    earlier: bytes,
    *,
    entropy: AnyEntropy,
    spend: Spend = local.spend_nothing,
) -> RoundResult:
    """Run a round of the whole protocol; each party opens what it may see alone."""
    _require(plan, round_)
    codec, source = round_.codec(plan), local.by_purpose(entropy)
    run = _Run.from_bytes(earlier) if earlier else _Run.begin(plan, source)
    ended = simulation.run_round(
        run.resumed(round_.survivors),
        round_.number,
        Vectors(codec, round_.survivors, update, source),
        entropy=source("protocol"),
        round_input=round_.model,
        label=codec.label,
        before_job=spend,
    )
    return _result(plan, codec, ended.release, round_, run.after(ended))


def _result(
    plan: CalibratedPlan, codec: Codec, release: Release, round_: Round, later: Stored
) -> RoundResult:
    total, wrap = opened(plan, codec, release)
    return RoundResult(total, round_.survivors, wrap, later=later.to_bytes())


def _require(plan: CalibratedPlan, round_: Round) -> None:
    require_two_servers(plan)
    local.require_cohort(plan, round_)
    local.require_survivors(plan, round_)


def _servers(root: bytes) -> tuple[Identity, Identity]:
    leader, helper = (Identity(i, derive_key(root, b"server/%d" % i)) for i in range(2))
    return leader, helper


def _identity(number: int, root: bytes) -> Identity:
    return Identity(number, derive_key(root, b"client/%d" % number))
