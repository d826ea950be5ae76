"""The noise that a client or a central server adds, and the part of it that can be taken away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never

import numpy as np
from numpy.typing import NDArray

from skellam._kernels import add_wrap
from skellam.codec.rotation import CHUNK
from skellam.codec.spec import (
    CentralDiscreteGaussian,
    CentralSkellam,
    DiscreteGaussianShares,
    Noise,
    NoNoise,
    SkellamShares,
)
from skellam.entropy import Entropy
from skellam.noise import DiscreteGaussian, Skellam
from skellam.vectors import residue_dtype

_SPAN: Final = 1 << 18
"""Draws made at a time, few enough for the cache.

Part of the format: removable noise is drawn again in the same spans.
"""

Sampler = Skellam | DiscreteGaussian
Lattices = Iterator[NDArray[np.signedinteger[Any]]]


@dataclass(frozen=True, slots=True)
class Samplers:
    """The laws of one round's noise: a client's own, its removable components, the server's."""

    client: Sampler | None
    components: tuple[Sampler, ...]
    central: Sampler | None

    @property
    def total_variation(self) -> float:
        """An upper bound, for one coordinate, on how far all that one party draws is from ideal."""
        parts = (self.client, *self.components, self.central)
        return sum(part.total_variation for part in parts if part is not None)


def samplers_of(noise: Noise) -> Samplers:
    """Return the samplers that ``noise`` names."""
    match noise:
        case SkellamShares():
            components = tuple(Skellam(noise.component(j)) for j in range(noise.components))
            return Samplers(Skellam(noise.share), components, None)
        case DiscreteGaussianShares(sigma):
            return Samplers(DiscreteGaussian(sigma), (), None)
        case CentralSkellam(variance):
            return Samplers(None, (), Skellam(variance))
        case CentralDiscreteGaussian(sigma):
            return Samplers(None, (), DiscreteGaussian(sigma))
        case NoNoise():
            return Samplers(None, (), None)
        case _ as never:
            assert_never(never)


def draw(sampler: Sampler, length: int, *, entropy: Entropy) -> Lattices:
    """Yield ``length`` draws chunk by chunk, in one reused buffer."""
    buffer = np.empty(min(_SPAN, length), dtype=sampler.dtype)
    for start in range(0, length, _SPAN):
        span = buffer[: min(_SPAN, length - start)]
        sampler.draw_into(span, entropy=entropy)
        yield from (span[i : i + CHUNK] for i in range(0, len(span), CHUNK))


def wrapped(
    lattice: Lattices, noises: Sequence[Lattices], length: int, bits: int
) -> NDArray[np.unsignedinteger[Any]]:
    """Return the sum modulo ``2**bits`` of ``lattice`` and ``noises``, all given in chunks."""
    out = np.empty(length, dtype=residue_dtype(bits))
    for start, whole in zip(range(0, length, CHUNK), lattice, strict=True):
        # The cast reduces modulo 2**8, 2**16 or 2**32, which 2**bits divides.
        np.copyto(out[start : start + CHUNK], whole, casting="unsafe")
    for noise in noises:
        add_lattice(out, noise, bits)
    if not noises:
        out &= out.dtype.type((1 << bits) - 1)
    return out


def add_lattice(out: NDArray[np.unsignedinteger[Any]], lattice: Lattices, bits: int) -> None:
    """Add ``lattice``, given in chunks, to ``out`` modulo ``2**bits``."""
    for start, part in zip(range(0, len(out), CHUNK), lattice, strict=True):
        add_wrap(out[start : start + CHUNK], part, bits)
