"""Rounds in this process: unmasked, or through the whole secure-aggregation protocol.

Both sum the same integers, so that with the same entropy they give the same sum, bit for bit. With
an adaptive clip the plan stays, and the clip moves after each round.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import chain, islice
from typing import Protocol, TypeAlias

import numpy as np

from skellam import _checks, secagg
from skellam.codec import Codec, GaussianBaseline, Tensors, WrapEstimate, flatten
from skellam.engines import workers
from skellam.entropy import SEED_BYTES, Entropy, SystemEntropy, random_bytes
from skellam.errors import DomainError, ShapeError, ThresholdError
from skellam.plan import AdaptiveClip, CalibratedPlan, Noise, Servers
from skellam.vectors import Reals, Residues

EntropySource: TypeAlias = Callable[[str], Entropy]
"""From what the bits are for (a client, the server) to where they come from."""
AnyEntropy: TypeAlias = Entropy | EntropySource
"""One entropy for all that a round draws, or one by purpose, by which a simulation replays."""
Spend: TypeAlias = Callable[[], object]
"""Called when all messages are in and before their sum is opened; what it raises ends the round."""
_BEFORE_NOISE_SEED = 4 * SEED_BYTES
"""What a client's part of the protocol draws before: two keys, a nonce and its own mask."""
_LONG = 1 << 17
"""Coordinates from which on processes that encode are worth their start."""
ClientUpdate: TypeAlias = Callable[[int], Tensors | None]
"""A client's update by its number; ``None`` or not finite counts as zeros."""


def by_purpose(entropy: AnyEntropy) -> EntropySource:
    """Return where the bits for each purpose come from."""
    return entropy if callable(entropy) else lambda _: entropy


def spend_nothing() -> None:
    """Spend nothing."""


@dataclass(frozen=True, slots=True)
class Round:
    """One round: its number, the digest of the model that clients were given, and who takes part.

    ``dropouts`` are the members who drop out after they were counted and before they send their
    vector.
    """

    number: int
    model: bytes
    members: tuple[int, ...]
    dropouts: Collection[int] = ()

    def __post_init__(self) -> None:
        _checks.integer("number", self.number, 0)
        _checks.octets("model", self.model, 32)
        _checks.assign(self, members=tuple(sorted(set(self.members))))

    def codec(self, plan: CalibratedPlan) -> Codec:
        """Return the codec of this round; its public seed says nothing about who takes part."""
        seed = plan.round_seed(model=self.model, round_=self.number)
        return plan.codec(public_seed=seed, cohort=len(self.members))

    @property
    def survivors(self) -> tuple[int, ...]:
        """The members who do not drop out."""
        return tuple(m for m in self.members if m not in self.dropouts)


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What a round released: the noisy sum of the survivors' clipped updates."""

    total: Reals
    survivors: tuple[int, ...]
    """Who is in the sum: known to the server, and not for the public."""
    wrap: WrapEstimate | None
    """How far the sum spread over the modulus; there is none without a ring."""
    clip_count: float | None = None
    """Clients within the clip less those beyond it, with noise, if ``plan.quantile_noise`` asks."""
    later: bytes = field(default=b"", repr=False)
    """What later rounds of a band need of this one and those before: a secret of the servers'."""


class Aggregate(Protocol):
    """A way to run one round."""

    def __call__(
        self,
        plan: CalibratedPlan,
        round_: Round,
        update: ClientUpdate,
        *,
        entropy: AnyEntropy,
        spend: Spend = spend_nothing,
    ) -> RoundResult:
        """Return the sum; `ThresholdError` means that too few are left and nothing was released."""


def unmasked(
    plan: CalibratedPlan,
    round_: Round,
    update: ClientUpdate,
    *,
    entropy: AnyEntropy,
    spend: Spend = spend_nothing,
) -> RoundResult:
    """Sum the survivors' messages without masks: for simulation, and for central noise."""
    require_independent(plan)
    source = by_purpose(entropy)
    require_cohort(plan, round_)
    require_survivors(plan, round_)
    if plan.noise.continuous:
        return _continuous(plan, round_, update, entropy=source, spend=spend)
    codec = round_.codec(plan)
    removed = _surplus(plan, codec, round_)
    kept = {n: _noise_seed(codec, n, source) for n in round_.survivors if n not in removed}
    # Noise that would be removed again is not drawn: the sum is the same.
    without = dict.fromkeys(removed)
    with (
        closing(_messages(codec, update, kept, source)) as messages,
        closing(_messages(codec.without_noise(), update, without, source)) as others,
    ):
        total = codec.add(chain(messages, others))
    spend()
    final = with_central_noise(codec, total, entropy=source("server"))
    return released(plan, codec, final, round_.survivors)


def trusted_sum(
    plan: CalibratedPlan,
    round_: Round,
    update: ClientUpdate,
    *,
    entropy: AnyEntropy,
    spend: Spend = spend_nothing,
) -> RoundResult:
    """Sum the survivors' clipped updates and draw the noise of all their shares at once.

    The sum has the law of `unmasked` and `secure` at half the time of the first, and other noise.
    For simulation: the server would see every update without noise, so it would have to be trusted.
    """
    if plan.noise is not Noise.SKELLAM or plan.aggregation is not Servers.ONE:
        raise DomainError(
            f'trusted_sum draws the sum of Skellam shares at once, got noise="{plan.noise}"; '
            "use unmasked"
        )
    source = by_purpose(entropy)
    require_cohort(plan, round_)
    require_survivors(plan, round_)
    codec = round_.codec(plan)
    total = sum_without_noise(codec, round_.survivors, update, source)
    spend()
    shares = len(round_.survivors) - len(_surplus(plan, codec, round_))
    total = codec.add_shares(total, shares, entropy=source("server"))
    return released(plan, codec, total, round_.survivors)


def secure(
    plan: CalibratedPlan,
    round_: Round,
    update: ClientUpdate,
    *,
    entropy: AnyEntropy,
    spend: Spend = spend_nothing,
) -> RoundResult:
    """Run the whole protocol among the members; the server's part sees masked vectors alone."""
    if plan.aggregation is not Servers.ONE:
        raise DomainError("the plan is for two servers; use two_servers, or plan for one server")
    source = by_purpose(entropy)
    require_cohort(plan, round_)
    codec = round_.codec(plan)
    outcome = secagg.simulation.run(
        parameters(plan, round_, codec),
        [identity(n, source) for n in round_.members],
        lambda n, phase: replace(message(codec, n, update, phase.noise_seed, source), label=b""),
        entropy=lambda n: source(f"protocol/{n}"),
        faults=secagg.simulation.FaultScript(
            dropouts={secagg.simulation.Stage.MASKED_INPUT: round_.dropouts}
        ),
        before_unmask=spend,
    )
    total = replace(outcome.total, label=codec.label)
    if codec.spec.removable:
        total = codec.remove(total, outcome.noise_seeds.values())
    final = with_central_noise(codec, total, entropy=source("server"))
    return released(plan, codec, final, outcome.survivors)


def non_private(
    plan: CalibratedPlan,
    round_: Round,
    update: ClientUpdate,
    *,
    entropy: AnyEntropy,  # noqa: ARG001  (the interface of all)
    spend: Spend = spend_nothing,
) -> RoundResult:
    """Sum the survivors' updates as they are, with no clip and no noise: nothing is private."""
    require_cohort(plan, round_)
    require_survivors(plan, round_)
    total = np.zeros(plan.dimension)
    for number in round_.survivors:
        if (vector := update(number)) is not None:
            x = flatten(vector)
            total += x if np.isfinite(x).all() else 0.0
    spend()
    return RoundResult(Reals(total), round_.survivors, None)


def sum_without_noise(
    codec: Codec, clients: Collection[int], update: ClientUpdate, entropy: EntropySource
) -> Residues:
    """Return the sum of the messages of ``clients``, none of which has noise."""
    without = dict.fromkeys(clients)
    with closing(_messages(codec.without_noise(), update, without, entropy)) as messages:
        return codec.add(messages)


def require_independent(plan: CalibratedPlan) -> None:
    """Raise unless every round of ``plan`` is opened by itself."""
    if plan.correlated:
        raise DomainError(
            "the noise of this plan cancels over rounds, so that no round can be run by itself; "
            "use federated.train, or skellam.engines.correlated"
        )


def require_cohort(plan: CalibratedPlan, round_: Round) -> None:
    """Raise `ThresholdError` if the cohort is smaller than any that the plan sums.

    It asks for nothing else: a round that is skipped shows no more of its size.
    """
    if len(round_.members) < plan.min_cohort:
        raise ThresholdError(
            f"the cohort is too small: {len(round_.members)} clients take part and "
            f"{plan.min_cohort} must"
        )


def parameters(plan: CalibratedPlan, round_: Round, codec: Codec) -> secagg.RoundParameters:
    """Return what all parties to the protocol must agree on."""
    return secagg.RoundParameters(
        round_id=sha256(b"skellam/2/round" + codec.label).digest(),
        plan=plan.digest,
        model=round_.model,
        bits=codec.spec.bits,
        length=codec.spec.message_len,
        tolerance=plan.tolerance,
        min_participants=max(2, plan.min_cohort),
        removable=codec.spec.removable,
    )


def sum_unmasked(
    plan: CalibratedPlan,
    updates: Iterable[Tensors],
    *,
    cohort: int,
    public_seed: bytes,
    entropy: Entropy,
) -> Reals:
    """Return the noisy sum of ``updates`` from ``cohort`` clients, for a seed of one's own."""
    vectors = iter(updates)
    if plan.noise.continuous:
        return _gaussian_sum(plan, vectors, entropy=entropy)
    codec = plan.codec(public_seed=public_seed, cohort=cohort)
    if codec.spec.removable:
        raise DomainError("dropout must be 0 here: nobody drops out, and nothing is removed")
    sent = 0

    def sums() -> Iterator[Residues]:
        nonlocal sent
        while group := list(islice(vectors, 1 if entropy.replayable else codec.together)):
            sent += len(group)
            yield codec.encode_sum(group, entropies=[entropy] * len(group))

    total = codec.add(sums())
    if sent != cohort:
        raise ShapeError(f"there must be {cohort} updates, one of each client, got {sent}")
    return codec.decode(with_central_noise(codec, total, entropy=entropy))


def with_central_noise(codec: Codec, total: Residues, *, entropy: Entropy) -> Residues:
    """Return ``total`` with the noise of servers, where the plan leaves it to them."""
    return codec.add_central_noise(total, entropy=entropy) if codec.spec.central else total


def _surplus(plan: CalibratedPlan, codec: Codec, round_: Round) -> tuple[int, ...]:
    """Return the survivors whose noise the protocol would remove."""
    if not codec.spec.removable:
        return ()
    return plan.tolerance.surplus(round_.survivors, len(round_.members))


def _noise_seed(codec: Codec, number: int, entropy: EntropySource) -> bytes | None:
    """Return the seed of a client's noise that the protocol would give it, where it has one."""
    if not codec.spec.removable:
        return None
    stream = entropy(f"protocol/{number}")
    random_bytes(_BEFORE_NOISE_SEED, entropy=stream)
    return codec.new_noise_seed(entropy=stream)


def _messages(
    codec: Codec, update: ClientUpdate, seeds: Mapping[int, bytes | None], entropy: EntropySource
) -> Generator[Residues]:
    """Yield the messages of the clients that have ``seeds``, or sums of several short ones.

    Each is valid until the next.
    """
    long = codec.spec.message_len >= _LONG
    secret = long and all(isinstance(entropy(f"client/{n}"), SystemEntropy) for n in seeds)
    processes = workers.available() if secret else 0
    if len(seeds) > processes > 0:
        jobs = ((update(n), seeds[n]) for n in seeds)
        yield from workers.encode(codec, jobs, processes=processes)
    else:
        numbers, size = [*seeds], codec.together
        for group in (numbers[at : at + size] for at in range(0, len(numbers), size)):
            yield codec.encode_sum(
                map(update, group),
                entropies=[entropy(f"client/{n}") for n in group],
                noise_seeds=[seeds[n] for n in group],
            )


def message(
    codec: Codec, number: int, update: ClientUpdate, seed: bytes | None, entropy: EntropySource
) -> Residues:
    """Return what a client sends before masks."""
    own = entropy(f"client/{number}")
    return codec.encode_or_zeros(update(number), entropy=own, noise_seed=seed)


def released(
    plan: CalibratedPlan, codec: Codec, final: Residues, survivors: tuple[int, ...]
) -> RoundResult:
    """Return what the sum ``final``, which has its noise, says."""
    count = None if plan.quantile_noise is None else codec.clip_count(final)
    return RoundResult(codec.decode(final), survivors, codec.wrap(final), count)


def require_survivors(plan: CalibratedPlan, round_: Round) -> None:
    """Raise `ThresholdError` if too few clients are left for the sum to be opened."""
    min_survivors = plan.min_survivors(len(round_.members))
    if len(round_.survivors) < min_survivors:
        raise ThresholdError(
            f"{len(round_.survivors)} of {len(round_.members)} clients are left; "
            f"{min_survivors} must be"
        )


def identity(number: int, entropy: EntropySource) -> secagg.Identity:
    """Return a client's identity for one round."""
    return secagg.Identity(number, random_bytes(32, entropy=entropy(f"identity/{number}")))


def _continuous(
    plan: CalibratedPlan,
    round_: Round,
    update: ClientUpdate,
    *,
    entropy: EntropySource,
    spend: Spend,
) -> RoundResult:
    vectors = [x for n in round_.survivors if (x := update(n)) is not None]
    spend()
    total = _gaussian_sum(plan, vectors, entropy=entropy("server"))
    return RoundResult(total, round_.survivors, None)


def _gaussian_sum(plan: CalibratedPlan, updates: Iterable[Tensors], *, entropy: Entropy) -> Reals:
    baseline = GaussianBaseline(
        dimension=plan.dimension, clip=plan.clip, deviation=plan.noise_multiplier * plan.clip
    )
    finite = (x for update in updates if np.isfinite(x := flatten(update)).all())
    return baseline.add_central_noise(baseline.add(map(baseline.encode, finite)), entropy=entropy)


def adaptive(
    aggregate: Aggregate,
    plan: CalibratedPlan,
    round_: Round,
    update: ClientUpdate,
    clip: AdaptiveClip,
    *,
    entropy: AnyEntropy,
    spend: Spend,
) -> tuple[RoundResult, AdaptiveClip]:
    """Return what the round released, in the units of the updates, and the clip of the next one."""
    if plan.quantile_noise is None:
        raise DomainError("quantile_noise must be planned for the clip to adapt")

    def scaled(number: int) -> Tensors | None:
        vector = update(number)
        return None if vector is None else clip.scaled(vector, plan)

    result = aggregate(plan, round_, scaled, entropy=entropy, spend=spend)
    if result.clip_count is None:
        raise DomainError("adaptive clipping needs a round that goes through the ring")
    total = result.total / clip.factor(plan)
    return replace(result, total=total), clip.after(result.clip_count, plan)
