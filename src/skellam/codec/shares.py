"""The noise that a client or a central server adds, and the part of it that can be taken away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

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

Sampler = Skellam | DiscreteGaussian


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


def draw(sampler: Sampler, length: int, *, entropy: Entropy) -> Iterator[NDArray[Any]]:
    """Yield ``length`` draws chunk by chunk, in one reused buffer."""
    buffer = np.empty(min(CHUNK, length), dtype=sampler.dtype)
    for start in range(0, length, CHUNK):
        part = buffer[: min(CHUNK, length - start)]
        sampler.draw_into(part, entropy=entropy)
        yield part


def add_all(
    out: NDArray[np.unsignedinteger[Any]], addends: Sequence[Iterator[NDArray[Any]]], bits: int
) -> None:
    """Add to ``out`` modulo ``2**bits`` what each of ``addends`` yields chunk by chunk."""
    for start, parts in zip(range(0, len(out), CHUNK), zip(*addends, strict=True), strict=True):
        for part in parts:
            add_wrap(out[start : start + CHUNK], part, bits)
