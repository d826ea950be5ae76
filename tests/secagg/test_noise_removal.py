"""Add-then-remove through a whole round: the noise that is left, whoever dropped out."""

from fractions import Fraction

import numpy as np
import pytest

from oracles.rounds import LABEL, cohort
from skellam.entropy import SeededEntropy
from skellam.noise import Skellam
from skellam.secagg import bus, seeds
from skellam.secagg.bus import Script, Stage
from skellam.vectors import Residues

CLIENTS, TOLERATED, LENGTH, VARIANCE = 10, 3, 1 << 20, 100


def noise(seed: bytes, percent: int) -> np.ndarray:
    law = Skellam(VARIANCE / CLIENTS * percent / 100)
    return law.draw(LENGTH, entropy=SeededEntropy(seed, "noise")).values.astype(np.int64)


@pytest.mark.parametrize("dropped", range(TOLERATED + 1))
def test_the_sum_keeps_the_planned_variance_and_at_most_one_per_cent_more(dropped):
    """Sample variance of 2**20 draws against the exact one, which lies in [1, 1.01] of the plan.

    The relative error is normal with deviation sqrt((2 + 1/100) / 2**20) = 0.00139; 5.5 of them
    are passed by chance less than once in 2e7.
    """
    members = cohort(CLIENTS, LENGTH, dropouts=TOLERATED, removable=True)
    sizes = seeds.per_cents(CLIENTS, TOLERATED)

    def encode(number, mask):
        assert len(mask.noise_seeds) == len(sizes)
        base = noise(number.to_bytes(32, "big"), 100)
        extra = sum(noise(s, p) for s, p in zip(mask.noise_seeds, sizes, strict=True))
        return Residues((base + extra).astype(np.uint16), 16, LABEL)

    outcome = bus.run(
        members.round,
        members.identities,
        encode,
        entropy=SeededEntropy(bytes(32), f"{dropped} dropped"),
        script=Script(silent={Stage.MASK: members.numbers[:dropped]}),
    )
    total = outcome.total.values.view(np.int16).astype(np.int64)
    for component, opened in outcome.noise_seeds.items():
        total -= sum(noise(seed, sizes[component]) for seed in opened.values())
    kept = sum(p for j, p in enumerate(sizes) if j not in outcome.noise_seeds)
    exact = Fraction(CLIENTS - dropped, CLIENTS) * (1 + Fraction(kept, 100))
    assert 1 <= exact <= Fraction(101, 100)
    assert float(np.square(total).mean()) / VARIANCE == pytest.approx(float(exact), rel=0.00765)
