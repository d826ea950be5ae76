"""dp_accounting's estimates of sampled Gaussian noise, over a grid of settings.

They take most of an hour, so they are kept in tests/vectors/dp_accounting.jsonl; this records the
settings that are missing there:

    python tests/oracles/dp_accounting_grid.py
"""

import itertools
import json
import logging
import math
from pathlib import Path

from dp_accounting.pld import privacy_loss_distribution

RECORDED = Path(__file__).parents[1] / "vectors" / "dp_accounting.jsonl"
MAX_POINTS = 1e6
GRID = list(
    itertools.product(
        (1.0, 0.1, 1e-2, 1e-3, 1e-4),
        (100.0, 10.0, 3.0, 1.0, 0.5, 0.3),
        (1, 10, 100, 1000, 10**4, 10**5, 10**6),
    )
)
DELTAS = (1e-2, 1e-6, 1e-9, 1e-12)


def estimates(rate, z, rounds):
    """Return its optimistic and pessimistic epsilons at DELTAS, or None where it has no answer."""
    try:
        pair = [_composed(rate, z, rounds, pessimistic=side) for side in (False, True)]
        return [[pld.get_epsilon_for_delta(delta) for delta in DELTAS] for pld in pair]
    except (OverflowError, MemoryError, ValueError):
        return None


def recorded():
    """Return the estimates that are kept, by setting."""
    lines = map(json.loads, RECORDED.read_text().splitlines())
    return {tuple(line["setting"]): line["epsilons"] for line in lines}


def interval(rate, z, rounds):
    """As fine as by default, or as a composition of a million points allows."""
    reach = 12 / z + 0.5 / z**2
    if rate < 1:
        reach = math.log1p(rate * math.expm1(min(reach, 600.0)))
    spread = min(reach, rate * math.sqrt(math.expm1(min(1 / z**2, 600.0))))
    width = min(2 * rounds * reach, 20 * math.sqrt(rounds) * spread + rounds * spread**2)
    return max(1e-4, width / MAX_POINTS)


def _composed(rate, z, rounds, *, pessimistic):
    return privacy_loss_distribution.from_gaussian_mechanism(
        z,
        sampling_prob=rate,
        value_discretization_interval=interval(rate, z, rounds),
        pessimistic_estimate=pessimistic,
        use_connect_dots=pessimistic,
    ).self_compose(rounds)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    known = recorded() if RECORDED.exists() else {}
    with RECORDED.open("a") as file:
        for setting in GRID:
            if setting not in known:
                line = {"setting": setting, "epsilons": estimates(*setting)}
                file.write(json.dumps(line) + "\n")
                file.flush()
