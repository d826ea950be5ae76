"""The paper's Skellam calibration as its authors' program has it: norms, scale, epsilon.

Written from the formulas alone. Conditional rounding with beta = exp(-1/2) bounds the norm of the
rounded vector; the scale is what the modulus can hold.
"""

import math
from dataclasses import dataclass

from skellam.accounting import Sampled, Skellam, calibrate, epsilon


@dataclass(frozen=True)
class Setting:
    clip: float
    cohort: int
    dimension: int
    rate: float
    rounds: int
    delta: float


SETTINGS = {
    "emnist": Setting(0.03, 100, 2**20, 100 / 3400, 1500, 1 / 3400),
    "stack-overflow": Setting(0.3, 100, 2**22, 100 / 342477, 1600, 1e-6),
    "issue-66": Setting(3, 16, 2**24, 1, 150, 0.01),
    "mean-estimation": Setting(10, 100, 256, 1, 1, 1e-5),
}


def rounded_norms(norm, dimension):
    """Return (l1, l2) of a conditionally rounded vector of this scaled norm."""
    root = math.sqrt(dimension)
    l2 = math.sqrt(min((norm + root) ** 2, norm**2 + dimension / 4 + norm + root / 2))
    return l2 * min(root, l2), l2


def scale_of(std, bits, k, setting):
    """Return the scale at which k standard deviations of a sum's coordinate fill the modulus."""
    n, d = setting.cohort, setting.dimension
    room = (2**bits / (2 * k)) ** 2 - n / 4
    return math.sqrt(room / ((setting.clip * n) ** 2 / d + std**2))


def paper_epsilon(scale, std, setting):
    l1, l2 = rounded_norms(scale * setting.clip, setting.dimension)
    noise = Skellam((scale * std) ** 2, l2, l1, setting.dimension)
    release = Sampled(noise, setting.rate)
    return epsilon(release, rounds=setting.rounds, delta=setting.delta, method="paper")


def calibrated_std(target, bits, k, setting):
    """Return the central standard deviation (a Calibrated) that meets ``target``."""
    guess = setting.clip
    return calibrate(
        lambda std: paper_epsilon(scale_of(std, bits, k, setting), std, setting),
        target,
        guess=guess,
        tolerance=1e-7,
        max_value=1e3 * guess,
    )
