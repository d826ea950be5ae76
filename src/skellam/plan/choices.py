"""The closed sets that a plan chooses from."""

from __future__ import annotations

from enum import StrEnum


class Sampling(StrEnum):
    """How a round's clients are drawn."""

    POISSON = "poisson"
    """Each client of the population takes part independently; the size of the cohort varies."""
    SELF = "self"
    """Each invited client draws in secret whether its update or zeros are encoded."""
    FIXED = "fixed"
    """A uniform cohort of fixed size (Result D)."""
    CYCLIC = "cyclic"
    """Clients are dealt into groups once; round t asks group t modulo the number of groups."""
    ALL = "all"
    """Everybody, every round."""

    @property
    def secret(self) -> bool:
        """Whether the guarantee rests on members and sizes of cohorts that nobody else knows."""
        return self in {Sampling.POISSON, Sampling.SELF}


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

    @property
    def skellam(self) -> bool:
        """Whether the sum's noise is a Skellam variable."""
        return self in {Noise.SKELLAM, Noise.CENTRAL_SKELLAM}


class Rounding(StrEnum):
    """How a client rounds its rotated vector."""

    UNBIASED = "unbiased"
    """Plain stochastic rounding, accounted as part of the mechanism (Results B and B')."""
    CONDITIONAL = "conditional"
    """The paper's: retried until the norm is within its bound, which the accounting charges."""
    INTEGER = "integer"
    """None: vectors of integers within stated bounds, neither rotated nor scaled."""


class Accountant(StrEnum):
    """How a plan's epsilon is computed."""

    BEST = "best"
    """The smallest epsilon of all accountants that have a bound."""
    PAPER = "paper"
    """The paper's RDP bound at integer orders with generic amplification."""


class Signal(StrEnum):
    """How the clients' updates add up: what the modulus must hold besides the noise."""

    ALIGNED = "aligned"
    """All clients agree: the norm of the sum grows with the cohort. The worst case."""
    INDEPENDENT = "independent"
    """Directions are independent: the norm of the sum grows with the root of the cohort."""
