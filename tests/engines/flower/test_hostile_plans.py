"""Plans that a hostile server makes up: a node refuses, or the noise is what it paid for."""

import json
import random

import numpy as np
import pytest

from oracles.flower_fleet import LIMITS, D, plan
from skellam import AdaptiveClip, SystemEntropy, codec
from skellam.engines.flower import Limits
from skellam.engines.flower.round_config import RoundConfig, UpdateKind
from skellam.errors import DomainError, SkellamError, ThresholdError
from skellam.plan import CalibratedPlan, Servers

NODE = Limits(**LIMITS)
WIDE = {"cohort": 20, "dropout": 0.1, "colluding": 0.1}
BASES = [
    json.loads(made.to_json())
    for made in (
        plan(),
        plan(**WIDE),
        plan(**WIDE, population=100, sampling="fixed"),
        plan(**WIDE, quantile_noise=0.3),
        plan(**WIDE, rounding="unbiased"),
    )
]
NUMBERS = [0, 1, 2, 5, 24, 32, 1000, 10**6, 0.1, 0.3333, 0.5, 0.999, 1e-6, 1e-30, 1e12, None, -1]
FACTORS = [0.01, 0.5, 0.9, 1.1, 2, 100]
WORDS = ["unbiased", "conditional", "integer", "all", "fixed", "poisson", "self", "cyclic", "best"]
WORDS += ["skellam", "aligned", "two-servers", "one-server", "helper", "both"]
VECTORS = [
    np.full(D, 1e9, dtype=np.float32),
    1e6 * np.eye(D, dtype=np.float32)[3],
    np.linspace(-1, 1, D, dtype=np.float32),
]


def other(value, rng):
    """Return something else of about the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return rng.choice(WORDS)
    if isinstance(value, list):
        return rng.choice([[], [1], [1, 1], [2, -1], [*value, 1], None])
    if value is None or rng.random() < 0.5:
        return rng.choice(NUMBERS)
    return type(value)(value * rng.choice(FACTORS))


def made_up(rng):
    """Return the record of a plan with up to three numbers changed, on both sides if they agree."""
    record = json.loads(json.dumps(rng.choice(BASES)))
    for _ in range(rng.choice([1, 1, 2, 3])):
        part = rng.choice(["chosen", "request"])
        name = rng.choice(list(record[part]))
        value = other(record[part][name], rng)
        for side in ("chosen", "request"):
            if name in record[side] and (side == part or rng.random() < 0.5):
                record[side][name] = value
    return record


def accepted(record, invited):
    """Return the round that a node would train for, or ``None``."""
    try:
        made = CalibratedPlan.from_json(json.dumps(record))
        clip = None if made.quantile_noise is None else AdaptiveClip(clip=0.5)
        config = RoundConfig(made, 1, bytes(32), invited, UpdateKind.DIFFERENCE, bytes(32), clip)
        NODE.price(RoundConfig.from_json(config.to_json()).plan)
        require_cohort(config, invited)
        config.protocol(bytes(32))
    except SkellamError:
        return None
    return config if made.dimension == D and made.aggregation is Servers.ONE else None


def require_cohort(config, participants):
    NODE.require_cohort(
        survivors=config.survivors(participants), colluders=config.colluders(participants)
    )


def assert_noise_is_paid_for(config, participants):
    """The honest ones of the fewest survivors add what the price was computed from."""
    noise = config.codec(bytes(32), participants).spec.noise
    survivors, colluders = config.survivors(participants), config.colluders(participants)
    assert noise.shares <= survivors
    assert float(noise.share) * (noise.shares - colluders) >= config.plan.variance * (1 - 1e-9)
    assert 2 * survivors > participants + colluders


def assert_vectors_are_bounded(config, participants):
    """Whatever was trained, the integers keep to the bounds that the price was computed from."""
    made = config.codec(bytes(32), participants).without_noise()
    bound, modulus = codec.sensitivity(made.spec), 1 << made.spec.bits
    if made.spec.radius > modulus / 4:
        return  # the ring is too small to tell
    for vector in VECTORS:
        sent = made.encode_or_zeros(vector, entropy=SystemEntropy()).values.astype(np.int64)
        values = (sent[: made.spec.sent_dim] + modulus // 2) % modulus - modulus // 2
        slack = 0 if isinstance(bound, codec.IntegerSensitivity) else len(values) ** 0.5
        assert np.linalg.norm(values) <= bound.l2 + slack
        if slack:
            assert np.abs(values).max() <= np.ceil(bound.coordinate_bound)
        else:
            assert np.abs(values).sum() <= bound.l1


def offer(count, seed):
    """Return how many of ``count`` plans a node would have taken part in."""
    rng, taken = random.Random(seed), 0
    for _ in range(count):
        record, invited = made_up(rng), rng.randrange(2, 60)
        config = accepted(record, invited)
        if config is None:
            continue
        smallest, largest = max(2, config.plan.min_cohort), config.plan.population_size
        for participants in {smallest, min(smallest + 3, largest), largest}:
            if smallest <= participants <= min(largest, 200):
                try:
                    require_cohort(config, participants)
                    config.codec(bytes(32), participants)
                except (DomainError, ThresholdError):
                    continue
                assert_noise_is_paid_for(config, participants)
                assert_vectors_are_bounded(config, participants)
                taken += 1
    return taken


def test_a_plan_that_a_node_accepts_has_the_noise_that_it_pays_for():
    assert offer(150, seed=1) > 20


@pytest.mark.slow
def test_no_plan_of_thousands_has_less_noise_than_a_node_pays_for():
    assert offer(3000, seed=2) > 500
