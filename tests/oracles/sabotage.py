"""Rounds as careless implementations run them: each looks private and is not."""

from dataclasses import replace
from hashlib import sha256
from itertools import count

from skellam import SeededEntropy
from skellam.engines import local


def _with_variance(plan, variance):
    return replace(plan, variance=variance)


def quarter_of_the_noise(plan, round_, update, *, entropy, spend=lambda: None):
    """A quarter of the deviation that was planned."""
    return local.unmasked(
        _with_variance(plan, plan.variance / 16), round_, update, entropy=entropy, spend=spend
    )


def unscaled_variance(plan, round_, update, *, entropy, spend=lambda: None):
    """Noise for the real vectors, added to the scaled ones: a bug of a published system."""
    wrong = plan.variance / plan.scale**2
    return local.unmasked(_with_variance(plan, wrong), round_, update, entropy=entropy, spend=spend)


def repeated_seed(rounds):
    """Secret seeds, fresh for each run, but every round of a run draws from the same."""
    numbers = count()

    def aggregate(plan, round_, update, *, entropy, spend=lambda: None):
        seed = sha256(b"run %d" % (next(numbers) // rounds)).digest()
        return local.unmasked(
            plan,
            round_,
            update,
            entropy=lambda name: SeededEntropy(seed, f"again/{name}"),
            spend=spend,
        )

    return aggregate


SABOTAGES = {
    "a quarter of the noise": lambda _: quarter_of_the_noise,
    "unscaled variance": lambda _: unscaled_variance,
    "repeated seed": repeated_seed,
}
