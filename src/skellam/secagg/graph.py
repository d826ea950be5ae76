"""Who shares masks and secrets with whom: everybody with everybody, or neighbours on a ring.

Above some size each client deals only with the ``degree`` participants next to it on a randomly
permuted ring (a Harary graph), as in Bell, Bonawitz, Gascón, Lepoint, Raykova, "Secure
single-server aggregation with (poly)logarithmic overhead" (CCS 2020), section 3. Its three
conditions are held here by exact hypergeometric tails, in integers:

1. nobody has ``threshold`` or more colluding neighbours (else the colluders open its secrets);
2. everybody keeps ``threshold`` living neighbours (else a mask cannot be removed);
3. the living honest clients are connected (else the sum of a part is visible).

Condition 3 differs from the paper in one respect: there, who drops out does not depend on the
graph; here a lying server names the survivors after it has seen the ring. So each client itself
refuses a survivor set that leaves fewer than ``window`` survivors in some run of ``degree / 2``
places, and ``window`` is more than the colluders in any run: every run keeps an honest survivor, so
successive honest survivors on the ring are neighbours, whoever was declared dead.

The ring follows from the participants' signed nonces. Colluders who speak last can try several
nonces, and a server can try several participant lists; so the conditions on colluders hold but for
2**-(40 + 40): 2**40 tries leave 2**-40.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.entropy import SeededEntropy
from skellam.errors import InfeasibleError
from skellam.secagg.wire import MAX_PARTICIPANTS

FAILURE_BITS = 40
GRINDING_BITS = 40
SMALL = 128
"""Up to here everybody is everybody's neighbour: that costs little and leaves nothing to chance."""


@dataclass(frozen=True, slots=True)
class Topology:
    """The numbers that the size of a cohort determines."""

    participants: int
    survivors: int
    """The fewest whose sum may be opened; as many must sign that they agree on who survived."""
    degree: int
    threshold: int
    """Shares that open a secret."""
    window: int
    """The fewest survivors in any run of ``degree / 2`` places; 0 on the complete graph."""

    @property
    def complete(self) -> bool:
        """Whether everybody is everybody's neighbour."""
        return self.degree == self.participants - 1


@lru_cache(maxsize=64)
def topology(participants: int, *, dropouts: int, colluders: int) -> Topology:
    """Return the sparsest ring that is safe, or the complete graph where that saves no half.

    ``dropouts`` may fall silent in the course of the round and ``colluders`` may work for the
    server. On the complete graph ``threshold = n - dropouts``, and ``2 threshold > n + colluders``.
    """
    n = _checks.integer("participants", participants, 2, MAX_PARTICIPANTS)
    survivors = n - dropouts
    if not (2 * survivors > n + colluders and survivors - colluders >= 2):
        least = max(2 * dropouts + colluders + 1, dropouts + colluders + 2)
        raise InfeasibleError(
            f"{n} participants cannot bear {dropouts} dropouts and {colluders} colluders; "
            f"at least {least} can"
        )
    ring = _sparsest_ring(n, dropouts, colluders) if n > SMALL else None
    return ring or Topology(n, survivors, n - 1, survivors, 0)


def _sparsest_ring(n: int, dropouts: int, colluders: int) -> Topology | None:
    low, high = 0, (n - 1) // 4 + 1
    best = None
    while high - low > 1:
        half = (low + high) // 2
        found = _ring_topology(n, half, dropouts, colluders)
        low, high, best = (low, half, found) if found else (half, high, best)
    return best


def _ring_topology(n: int, half: int, dropouts: int, colluders: int) -> Topology | None:
    """Return the topology with ``half`` neighbours to each side, if it meets all conditions.

    Each threshold is the largest that the tolerated dropouts allow but for 2**-40 (halved between
    the two), for all clients together; the colluders must stay below it but for 2**-80.
    """
    correct, secure = FAILURE_BITS + 1, FAILURE_BITS + GRINDING_BITS + 1
    degree = 2 * half
    threshold = degree + 1 - exceeded(n - 1, dropouts, degree, times=n, bits=correct)
    window = half + 1 - exceeded(n, dropouts, half, times=n, bits=correct)
    safe = threshold >= exceeded(
        n - 1, colluders, degree, times=n, bits=secure
    ) and window >= exceeded(n, colluders, half, times=n, bits=secure)
    if not (safe and threshold > 0 and window > 0):
        return None
    return Topology(n, n - dropouts, degree, threshold, window)


def exceeded(population: int, marked: int, draws: int, *, times: int, bits: int) -> int:
    """Return the least ``m`` with ``times * P(X >= m) <= 2**-bits``, exactly.

    X counts the marked among ``draws`` taken without replacement: hypergeometric.
    """
    total = comb(population, draws)
    i = min(draws, marked)
    term = comb(marked, i) * comb(population - marked, draws - i)
    tail = term
    while (tail * times) << bits <= total:
        term = term * i * (population - marked - draws + i)
        term //= (marked - i + 1) * (draws - i + 1)
        tail += term
        i -= 1
    return i + 1


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """The neighbours of each of the participants ``0 .. n - 1``."""

    topology: Topology
    order: NDArray[np.intp]
    """Who sits at each place of the ring."""
    places: NDArray[np.intp]

    def neighbours(self, i: int) -> NDArray[np.intp]:
        """Return the neighbours of ``i`` in ascending order."""
        n, half = self.topology.participants, self.topology.degree // 2
        if self.topology.complete:
            return np.delete(np.arange(n), i)
        steps = np.concatenate([np.arange(-half, 0), np.arange(1, half + 1)])
        return np.sort(self.order[(self.places[i] + steps) % n])

    def holds_together(self, alive: NDArray[np.bool_]) -> bool:
        """Return whether ``alive`` is enough, everywhere on the ring, to hide all but the sum."""
        enough = int(alive.sum()) >= self.topology.survivors
        if self.topology.complete or not enough:
            return enough
        half = self.topology.degree // 2
        ring = alive[self.order]
        counts = np.cumsum(np.concatenate([[0], ring, ring[: half - 1]]))
        return bool((counts[half:] - counts[:-half]).min() >= self.topology.window)


@lru_cache(maxsize=4)
def graph(shape: Topology, seed: bytes) -> Graph:
    """Return the graph of ``shape`` whose ring is the uniform permutation that ``seed`` gives."""
    # Ties among 128-bit keys, which alone would bias the order, have probability below 2**-97.
    keys = np.empty((2, shape.participants), dtype="<u8")
    SeededEntropy(seed, "secagg/ring").fill(keys)
    order = np.lexsort(keys)
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    return Graph(shape, order, places)
