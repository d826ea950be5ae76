"""Algorithm 1: clip, rotate, scale, round, add noise, wrap; and on the server the way back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final, assert_never, final

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.codec import whole, wire
from skellam.codec.bounds import Sensitivity, rounded_norm_square, sensitivity
from skellam.codec.layout import Tensors, flatten
from skellam.codec.rotation import Rotation, coordinate_subset
from skellam.codec.rounding import (
    finite_peak,
    peak_of,
    round_conditional,
    round_unbiased,
    shrink,
    upper_norm,
)
from skellam.codec.shares import Lattices, Sampler, add_lattice, draw, samplers_of, wrapped
from skellam.codec.spec import CodecSpec, Conditional, Noise, Unbiased, Whole
from skellam.codec.wrap import WrapEstimate, centred, wrap_estimate
from skellam.entropy import SEED_BYTES, Entropy, SeededEntropy, random_bytes
from skellam.errors import DomainError, ShapeError
from skellam.vectors import Reals, Residues

_HUGE: Final = 2.0**64
"""Vectors that may be longer than this many clips are scaled down before float32 loses them."""


@final
class Codec:
    """One round's arithmetic, the same for whoever knows the spec and the public seed.

    The messages of one codec carry its ``label`` and add up only among themselves.
    """

    __slots__ = ("_rotation", "_samplers", "_subset", "_within", "label", "spec")
    label: bytes

    def __init__(self, spec: CodecSpec, *, public_seed: bytes) -> None:
        seed = _checks.octets("public_seed", public_seed, SEED_BYTES)
        self.spec = spec
        self._within = None if spec.within is None else _within_codec(spec, spec.within, seed)
        beside = self._within.label if self._within else b""
        self.label = sha256(b"skellam/1/codec" + seed + repr(spec).encode() + beside).digest()
        self._rotation = Rotation(spec.padded, seed)
        self._samplers = samplers_of(spec.noise)
        self._subset = (
            None if spec.kept is None else coordinate_subset(spec.padded, spec.kept, seed)
        )

    @property
    def sensitivity(self) -> Sensitivity:
        """The bounds that every message keeps to, whatever the input and the public seed."""
        return sensitivity(self.spec)

    @property
    def total_variation(self) -> float:
        """How far the noise that one party adds to one coordinate is, at most, from its ideal."""
        return self._samplers.total_variation

    def encode(self, x: Tensors, *, entropy: Entropy, removable: Sequence[bytes] = ()) -> Residues:
        """Return ``x``, clipped, as a message with this client's noise, or raise for bad input.

        ``removable`` holds a secret seed for each removable component, from `removable_seeds`; the
        rounding coins and the base share always come from ``entropy``. The message is replayable
        if ``entropy`` is: the seeds are secrets of the client's until the protocol reveals them.
        """
        vector = self.vector(x)
        return self._message(self._read(vector), entropy, removable, self._side(vector))

    def encode_or_zeros(
        self, x: Tensors, *, entropy: Entropy, removable: Sequence[bytes] = ()
    ) -> Residues:
        """Encode ``x``, or zeros where `encode` would refuse its entries: no share is lost."""
        vector = self.vector(x)
        try:
            read, side = self._read(vector), self._side(vector)
        except DomainError:
            return self.encode_zeros(entropy=entropy, removable=removable)
        return self._message(read, entropy, removable, side)

    def encode_zeros(self, *, entropy: Entropy, removable: Sequence[bytes] = ()) -> Residues:
        """Return a message of nothing but noise, for a client that sits the round out unseen."""
        zeros = np.zeros(self.spec.dimension, dtype=np.int32 if self._is_whole else np.float32)
        return self._message(self._read(zeros), entropy, removable, 0)

    def vector(self, x: Tensors) -> NDArray[Any]:
        """Return ``x`` as the vector that is encoded, without a copy where it is one already."""
        vector = whole.whole_vector(x) if self._is_whole else flatten(x)
        if len(vector) != self.spec.dimension:
            raise ShapeError(f"x must hold {self.spec.dimension} numbers, got {len(vector)}")
        return vector

    def removable_seeds(self, *, entropy: Entropy) -> tuple[bytes, ...]:
        """Return fresh secret seeds, one for each removable component of a client's noise."""
        return tuple(random_bytes(SEED_BYTES, entropy=entropy) for _ in self._samplers.components)

    def add(self, messages: Iterable[Residues]) -> Residues:
        """Return the sum of ``messages``, all of this codec."""
        total = None
        replayable = False
        for message in messages:
            self._require_mine(message)
            replayable |= message.replayable
            if total is None:
                total = message.values.copy()
            else:
                total += message.values
        if total is None:
            raise ShapeError("messages must hold at least one message")
        total &= total.dtype.type((1 << self.spec.bits) - 1)
        return self._residues(total, replayable)

    def add_central_noise(self, total: Residues, *, entropy: Entropy) -> Residues:
        """Return ``total`` with the server's noise: required once, and only in central modes."""
        self._require_mine(total)
        central = self._central
        if central is None:
            raise DomainError(f"{self.spec.noise} leaves no noise to the server")
        values = total.values[: self.spec.carried].copy()
        add_lattice(values, draw(central, len(values), entropy=entropy), self.spec.bits)
        beside = self._within and self._within.add_central_noise(
            self._beside(total, self._within.label), entropy=entropy
        )
        replayable = total.replayable or entropy.replayable
        return replace(self._residues(values, replayable, beside), label=self.final_label)

    def remove(self, total: Residues, revealed: Iterable[tuple[int, bytes]]) -> Residues:
        """Return ``total`` without the components ``(j, seed)`` that the survivors revealed."""
        self._require_mine(total)
        once, components = set(), tuple(revealed)
        values = np.negative(total.values[: self.spec.carried])  # -(-total + noise)
        for j, seed in components:
            _checks.integer("component", j, 0, len(self._samplers.components) - 1)
            if (j, seed) in once:
                raise DomainError(f"a seed of component {j} was revealed twice; remove each once")
            once.add((j, seed))
            add_lattice(values, self._component(j, seed), self.spec.bits)
        np.negative(values, out=values)
        values &= values.dtype.type((1 << self.spec.bits) - 1)
        beside = self._within and self._within.remove(
            self._beside(total, self._within.label), components
        )
        return self._residues(values, total.replayable, beside)

    def decode(self, total: Residues) -> Reals:
        """Return the sum of the clipped vectors, with the noise, in real units.

        Without bias where rounding has none and no coordinate was cut to ``largest``. Where ``d'``
        of ``d`` coordinates are kept, sampling them adds ``(d/d' - 1) |sum|**2`` to the expected
        squared error over all ``d``.
        """
        self._require_mine(total, self.final_label)
        spec = self.spec
        if self._is_whole:
            return Reals(centred(total).astype(np.float64), total.replayable)
        y = centred(total)[: spec.carried].astype(np.float32)
        if self._subset is not None:
            y, kept = np.zeros(spec.padded, dtype=np.float32), y
            y[self._subset] = kept
        gain = spec.padded / spec.carried / spec.scale
        return Reals(self._rotation.backward(y, gain, spec.dimension), total.replayable)

    def within(self, total: Residues) -> float:
        """Return how many clients were within the clip less how many were not, with noise."""
        self._require_mine(total, self.final_label)
        if self._within is None:
            raise DomainError("the spec gives no noise to the count of clients within the clip")
        beside = self._beside(total, self._within.final_label)
        return float(self._within.decode(beside).values[0])

    def wrap(self, total: Residues) -> WrapEstimate:
        """Return how far ``total`` spreads over the modulus; its `require` raises."""
        self._require_mine(total, self.final_label)
        return wrap_estimate(replace(total, values=total.values[: self.spec.carried]))

    def pack(self, message: Residues) -> bytes:
        """Return ``message`` as bytes, exactly ``bits`` bits a coordinate."""
        self._require_mine(message)
        return wire.pack(message.values, self.spec.bits)

    def unpack(self, data: bytes) -> Residues:
        """Return the message that `pack` made ``data`` from."""
        return self._residues(wire.unpack(data, self.spec.length, self.spec.bits), False)

    @property
    def _is_whole(self) -> bool:
        return isinstance(self.spec.rounding, Whole)

    def _message(
        self, read: NDArray[Any], entropy: Entropy, removable: Sequence[bytes], side: int
    ) -> Residues:
        if len(removable) != len(self._samplers.components):
            raise ShapeError(
                f"removable must hold {len(self._samplers.components)} seeds, "
                f"got {len(removable)}; removable_seeds makes them"
            )
        noises = [self._component(j, seed) for j, seed in enumerate(removable)]
        if self._samplers.client is not None:
            noises.append(draw(self._samplers.client, self.spec.carried, entropy=entropy))
        lattice = self._lattice(read, entropy)
        values = wrapped(lattice, noises, self.spec.carried, self.spec.bits)
        beside = self._within and self._within.encode(
            np.array([side]), entropy=entropy, removable=removable
        )
        return self._residues(values, entropy.replayable, beside)

    def _side(self, vector: NDArray[Any]) -> int:
        """Return 1 for a vector within the clip, else -1: half the noise that 1 and 0 would need.

        Only where somebody asks: else 0.
        """
        if self._within is None:
            return 0
        with np.errstate(over="ignore"):
            return 1 if upper_norm(vector) <= self.spec.clip else -1

    def _beside(self, total: Residues, label: bytes) -> Residues:
        return replace(total, values=total.values[self.spec.carried :], label=label)

    def _read(self, vector: NDArray[Any]) -> NDArray[Any]:
        """Return a copy, ready to be rounded or rotated, or raise `DomainError` for its entries."""
        spec = self.spec
        if isinstance(spec.rounding, Whole):
            if fault := whole.excess(vector, spec.rounding, spec.clip):
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

    def _lattice(self, read: NDArray[Any], entropy: Entropy) -> Lattices:
        match self.spec.rounding:
            case Whole():
                return whole.chunks(read)
            case Unbiased(largest):
                y, norm = self._prepared(read)
                return round_unbiased(y, norm, self.spec.radius, largest, entropy=entropy)
            case Conditional(beta):
                y, norm = self._prepared(read)
                deque(shrink(y, norm, self.spec.radius), maxlen=0)
                most = rounded_norm_square(self.spec.radius, self.spec.carried, beta)
                return round_conditional(y, most, entropy=entropy)
            case _ as never:
                assert_never(never)

    def _prepared(self, read: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
        """Return the rotated, scaled coordinates that are kept, not yet clipped, and their norm."""
        y = self._rotation.turned(read)
        norm = upper_norm(y)
        if self._subset is None:
            return y, norm
        y, radius = y[self._subset], self.spec.scale * self.spec.clip
        if norm > radius:
            y *= np.float32(radius / norm)
        return y, upper_norm(y)

    def _component(self, j: int, seed: bytes) -> Lattices:
        stream = SeededEntropy(seed, f"codec/removable/{j}/{self.label.hex()}")
        return draw(self._samplers.components[j], self.spec.carried, entropy=stream)

    @property
    def final_label(self) -> bytes:
        """The label of a total that may be decoded: central modes demand the server's noise."""
        return self.label if self._central is None else self.label + b" with noise"

    @property
    def _central(self) -> Sampler | None:
        return self._samplers.central

    def _residues(
        self,
        values: NDArray[np.unsignedinteger[Any]],
        replayable: bool,
        beside: Residues | None = None,
    ) -> Residues:
        if beside is not None:
            values = np.concatenate((values, beside.values))
        return Residues(values, self.spec.bits, self.label, replayable)

    def _require_mine(self, message: Residues, label: bytes | None = None) -> None:
        if len(message) != self.spec.length:
            raise ShapeError(f"a message must hold {self.spec.length} residues, got {len(message)}")
        if message.bits != self.spec.bits:
            raise DomainError(f"a message must have {self.spec.bits} bits, got {message.bits}")
        if message.label != (label or self.label):
            raise DomainError(
                "a message must belong to this plan and round"
                + (", and add_central_noise comes once, before decode" if self._central else "")
            )


def _within_codec(spec: CodecSpec, noise: Noise, seed: bytes) -> Codec:
    """Return the codec of the whole number beside the vector: 1, -1, or 0 from whoever sits out."""
    beside = CodecSpec(
        dimension=1,
        clip=1.0,
        scale=1.0,
        bits=spec.bits,
        rounding=Whole(largest=1, l1=1),
        noise=noise,
        padded=1,
    )
    return Codec(beside, public_seed=sha256(b"skellam/1/within" + seed).digest())
