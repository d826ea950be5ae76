"""Communication graph: everybody shares masks and secrets with everybody, or on a ring.

Above some size each client deals only with the ``degree`` participants next to it on a randomly
permuted ring (a Harary graph), as in Bell, Bonawitz, Gascón, Lepoint, Raykova, "Secure
single-server aggregation with (poly)logarithmic overhead" (CCS 2020), section 3. Its three
conditions are held here by exact hypergeometric tails, in integers:

1. a secret is opened by more than ``run`` neighbours besides all colluders among them;
2. everybody keeps ``threshold`` living neighbours (else a mask cannot be removed);
3. every ``run`` successive positions keep more survivors than colluders: an honest one.

The paper's server knows the graph only after the dropouts, and may learn the sums of parts. Here a
lying server names the survivors after it has seen the ring, and must learn one sum or nothing. So
each client itself refuses survivors who leave fewer than ``window`` in some run; it verifies the
receipts of its neighbours; and of the signatures that all survivors saw the same list it verifies
``sample`` at random. docs/maths/ring.md proves from these conditions that whatever the server says,
it opens the sum over all honest survivors of one list that all gave a vector, or nothing.

The ring follows from the participants' signed nonces. Colluders who speak last can try several
nonces, and a server can try several participant lists; so the conditions on colluders hold but for
2**-(40 + 41): 2**40 tries leave 2**-41. Nobody can try at the sample: it fails but for 2**-41.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, comb, log2

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.cohorts import Tolerance
from skellam.entropy import SeededEntropy
from skellam.errors import InfeasibleError
from skellam.protocol.wire import MAX_PARTICIPANTS

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
    run: int
    window: int
    """The fewest survivors in any ``run`` successive positions of the ring."""
    sample: int
    """How many of the others' agreements each client verifies."""

    @property
    def complete(self) -> bool:
        """Whether everybody is everybody's neighbour."""
        return self.degree == self.participants - 1


@lru_cache(maxsize=64)
def topology(participants: int, tolerance: Tolerance) -> Topology:
    """Return the numbers of a cohort's graph, or raise `InfeasibleError`.

    On the complete graph ``threshold = survivors``, and ``2 threshold > n + colluders``.
    """
    n = _checks.integer("participants", participants, 2, MAX_PARTICIPANTS)
    dropouts, colluders = tolerance.dropouts(n), tolerance.colluders(n)
    if not tolerance.feasible(n):
        raise InfeasibleError(
            f"{n} participants cannot bear {dropouts} dropouts and {colluders} colluders; "
            "Tolerance.min_cohort says from which size on all can"
        )
    return sparsest(n, dropouts=dropouts, colluders=colluders)


@lru_cache(maxsize=64)
def sparsest(n: int, *, dropouts: int, colluders: int) -> Topology:
    """Return the sparsest ring that is safe, or the complete graph where that saves no half.

    ``dropouts`` may drop out in the course of the round and ``colluders`` may work for the server;
    a `Tolerance` must have found both feasible.
    """
    ring = _sparsest_ring(n, dropouts, colluders) if n > SMALL else None
    survivors = n - dropouts
    return ring or Topology(n, survivors, n - 1, survivors, n, survivors, n)


def _sparsest_ring(n: int, dropouts: int, colluders: int) -> Topology | None:
    """Return the ring with the shortest run and the fewest neighbours, if it saves half of all.

    ``window`` and ``threshold`` are the largest that the tolerated dropouts allow but for 2**-40
    (halved between the two), for all clients together.
    """
    correct, secure = FAILURE_BITS + 1, FAILURE_BITS + GRINDING_BITS + 2

    def window(run: int) -> int:
        return run + 1 - exceeded(n, dropouts, run, times=n, bits=correct)

    def threshold(half: int) -> int:
        return 2 * half + 1 - exceeded(n - 1, dropouts, 2 * half, times=n, bits=correct)

    def keeps_honest(run: int) -> bool:
        return window(run) >= exceeded(n, colluders, run, times=n, bits=secure)

    def needs_many(half: int) -> bool:
        return threshold(half) >= run + exceeded(n - 1, colluders, 2 * half, times=n, bits=secure)

    max_half = (n - 1) // 4
    run = _smallest(keeps_honest, 1, max_half)
    half = _smallest(needs_many, run, max_half) if run else 0
    if not half:
        return None
    sample = _sample(n, n - dropouts, colluders)
    return Topology(n, n - dropouts, 2 * half, threshold(half), run, window(run), sample)


def _smallest(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the least of ``low .. high`` that holds, if larger ones then do too; 0 if none."""
    at = low
    while not holds(at):
        low = at + 1
        if low > high:
            return 0
        at = min(2 * at, high)
    while low < at:
        middle = (low + at) // 2
        low, at = (low, middle) if holds(middle) else (middle + 1, at)
    return at


def _sample(n: int, survivors: int, colluders: int) -> int:
    """Return how many draws tell a list that no majority of the honest signed, but for 2**-41.

    Of its ``survivors`` or more entries at most ``(n + colluders) / 2`` are true; n clients draw.
    """
    false = log2(2 * survivors / (n + colluders))
    return min(n, ceil((FAILURE_BITS + 1 + log2(n)) / false))


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
    """Who sits at each position of the ring."""
    positions: NDArray[np.intp]

    def neighbours(self, i: int) -> NDArray[np.intp]:
        """Return the neighbours of ``i`` in ascending order."""
        n, half = self.topology.participants, self.topology.degree // 2
        if self.topology.complete:
            return np.delete(np.arange(n), i)
        steps = np.concatenate([np.arange(-half, 0), np.arange(1, half + 1)])
        return np.sort(self.order[(self.positions[i] + steps) % n])

    def holds_together(self, alive: NDArray[np.bool_]) -> bool:
        """Return whether ``alive`` is enough, everywhere on the ring, to hide all but the sum."""
        run = self.topology.run
        ring = alive[self.order]
        counts = np.cumsum(np.concatenate([[0], ring, ring[: run - 1]]))
        thinnest = int((counts[run:] - counts[:-run]).min())
        return int(alive.sum()) >= self.topology.survivors and thinnest >= self.topology.window


@lru_cache(maxsize=4)
def graph(shape: Topology, seed: bytes) -> Graph:
    """Return the graph of ``shape`` whose ring is the uniform permutation that ``seed`` gives."""
    keys = np.empty((2, shape.participants), dtype="<u8")
    SeededEntropy(seed, "secagg/ring").fill(keys)
    order = ascending(keys)
    positions = np.empty_like(order)
    positions[order] = np.arange(len(order))
    return Graph(shape, order, positions)


def ascending(keys: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return the order of 128-bit keys, given as their low and high words.

    High words almost never tie, and without ties it takes an eighth of the time to sort by them
    alone. Whole keys, whose ties alone would bias the order, tie with probability below 2**-97.
    """
    order = np.argsort(keys[1])
    high = keys[1][order]
    return order if (high[1:] > high[:-1]).all() else np.lexsort(keys)
