"""Codec, Algorithm 1: clip, rotate, scale, round, add noise, wrap; and back on the server."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final, assert_never, final

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.codec.arithmetic import (
    Lattices,
    Rotation,
    Sampler,
    WrapEstimate,
    add_lattice,
    centred,
    coordinate_subset,
    draw,
    draw_rows,
    excess,
    finite_peak,
    integer_chunks,
    integer_vector,
    peak_of,
    round_conditional,
    round_rows_conditional,
    round_rows_unbiased,
    round_unbiased,
    shrink,
    sum_of_rows,
    upper_norm,
    upper_norms,
    wrap_estimate,
    wrapped,
)
from skellam.codec.spec import (
    CentralDiscreteGaussian,
    CentralSkellam,
    CodecSpec,
    Conditional,
    DiscreteGaussianShares,
    Integer,
    NoiseSpec,
    NoNoise,
    Sensitivity,
    SkellamShares,
    Unbiased,
    rounded_norm_square,
    sensitivity,
)
from skellam.entropy import SEED_BYTES, Entropy, SeededEntropy, random_bytes
from skellam.errors import DomainError, KindError, ShapeError, ThresholdError
from skellam.noise import DiscreteGaussianSampler, SkellamSampler
from skellam.vectors import Reals, Residues, Tensors, flatten, pack_residues, unpack_residues

TAG_BYTES: Final = 8
"""Bytes in front of a packed message that tell which plan and round it belongs to."""
_HUGE: Final = 2.0**64
"""Vectors that may be longer than this many clips are scaled down before float32 loses them."""
_TOGETHER: Final = 1 << 17
"""Coordinates of short vectors that are encoded at once: they and their noise stay in the cache."""


def public_seed(*, plan: bytes, model: bytes, round_: int) -> bytes:
    """Return the seed that the digests of plan and model fix for a round's rotation and subset.

    Nobody can choose it after seeing the updates; privacy would hold even then, accuracy might not.
    It says nothing about who takes part or how many: a released vector shows its rotation, so a
    guess at anything that entered the seed could be confirmed from the release.
    """
    digest = sha256(b"skellam/2/public-seed")
    for name, value in (("plan", plan), ("model", model)):
        if not isinstance(value, bytes):
            raise KindError(f"{name} must be a digest in bytes, got {type(value).__name__}")
        digest.update(len(value).to_bytes(8, "big") + value)
    digest.update(_checks.integer("round_", round_, 0, (1 << 63) - 1).to_bytes(8, "big"))
    return digest.digest()


@final
class Codec:
    """One round's arithmetic, the same for whoever knows the spec and the public seed.

    The messages of one codec carry its ``label`` and add up only among themselves.
    """

    __slots__ = ("_clip_codec", "_noisy", "_rotation", "_sampler", "_subset", "label", "spec")
    label: bytes

    def __init__(self, spec: CodecSpec, *, public_seed: bytes) -> None:
        seed = _checks.octets("public_seed", public_seed, SEED_BYTES)
        self.spec = spec
        self._clip_codec = (
            None if spec.clip_count is None else _clip_codec(spec.bits, spec.clip_count, seed)
        )
        clip_label = self._clip_codec.label if self._clip_codec else b""
        self.label = sha256(b"skellam/2/codec" + seed + repr(spec).encode() + clip_label).digest()
        self._rotation = Rotation(spec.padded_dim, seed)
        self._sampler = sampler_of(spec.noise)
        self._noisy = True
        self._subset = (
            None
            if spec.sent_dim == spec.padded_dim
            else coordinate_subset(spec.padded_dim, spec.sent_dim, seed)
        )

    @property
    def sensitivity(self) -> Sensitivity:
        """The bounds that every message keeps to, whatever the input and the public seed."""
        return sensitivity(self.spec)

    @property
    def total_variation(self) -> float:
        """How far the noise that one party adds to one coordinate is, at most, from its ideal."""
        return self._sampler.total_variation if self._sampler else 0.0

    def new_noise_seed(self, *, entropy: Entropy) -> bytes:
        """Return a fresh secret seed for the removable noise of one message."""
        return random_bytes(SEED_BYTES, entropy=entropy)

    def encode(self, x: Tensors, *, entropy: Entropy, noise_seed: bytes | None = None) -> Residues:
        """Return ``x``, clipped, as a message with this client's noise, or raise for bad input.

        ``noise_seed`` is required exactly if the noise is removable: all noise of the message then
        comes from it, and whoever learns it can take that noise away. Use a seed for one message.
        The rounding coins always come from ``entropy``. The message is replayable if ``entropy``
        is: the seed is a secret of the client's until the protocol opens it.
        """
        vector = self.vector(x)
        return self._message(self._read(vector), entropy, noise_seed, self._clip_side(vector))

    def encode_or_zeros(
        self, x: Tensors | None, *, entropy: Entropy, noise_seed: bytes | None = None
    ) -> Residues:
        """Encode ``x``, or zeros for ``None`` and where `encode` would refuse its entries.

        So no share of noise is lost.
        """
        if x is None:
            return self.encode_zeros(entropy=entropy, noise_seed=noise_seed)
        vector = self.vector(x)
        try:
            read, side = self._read(vector), self._clip_side(vector)
        except DomainError:
            return self.encode_zeros(entropy=entropy, noise_seed=noise_seed)
        return self._message(read, entropy, noise_seed, side)

    def encode_zeros(self, *, entropy: Entropy, noise_seed: bytes | None = None) -> Residues:
        """Return a message of nothing but noise, for a client that sits the round out unseen."""
        zeros = np.zeros(self.spec.dimension, dtype=np.int32 if self._is_integer else np.float32)
        return self._message(self._read(zeros), entropy, noise_seed, 0)

    @property
    def together(self) -> int:
        """How many vectors `encode_sum` encodes at once: several if they are short, else one."""
        return max(1, _TOGETHER // self.spec.padded_dim)

    def encode_sum(
        self,
        xs: Iterable[Tensors | None],
        *,
        entropies: Sequence[Entropy],
        noise_seeds: Sequence[bytes | None] | None = None,
    ) -> Residues:
        """Return the sum of one message a client, each as `encode_or_zeros` gives it, bit for bit.

        Short vectors of several clients, at most `together`, take a fraction of the time of one by
        one. Clients that share a replayable entropy are encoded one by one, as they draw in turn.
        """
        seeds, given = noise_seeds or [None] * len(entropies), _exactly(len(entropies), xs)
        shared = len(set(map(id, entropies))) < len(entropies)
        if not 1 < len(entropies) <= self.together or (shared and entropies[0].replayable):
            return self.add(
                self.encode_or_zeros(x, entropy=entropy, noise_seed=seed)
                for x, entropy, seed in zip(given, entropies, seeds, strict=True)
            )
        read, sides = self._read_rows(given, len(entropies))
        total = sum_of_rows(self._lattice_rows(read, entropies), self.spec.bits)
        found = map(self._noise_source, entropies, seeds)
        sources = [source for source in found if source is not None]
        if self._sampler is not None and sources:
            noise = draw_rows(self._sampler, self.spec.sent_dim, entropies=sources)
            total += sum_of_rows(noise, self.spec.bits)
            total &= total.dtype.type((1 << self.spec.bits) - 1)
        clip_count = self._clip_codec and self._clip_codec.encode_sum(
            sides, entropies=entropies, noise_seeds=seeds
        )
        replayable = any(entropy.replayable for entropy in entropies)
        message = self.message(_joined(total, clip_count), replayable=replayable)
        return replace(message, messages=len(entropies) * message.messages)

    def without_noise(self) -> Codec:
        """Return this codec for messages without noise, for simulation.

        They add up with the others and count as no message, so that no codec packs one and no
        total is decoded that has less than all of its noise.
        """
        bare = copy(self)
        bare._noisy = False  # noqa: SLF001  (one's own class)
        bare._clip_codec = self._clip_codec and self._clip_codec.without_noise()  # noqa: SLF001
        return bare

    def vector(self, x: Tensors) -> NDArray[Any]:
        """Return ``x`` as the vector that is encoded, without a copy where it is one already."""
        vector = integer_vector(x) if self._is_integer else flatten(x)
        if len(vector) != self.spec.dimension:
            raise ShapeError(f"x must hold {self.spec.dimension} numbers, got {len(vector)}")
        return vector

    def add(self, messages: Iterable[Residues]) -> Residues:
        """Return the sum of ``messages``, all of this codec."""
        total = None
        replayable, count = False, 0
        for message in messages:
            self._require_mine(message)
            replayable |= message.replayable
            count += message.messages
            if total is None:
                total = message.values.copy()
            else:
                total += message.values
        if total is None:
            raise ShapeError("messages must hold at least one message")
        total &= total.dtype.type((1 << self.spec.bits) - 1)
        return Residues(total, self.spec.bits, self.label, replayable, count)

    def add_central_noise(self, total: Residues, *, entropy: Entropy) -> Residues:
        """Return ``total`` with the server's noise: required once, and only in central modes."""
        self._require_mine(total)
        sampler = self._sampler
        if sampler is None or not self.spec.central:
            raise DomainError(
                f"{self.spec.noise} leaves no noise to the server; decode the sum as it is"
            )
        values = total.values[: self.spec.sent_dim].copy()
        add_lattice(values, draw(sampler, len(values), entropy=entropy), self.spec.bits)
        clip_count = self._clip_codec and self._clip_codec.add_central_noise(
            self._clip_part(total, self._clip_codec.label), entropy=entropy
        )
        return replace(
            total,
            values=_joined(values, clip_count),
            replayable=total.replayable or entropy.replayable,
            label=self.final_label,
        )

    def add_shares(self, total: Residues, count: int, *, entropy: Entropy) -> Residues:
        """Return ``total`` with the noise of ``count`` more messages, drawn at once.

        Shares of Skellam noise add up to one draw of their summed variance, so the law is that of
        ``count`` shares. Whoever draws it knows all of it: it is for simulation.
        """
        self._require_mine(total)
        noise, shares = self.spec.noise, _checks.integer("count", count, 1)
        if not isinstance(noise, SkellamShares):
            raise DomainError(f"{noise} has no shares that add up to one draw; Skellam noise has")
        values = total.values[: self.spec.sent_dim].copy()
        sampler = SkellamSampler(shares * noise.share)
        add_lattice(values, draw(sampler, len(values), entropy=entropy), self.spec.bits)
        clip_count = self._clip_codec and self._clip_codec.add_shares(
            self._clip_part(total, self._clip_codec.label), shares, entropy=entropy
        )
        return replace(
            total,
            values=_joined(values, clip_count),
            replayable=total.replayable or entropy.replayable,
            messages=total.messages + shares,
        )

    def remove(self, total: Residues, seeds: Iterable[bytes]) -> Residues:
        """Return ``total`` without the noise of the messages whose ``seeds`` were opened.

        ``messages`` of the result counts the messages whose noise is left.
        """
        self._require_mine(total)
        opened, sampler = tuple(seeds), self._sampler
        if sampler is None or not self.spec.removable:
            raise DomainError(f"{self.spec.noise} cannot be removed; make its spec removable")
        if len(set(opened)) != len(opened):
            raise DomainError("a noise seed was given twice; remove the noise of each message once")
        if len(opened) > total.messages:
            raise DomainError(
                f"{len(opened)} noise seeds were given for the noise of {total.messages} messages; "
                "give at most one a message"
            )
        values = np.negative(total.values[: self.spec.sent_dim])  # -(-total + noise)
        for seed in opened:
            noise = draw(sampler, len(values), entropy=self._noise_stream(seed))
            add_lattice(values, noise, self.spec.bits)
        np.negative(values, out=values)
        values &= values.dtype.type((1 << self.spec.bits) - 1)
        clip_count = self._clip_codec and self._clip_codec.remove(
            self._clip_part(total, self._clip_codec.label), opened
        )
        return replace(
            total,
            values=_joined(values, clip_count),
            messages=total.messages - len(opened),
        )

    def decode(self, total: Residues) -> Reals:
        """Return the sum of the clipped vectors, with the noise, in real units.

        Without bias where rounding has none and no coordinate was cut to its bound. Where ``d'``
        of ``d`` coordinates are sent, sampling them adds ``(d/d' - 1) |sum|**2`` to the expected
        squared error over all ``d``. A sum with fewer or, where the surplus can be removed, with
        more shares of noise than the spec's is refused.
        """
        self._require_final(total)
        spec = self.spec
        if self._is_integer:
            return Reals(centred(total).astype(np.float64), total.replayable)
        y = centred(total)[: spec.sent_dim].astype(np.float32)
        return self._turned_back(y, replayable=total.replayable)

    def decode_estimate(self, estimate: Reals) -> Reals:
        """Return an estimate of a sum, made from noisy sums of several rounds, in real units.

        It has a number for each coordinate of a message, in the integer domain. Whoever made it
        answers for its noise; this codec's spec tells nothing of it.
        """
        if len(estimate) != self.spec.message_len or self.spec.clip_count is not None:
            raise ShapeError(
                f"an estimate must hold {self.spec.message_len} numbers and no clip count, "
                f"got {len(estimate)}"
            )
        if self._is_integer:
            return estimate
        y = estimate.values.astype(np.float32)
        return self._turned_back(y, replayable=estimate.replayable)

    def _turned_back(self, y: NDArray[np.float32], *, replayable: bool) -> Reals:
        """Return sent coordinates of a sum, in the integer domain, as a vector of real units."""
        spec = self.spec
        if self._subset is not None:
            y, sent = np.zeros(spec.padded_dim, dtype=np.float32), y
            y[self._subset] = sent
        gain = spec.padded_dim / spec.sent_dim / spec.scale
        return Reals(self._rotation.backward(y, gain, spec.dimension), replayable)

    def clip_count(self, total: Residues) -> float:
        """Return how many clients were within the clip less how many were not, with noise."""
        self._require_final(total)
        if self._clip_codec is None:
            raise DomainError(
                "the spec gives no noise to clip_count, so no message carries it; "
                "plan with quantile_noise"
            )
        part = self._clip_part(total, self._clip_codec.final_label)
        return float(self._clip_codec.decode(part).values[0])

    def wrap(self, total: Residues) -> WrapEstimate:
        """Return how far ``total`` spreads over the modulus; its `require` raises."""
        self._require_final(total)
        return wrap_estimate(replace(total, values=total.values[: self.spec.sent_dim]))

    def pack(self, message: Residues) -> bytes:
        """Return one message as bytes: a tag, then exactly ``bits`` bits a coordinate."""
        self._require_mine(message)
        if message.messages != 1:
            raise DomainError(
                f"bytes carry one message, got a sum of {message.messages}; pack before adding"
            )
        return self.label[:TAG_BYTES] + pack_residues(message.values, self.spec.bits)

    def unpack(self, data: bytes) -> Residues:
        """Return the message that `pack` made ``data`` from; refuse one of another round."""
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise KindError(f"data must be the bytes of a message, got {type(data).__name__}")
        tag, residues = bytes(data[:TAG_BYTES]), data[TAG_BYTES:]
        values = unpack_residues(residues, self.spec.message_len, self.spec.bits)
        if tag != self.label[:TAG_BYTES]:
            raise DomainError(
                f"the message has the tag {tag.hex()}, this plan and round have "
                f"{self.label[:TAG_BYTES].hex()}; decode it with the codec that encoded it"
            )
        return Residues(values, self.spec.bits, self.label)

    @property
    def final_label(self) -> bytes:
        """The label of a total that may be decoded: central modes demand the server's noise."""
        return self.label if not self.spec.central else self.label + b" with noise"

    @property
    def _is_integer(self) -> bool:
        return isinstance(self.spec.rounding, Integer)

    def _message(
        self, read: NDArray[Any], entropy: Entropy, noise_seed: bytes | None, side: int
    ) -> Residues:
        noise = self._noise(entropy, noise_seed)
        lattice = self._lattice(read, entropy)
        values = wrapped(lattice, noise, self.spec.sent_dim, self.spec.bits)
        clip_count = self._clip_codec and self._clip_codec.encode(
            np.array([side]), entropy=entropy, noise_seed=noise_seed
        )
        values = _joined(values, clip_count)
        return self.message(values, replayable=entropy.replayable)

    def message(self, values: NDArray[Any], *, replayable: bool) -> Residues:
        """Return ``values``, which this codec encoded, as the message that they are."""
        return Residues(values, self.spec.bits, self.label, replayable, int(self._noisy))

    def _noise(self, entropy: Entropy, noise_seed: bytes | None) -> Lattices | None:
        source = self._noise_source(entropy, noise_seed)
        if source is None or self._sampler is None:
            return None
        return draw(self._sampler, self.spec.sent_dim, entropy=source)

    def _noise_source(self, entropy: Entropy, noise_seed: bytes | None) -> Entropy | None:
        """Return where a message's noise is drawn from, if it has any."""
        if not self._noisy:
            return None
        if self.spec.removable and noise_seed is None:
            raise DomainError(
                "noise_seed is required: the noise is removable; take one from new_noise_seed"
            )
        if not self.spec.removable and noise_seed is not None:
            raise DomainError("noise_seed must be None: the noise of this spec is not removable")
        if self._sampler is None or self.spec.central:
            return None
        return entropy if noise_seed is None else self._noise_stream(noise_seed)

    def _noise_stream(self, seed: bytes) -> Entropy:
        # The label is in the context: no other round, plan or clip count draws the same bits.
        return SeededEntropy(seed, f"codec/noise/{self.label.hex()}")

    def _clip_side(self, vector: NDArray[Any]) -> int:
        """Return 1 for a vector within the clip, else -1: half the noise that 1 and 0 would need.

        Only where somebody asks: else 0.
        """
        if self._clip_codec is None:
            return 0
        with np.errstate(over="ignore"):
            return 1 if upper_norm(vector) <= self.spec.clip else -1

    def _clip_part(self, total: Residues, label: bytes) -> Residues:
        return replace(total, values=total.values[self.spec.sent_dim :], label=label)

    def _read(self, vector: NDArray[Any]) -> NDArray[Any]:
        """Return a copy, ready to be rounded or rotated, or raise `DomainError` for its entries."""
        spec = self.spec
        if isinstance(spec.rounding, Integer):
            if fault := excess(vector, spec.rounding, spec.clip):
                raise DomainError(f"x must keep to its bounds, but has {fault}")
            return vector.copy()
        radius = spec.scale * spec.clip
        with np.errstate(over="ignore"):
            y = self._rotation.flipped(vector, spec.scale)
        if peak_of(y) * len(y) <= _HUGE * radius:  # which is at least the rotation's norm
            return y
        # Scaling the peak down to the clip keeps every float in range and changes nothing: the norm
        # is at least the peak, so it stays at or above the clip. The factor may be no normal
        # float32.
        return self._rotation.flipped(vector.astype(np.float64), radius / finite_peak(vector))

    def _read_rows(
        self, xs: Iterable[Tensors | None], count: int
    ) -> tuple[NDArray[Any], list[NDArray[np.int64]]]:
        """Return what `_read` gives for each vector, or zeros, and the sides of the clip."""
        spec, sides = self.spec, np.zeros(count, dtype=np.int64)
        rows = np.zeros(
            (count, spec.padded_dim), dtype=np.int32 if self._is_integer else np.float32
        )
        for at, x in enumerate(xs):
            if x is not None:
                vector = self.vector(x)
                try:
                    self._read_into(rows[at], vector)
                    sides[at] = self._clip_side(vector)
                except DomainError:
                    rows[at] = 0
        return rows, list(sides[:, None])

    def _read_into(self, row: NDArray[Any], vector: NDArray[Any]) -> None:
        """Overwrite ``row`` with what `_read` gives."""
        radius = self.spec.scale * self.spec.clip
        if not self._is_integer:
            with np.errstate(over="ignore"):
                self._rotation.flip_into(row, vector, self.spec.scale)
            if peak_of(row) * len(row) <= _HUGE * radius:
                return
        row[:] = self._read(vector)

    def _lattice_rows(
        self, read: NDArray[Any], entropies: Sequence[Entropy]
    ) -> NDArray[np.signedinteger[Any]]:
        """Return what `_lattice` gives for each row."""
        match self.spec.rounding:
            case Integer():
                return read
            case Unbiased(bound):
                y, norms = self._prepared_rows(read)
                return round_rows_unbiased(y, norms, self.spec.radius, bound, entropies=entropies)
            case Conditional(beta):
                y, norms = self._prepared_rows(read)
                square = rounded_norm_square(self.spec.radius, self.spec.sent_dim, beta)
                return round_rows_conditional(
                    y, norms, self.spec.radius, square, entropies=entropies
                )
            case _ as never:
                assert_never(never)

    def _prepared_rows(
        self, read: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Return what `_prepared` gives for each row."""
        y = self._rotation.turned(read)
        norms = upper_norms(y)
        if self._subset is None:
            return y, norms
        y, radius = y[:, self._subset], self.spec.scale * self.spec.clip
        beyond = norms > radius
        y[beyond] *= (radius / norms[beyond]).astype(np.float32)[:, None]
        return y, upper_norms(y)

    def _lattice(self, read: NDArray[Any], entropy: Entropy) -> Lattices:
        match self.spec.rounding:
            case Integer():
                return integer_chunks(read)
            case Unbiased(bound):
                y, norm = self._prepared(read)
                return round_unbiased(y, norm, self.spec.radius, bound, entropy=entropy)
            case Conditional(beta):
                y, norm = self._prepared(read)
                deque(shrink(y, norm, self.spec.radius), maxlen=0)
                square = rounded_norm_square(self.spec.radius, self.spec.sent_dim, beta)
                return round_conditional(y, square, entropy=entropy)
            case _ as never:
                assert_never(never)

    def _prepared(self, read: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
        """Return the rotated, scaled coordinates to send, not yet clipped, and their norm."""
        y = self._rotation.turned(read)
        norm = upper_norm(y)
        if self._subset is None:
            return y, norm
        y, radius = y[self._subset], self.spec.scale * self.spec.clip
        if norm > radius:
            y *= np.float32(radius / norm)
        return y, upper_norm(y)

    def _require_mine(self, message: Residues, label: bytes | None = None) -> None:
        spec = self.spec
        if len(message) != spec.message_len:
            raise ShapeError(f"a message must hold {spec.message_len} residues, got {len(message)}")
        if message.bits != spec.bits:
            raise DomainError(f"a message must have {spec.bits} bits, got {message.bits}")
        if message.label != (label or self.label):
            raise DomainError(
                "a message must belong to this plan and round"
                + (", and add_central_noise comes once, before decode" if spec.central else "")
            )

    def _require_final(self, total: Residues) -> None:
        """Raise unless ``total`` has the noise that the spec demands, and none to spare."""
        self._require_mine(total, self.final_label)
        shares = self.spec.shares
        if total.messages < shares:
            raise ThresholdError(
                f"the sum has the noise of {total.messages} messages, but the plan needs that of "
                f"{shares}; add more messages, or give this round up"
            )
        if self.spec.removable and total.messages > shares:
            raise DomainError(
                f"the sum has the noise of {total.messages} messages, but the plan keeps that of "
                f"{shares}; remove the noise of {total.messages - shares} of them first"
            )


def _clip_codec(bits: int, noise: NoiseSpec, seed: bytes) -> Codec:
    """Return the codec of the clip count: 1, -1, or 0 from whoever sits out."""
    spec = CodecSpec(
        dimension=1,
        clip=1.0,
        scale=1.0,
        bits=bits,
        rounding=Integer(coordinate_bound=1, l1=1),
        noise=noise,
        padded_dim=1,
    )
    return Codec(spec, public_seed=sha256(b"skellam/2/clip-count" + seed).digest())


def _exactly(count: int, xs: Iterable[Tensors | None]) -> Iterator[Tensors | None]:
    """Yield ``xs``, and raise `ShapeError` unless there are ``count``."""
    found = 0
    for found, x in enumerate(xs, start=1):
        if found <= count:
            yield x
    if found != count:
        raise ShapeError(f"xs must hold a vector for each of {count} entropies, got {found}")


def _joined(
    values: NDArray[np.unsignedinteger[Any]], clip_count: Residues | None
) -> NDArray[np.unsignedinteger[Any]]:
    return values if clip_count is None else np.concatenate((values, clip_count.values))


def sampler_of(noise: NoiseSpec) -> Sampler | None:
    """Return the sampler of what one party draws: a client its share, or the server."""
    match noise:
        case SkellamShares():
            return SkellamSampler(noise.share)
        case CentralSkellam(variance):
            return SkellamSampler(variance)
        case DiscreteGaussianShares(sigma) | CentralDiscreteGaussian(sigma):
            return DiscreteGaussianSampler(sigma)
        case NoNoise():
            return None
        case _ as never:
            assert_never(never)
