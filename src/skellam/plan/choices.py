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


class Servers(StrEnum):
    """Who sums the vectors."""

    ONE = "one-server"
    """One server, by secure aggregation among the clients, who add the noise in shares."""
    TWO = "two-servers"
    """A leader and a helper that do not collude; they add the noise, clients add none."""


class NoiseBy(StrEnum):
    """Which of two servers adds noise, each as much as the guarantee needs."""

    BOTH = "both"
    HELPER = "helper"
    """The helper alone, which is then trusted not to look at what is released."""

    @property
    def servers(self) -> int:
        """How many servers add noise."""
        return 2 if self is NoiseBy.BOTH else 1


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
        """Whether it can be added in shares, so that no server need be trusted with it."""
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
