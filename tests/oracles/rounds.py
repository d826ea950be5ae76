"""A round of secure aggregation to test against: identities, vectors, and their plain sum."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from skellam.cohorts import Tolerance
from skellam.entropy import SeededEntropy
from skellam.secagg import Identity, Outcome, RoundParameters, simulation
from skellam.secagg.simulation import FaultScript
from skellam.vectors import Residues, residue_dtype

LABEL = b"a label"
SEED = bytes(range(32))


@dataclass(frozen=True)
class Cohort:
    round: RoundParameters
    identities: tuple[Identity, ...]
    vectors: Mapping[int, Residues]

    def run(self, faults: FaultScript | None = None, *, context: str = "clients") -> Outcome:
        return simulation.run(
            self.round,
            self.identities,
            lambda number, mask: self.vectors[number],
            entropy=SeededEntropy(SEED, context),
            faults=faults,
        )

    def plain_sum(self, numbers) -> list[int]:
        total = np.zeros(self.round.length, dtype=np.uint64)
        for number in numbers:
            total += self.vectors[number].values
        return (total % (1 << self.round.bits)).tolist()

    @property
    def numbers(self) -> list[int]:
        return [identity.number for identity in self.identities]


def exactly(clients: int, *, dropouts: int = 0, colluders: int = 0) -> Tolerance:
    """Return the tolerance of so many dropouts and colluders, for exactly so many clients."""
    tolerance = Tolerance(Fraction(dropouts, clients), Fraction(colluders, clients), clients)
    assert (tolerance.dropouts(clients), tolerance.colluders(clients)) == (dropouts, colluders)
    return tolerance


def cohort(
    clients: int,
    length: int,
    *,
    bits: int = 16,
    dropouts: int = 0,
    colluders: int = 0,
    min_participants: int | None = None,
    removable: bool = False,
) -> Cohort:
    """Clients number 10, 17, 24, ...: neither from zero nor without gaps."""
    entropy = SeededEntropy(SEED, "identities")
    identities = tuple(Identity.generate(10 + 7 * i, entropy=entropy) for i in range(clients))
    round_ = RoundParameters(
        round_id=b"round".ljust(32),
        plan=b"plan".ljust(32),
        model=b"model".ljust(32),
        bits=bits,
        length=length,
        tolerance=exactly(clients, dropouts=dropouts, colluders=colluders),
        min_participants=clients if min_participants is None else min_participants,
        removable=removable,
        label=LABEL,
    )
    vectors = {}
    for identity in identities:
        values = np.empty(length, dtype=residue_dtype(bits))
        entropy.fill(values)
        values &= values.dtype.type((1 << bits) - 1)
        vectors[identity.number] = Residues(values, bits, LABEL)
    return Cohort(round_, identities, vectors)
