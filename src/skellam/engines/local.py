"""Rounds in this process: in the clear, or through the whole secure-aggregation protocol.

Both sum the same integers, so that with the same entropy they give the same sum, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Protocol, TypeAlias

import numpy as np

from skellam import _checks, secagg
from skellam.codec import Codec, GaussianBaseline, WrapEstimate, public_seed
from skellam.codec.layout import Tensors, flatten
from skellam.engines import workers
from skellam.entropy import SEED_BYTES, Entropy, SystemEntropy, random_bytes
from skellam.errors import DomainError, InfeasibleError, ShapeError, ThresholdError
from skellam.plan import Noise, Plan, Tolerance
from skellam.vectors import Reals, Residues

EntropySource: TypeAlias = Callable[[str], Entropy]
"""From what the bits are for (a client, the server) to where they come from."""
_BEFORE_SEEDS = 4 * SEED_BYTES
"""What a client's part of the protocol draws before: two keys, a nonce and its own mask."""
_LONG = 1 << 17
"""Coordinates from which on processes that encode are worth their start."""
Update: TypeAlias = Callable[[int], Tensors | None]
"""A client's update by its number; ``None`` or not finite counts as zeros."""


@dataclass(frozen=True, slots=True)
class Round:
    """One round: its number, the digest of the model that clients were given, and who is invited.

    ``silent`` members vanish after they were counted and before they send their vector.
    """

    number: int
    model: bytes
    members: tuple[int, ...]
    silent: Collection[int] = ()

    def __post_init__(self) -> None:
        _checks.integer("number", self.number, 0)
        _checks.octets("model", self.model, 32)
        object.__setattr__(self, "members", tuple(sorted(set(self.members))))

    def codec(self, plan: Plan) -> Codec:
        """Return the codec of this round, whose public seed depends on all that is agreed."""
        people = sha256(np.array(self.members, dtype="<u8").tobytes()).digest()
        seed = public_seed(
            participants=people, plan=plan.digest, model=self.model, round=self.number
        )
        return plan.codec(
            public_seed=seed, shares=len(self.members), tolerated=self.tolerance(plan)
        )

    def tolerance(self, plan: Plan) -> Tolerance:
        """Return what the plan tolerates in this cohort."""
        return plan.tolerance(len(self.members))

    @property
    def survivors(self) -> tuple[int, ...]:
        """The members who do not vanish."""
        return tuple(m for m in self.members if m not in self.silent)


@dataclass(frozen=True, slots=True)
class Sum:
    """What a round released: the noisy sum of the survivors' clipped updates."""

    total: Reals
    survivors: tuple[int, ...]
    wrap: WrapEstimate | None
    """How far the sum spread over the modulus; there is none without a ring."""
    balance: float | None = None
    """Clients within the clip less those beyond it, with noise, if ``plan.quantile_noise`` asks."""


class Aggregate(Protocol):
    """A way to run one round."""

    def __call__(self, plan: Plan, this: Round, update: Update, *, entropy: EntropySource) -> Sum:
        """Return the sum; `ThresholdError` means that too few are left and nothing was released."""


def clear(plan: Plan, this: Round, update: Update, *, entropy: EntropySource) -> Sum:
    """Sum the survivors' messages in the clear: for simulation, and for central noise."""
    require_cohort(plan, this)
    _require_survivors(plan, this)
    if plan.noise.continuous:
        return _continuous(plan, this, update, entropy=entropy)
    codec = this.codec(plan)
    seeds = {n: _seeds(codec, n, entropy) for n in this.survivors}
    with closing(_messages(codec, update, seeds, entropy)) as messages:
        total = codec.add(messages)
    if plan.removable:
        gone = len(this.members) - len(this.survivors)
        superfluous = codec.spec.noise.superfluous(gone)  # type: ignore[union-attr]
        total = codec.remove(total, [(j, seeds[n][j]) for n in seeds for j in superfluous])
    return _released(plan, codec, total, this.survivors, entropy)


def secure(plan: Plan, this: Round, update: Update, *, entropy: EntropySource) -> Sum:
    """Run the whole protocol among the members; the server's part sees masked vectors alone."""
    require_cohort(plan, this)
    codec = this.codec(plan)
    outcome = secagg.bus.run(
        protocol_round(plan, this, codec),
        [_identity(n, entropy) for n in this.members],
        lambda n, phase: replace(_message(codec, n, update, phase.noise_seeds, entropy), label=b""),
        entropy=lambda n: entropy(f"protocol/{n}"),
        script=secagg.bus.Script(silent={secagg.bus.Stage.MASK: this.silent}),
    )
    total = replace(outcome.total, label=codec.label)
    revealed = [(j, seed) for j, seeds in outcome.noise_seeds.items() for seed in seeds.values()]
    if revealed:
        total = codec.remove(total, revealed)
    return _released(plan, codec, total, outcome.survivors, entropy)


def plain(plan: Plan, this: Round, update: Update, *, entropy: EntropySource) -> Sum:  # noqa: ARG001
    """Sum the survivors' updates as they are, with no clip and no noise: nothing is private."""
    require_cohort(plan, this)
    _require_survivors(plan, this)
    total = np.zeros(plan.dimension)
    for number in this.survivors:
        if (vector := update(number)) is not None:
            x = flatten(vector)
            total += x if np.isfinite(x).all() else 0.0
    return Sum(Reals(total), this.survivors, None)


def require_cohort(plan: Plan, this: Round) -> None:
    """Raise `ThresholdError` unless secure aggregation is possible among the members."""
    dropouts, colluders = this.tolerance(plan)
    try:
        secagg.topology(len(this.members), dropouts=dropouts, colluders=colluders)
    except (InfeasibleError, DomainError) as error:
        raise ThresholdError(f"the cohort is too small: {error}") from error


def protocol_round(plan: Plan, this: Round, codec: Codec) -> secagg.Round:
    """Return what all parties to the protocol must agree on."""
    dropouts, colluders = this.tolerance(plan)
    return secagg.Round(
        round_id=sha256(b"skellam/1/round" + codec.label).digest(),
        plan=plan.digest,
        model=this.model,
        bits=codec.spec.bits,
        length=codec.spec.length,
        dropouts=dropouts,
        colluders=colluders,
        least=len(this.members),
        removable=plan.removable,
    )


def sum_in_the_clear(
    plan: Plan, updates: Iterable[Tensors], *, shares: int, public_seed: bytes, entropy: Entropy
) -> Reals:
    """Return the noisy sum of ``updates`` from ``shares`` clients, for a seed of one's own."""
    vectors = iter(updates)
    if plan.noise.continuous:
        return _gaussian_sum(plan, vectors, entropy=entropy)
    codec = plan.codec(public_seed=public_seed, shares=shares)
    sent = 0

    def messages() -> Iterator[Residues]:
        nonlocal sent
        for sent, x in enumerate(vectors, start=1):  # noqa: B007  (counted for the check below)
            yield codec.encode_or_zeros(x, entropy=entropy)

    total = codec.add(messages())
    if sent != shares:
        raise ShapeError(f"there must be {shares} updates, one for each share, got {sent}")
    return codec.decode(with_central_noise(plan, codec, total, entropy=entropy))


def with_central_noise(plan: Plan, codec: Codec, total: Residues, *, entropy: Entropy) -> Residues:
    """Return ``total`` with the server's noise, where the plan leaves it to the server."""
    if plan.noise.distributed or plan.noise is Noise.NONE:
        return total
    return codec.add_central_noise(total, entropy=entropy)


def _seeds(codec: Codec, number: int, entropy: EntropySource) -> tuple[bytes, ...]:
    """Return the seeds of removable noise that the protocol would give this client."""
    stream = entropy(f"protocol/{number}")
    random_bytes(_BEFORE_SEEDS, entropy=stream)
    return codec.removable_seeds(entropy=stream)


def _messages(
    codec: Codec, update: Update, seeds: Mapping[int, tuple[bytes, ...]], entropy: EntropySource
) -> Generator[Residues]:
    """Yield the messages of the clients that have ``seeds``, each valid until the next."""
    long = codec.spec.length >= _LONG
    secret = long and all(isinstance(entropy(f"client/{n}"), SystemEntropy) for n in seeds)
    processes = workers.available() if secret else 0
    if len(seeds) > processes > 0:
        jobs = ((update(n), seeds[n]) for n in seeds)
        yield from workers.encode(codec, jobs, processes=processes)
    else:
        yield from (_message(codec, n, update, seeds[n], entropy) for n in seeds)


def _message(
    codec: Codec, number: int, update: Update, seeds: tuple[bytes, ...], entropy: EntropySource
) -> Residues:
    mine, vector = entropy(f"client/{number}"), update(number)
    if vector is None:
        return codec.encode_zeros(entropy=mine, removable=seeds)
    return codec.encode_or_zeros(vector, entropy=mine, removable=seeds)


def _released(
    plan: Plan, codec: Codec, total: Residues, survivors: tuple[int, ...], entropy: EntropySource
) -> Sum:
    final = with_central_noise(plan, codec, total, entropy=entropy("server"))
    balance = None if plan.quantile_noise is None else codec.within(final)
    return Sum(codec.decode(final), survivors, codec.wrap(final), balance)


def _require_survivors(plan: Plan, this: Round) -> None:
    least = max(1, len(this.members) - this.tolerance(plan).dropouts)
    if len(this.survivors) < least:
        raise ThresholdError(
            f"{len(this.survivors)} of {len(this.members)} clients are left; {least} must be"
        )


def _identity(number: int, entropy: EntropySource) -> secagg.Identity:
    return secagg.Identity(number, random_bytes(32, entropy=entropy(f"identity/{number}")))


def _continuous(plan: Plan, this: Round, update: Update, *, entropy: EntropySource) -> Sum:
    vectors = (x for n in this.survivors if (x := update(n)) is not None)
    return Sum(_gaussian_sum(plan, vectors, entropy=entropy("server")), this.survivors, None)


def _gaussian_sum(plan: Plan, updates: Iterable[Tensors], *, entropy: Entropy) -> Reals:
    baseline = GaussianBaseline(
        dimension=plan.dimension, clip=plan.clip, deviation=plan.noise_multiplier * plan.clip
    )
    finite = (x for update in updates if np.isfinite(x := flatten(update)).all())
    return baseline.add_central_noise(baseline.add(map(baseline.encode, finite)), entropy=entropy)
