"""The closed sets that a plan chooses from."""

from __future__ import annotations

from enum import StrEnum


class Sampling(StrEnum):
    """How a round's clients are drawn."""

    POISSON = "poisson"
    """Each of the population takes part independently; the size of the cohort varies."""
    SELF = "self"
    """Each invited client flips a secret coin, and encodes zeros with its noise on tails."""
    FIXED = "fixed"
    """A uniform cohort of fixed size; accounted under replace-one."""
    ALL = "all"
    """Everybody, every round."""


class Noise(StrEnum):
    """Which noise protects the sum, and who adds it."""

    SKELLAM = "skellam"
    CENTRAL_SKELLAM = "central-skellam"
    DISCRETE_GAUSSIAN = "distributed-discrete-gaussian"
    CENTRAL_DISCRETE_GAUSSIAN = "central-discrete-gaussian"
    GAUSSIAN = "gaussian"
    """Continuous, added by the server, without a modulus: the baseline."""
    NONE = "none"

    @property
    def distributed(self) -> bool:
        """Whether the clients add it, so that the server need not be trusted."""
        return self in {Noise.SKELLAM, Noise.DISCRETE_GAUSSIAN}

    @property
    def continuous(self) -> bool:
        """Whether vectors stay real: no rotation, no rounding, no modulus."""
        return self is Noise.GAUSSIAN


class Rounding(StrEnum):
    """How a client rounds its rotated vector."""

    UNBIASED = "unbiased"
    """Plain stochastic rounding, accounted as part of the mechanism (Results B and B')."""
    CONDITIONAL = "conditional"
    """The paper's: retried until the norm is within its bound, which the accounting pays for."""
    WHOLE = "whole"
    """None: vectors of whole numbers within stated bounds, neither rotated nor scaled."""


class Accountant(StrEnum):
    """How a plan's epsilon is computed."""

    BEST = "best"
    """The smallest over every valid route."""
    PAPER = "paper"
    """The paper's RDP bound at integer orders with generic amplification."""
