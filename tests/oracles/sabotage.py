"""Rounds as careless implementations run them: each looks private and is not."""

from dataclasses import replace
from hashlib import sha256
from itertools import count

from skellam import SeededEntropy
from skellam.engines import local


def _with_variance(plan, variance):
    return replace(plan, solution=replace(plan.solved, variance=variance))


def quarter_of_the_noise(plan, this, update, *, entropy):
    """A quarter of the deviation that was planned."""
    return local.clear(_with_variance(plan, plan.variance / 16), this, update, entropy=entropy)


def unscaled_variance(plan, this, update, *, entropy):
    """Noise for the real vectors, added to the scaled ones: a bug of a published system."""
    wrong = plan.variance / plan.solved.scale**2
    return local.clear(_with_variance(plan, wrong), this, update, entropy=entropy)


def repeated_seed(rounds):
    """Secret seeds, fresh for each run, but every round of a run draws from the same."""
    numbers = count()

    def aggregate(plan, this, update, *, entropy):
        seed = sha256(b"run %d" % (next(numbers) // rounds)).digest()
        return local.clear(
            plan, this, update, entropy=lambda name: SeededEntropy(seed, f"again/{name}")
        )

    return aggregate


SABOTAGES = {
    "a quarter of the noise": lambda _: quarter_of_the_noise,
    "unscaled variance": lambda _: unscaled_variance,
    "repeated seed": repeated_seed,
}
