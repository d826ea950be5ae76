"""Distributed mean estimation: the paper's experiment, as library code.

Each client holds one vector; the server learns a private estimate of their mean. `mean_error`
repeats that with fresh vectors on a sphere of radius ``clip``, as the paper does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.codec import Tensors
from skellam.engines.local import sum_unmasked
from skellam.entropy import SEED_BYTES, Entropy, random_bytes
from skellam.noise import GaussianSampler
from skellam.plan import CalibratedPlan
from skellam.vectors import Reals


@dataclass(frozen=True, slots=True)
class MeanSquaredError:
    """Mean squared error per coordinate, with its 95 % interval over the repeats."""

    value: float
    half_width: float
    repeats: int

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.value - self.half_width

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.value + self.half_width


def estimate_mean(plan: CalibratedPlan, vectors: Iterable[Tensors], *, entropy: Entropy) -> Reals:
    """Return a private estimate of the mean of the planned cohort's ``vectors``."""
    seed = random_bytes(SEED_BYTES, entropy=entropy)
    total = sum_unmasked(plan, vectors, cohort=plan.cohort, public_seed=seed, entropy=entropy)
    return total / plan.cohort


def mean_error(
    plan: CalibratedPlan,
    *,
    repeats: int,
    entropy: Entropy,
    same: bool = False,
    progress: Callable[[int], object] | None = None,
) -> MeanSquaredError:
    """Return the measured error of `estimate_mean` on random vectors of norm ``clip``.

    With ``same`` all clients hold the same vector, the worst case for the modulus. ``progress`` is
    told how many repeats are done.
    """
    times = _checks.integer("repeats", repeats, 2)
    errors = np.empty(times)
    for i in range(times):
        errors[i] = _one_error(plan, same, entropy)
        if progress is not None:
            progress(i + 1)
    from scipy.stats import t

    spread = float(errors.std(ddof=1)) / math.sqrt(times)
    return MeanSquaredError(float(errors.mean()), spread * float(t.ppf(0.975, times - 1)), times)


def _one_error(plan: CalibratedPlan, same: bool, entropy: Entropy) -> float:
    truth = np.zeros(plan.dimension)
    fixed = on_sphere(plan, entropy=entropy) if same else None

    def vectors() -> Iterable[NDArray[np.float64]]:
        nonlocal truth
        for _ in range(plan.cohort):
            x = on_sphere(plan, entropy=entropy) if fixed is None else fixed
            truth += x
            yield x

    estimate = estimate_mean(plan, vectors(), entropy=entropy)
    return float(np.mean((estimate.values - truth / plan.cohort) ** 2))


def on_sphere(plan: CalibratedPlan, *, entropy: Entropy) -> NDArray[np.float64]:
    """Return a vector of norm ``clip`` in a uniformly random direction."""
    direction = GaussianSampler(1.0).draw(plan.dimension, entropy=entropy).values
    return np.asarray(direction * (plan.clip / np.linalg.norm(direction)))
