"""The library as an attacker meets it: plans, releases, and what is public about them.

The only module of this folder that knows names of the library. The attacks work on vectors and on
numbers; `skipping.py` is an oracle that knows nothing of it.
"""

from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from unittest import mock

import numpy as np

import skellam as sk
from skellam.codec import SkellamShares, WrapEstimate
from skellam.codec.arithmetic import Rotation
from skellam.engines import local
from skellam.errors import SkellamError, ThresholdError
from skellam.plan import Plan, Sampling
from skellam.vectors import Reals

SAMPLINGS = tuple(map(str, Sampling))
AMPLIFIED = ("poisson", "self")
REFUSED = SkellamError


# Plans.


def plan(sampling="poisson", *, cohort=20, population=200, z=1.0, rounding=None, **changes):
    """Return a plan with noise of ``z`` clips; only names of fields depend on the library."""
    drawn = {
        "poisson": {"population": population},
        "self": {"population": population, "participation_probability": 0.5},
        "fixed": {"population": population},
        "all": {},
        "cyclic": {"population": population},
    }[sampling]
    settings = {"dimension": 500, "clip": 1.0, "rounds": 10, "bits": 12, "target_delta": 1e-3}
    made = {**settings, **drawn, **changes, "cohort": cohort, "rounding": rounding}
    return Plan(sampling=sampling, **made).with_noise(z)


def counting_plan(*, cohort, population, variance, **changes):
    """Return a plan for two counts with Skellam noise of ``variance``; each user is in one."""
    bits = {"dimension": 2, "clip": 1.0, "l1": 1, "coordinate_bound": 1.0, "rounding": "integer"}
    made = Plan(cohort=cohort, population=population, rounds=3, bits=16, **bits, **changes)
    return made.with_noise(variance**0.5, delta=0.5)


def invited(made):
    """Return the expected size of a cohort."""
    return made.invited


def min_cohort(made):
    """Return the least size from which on every cohort runs."""
    return made.min_cohort


def runs(made, size):
    """Return whether a cohort of ``size`` is summed rather than skipped."""
    try:
        local.require_cohort(made, _round(0, bytes(32), range(size)))
    except ThresholdError:
        return False
    return True


def has_codec(made, size):
    """Return whether the arithmetic of a cohort of ``size`` exists, so that its round can run."""
    try:
        _round(0, bytes(32), range(size)).codec(made)
    except SkellamError:
        return False
    return True


def claimed_epsilon(made, *, delta, rounds):
    """Return what the plan says that ``rounds`` rounds cost the public."""
    return made.privacy(delta=delta, rounds=rounds).epsilon


@dataclass(frozen=True)
class Numbers:
    """What the arithmetic of a round shows of itself in its release."""

    scale: float
    bits: int
    padded_dim: int
    sent_dim: int
    rounding: object
    variance: float
    """Of the noise that stays in the sum if nobody drops out."""
    clip_count_variance: float | None


def numbers(made, size):
    """Return the arithmetic of a cohort of ``size``."""
    spec = made.spec(cohort=size)
    return Numbers(
        spec.scale,
        spec.bits,
        spec.padded_dim,
        spec.sent_dim,
        spec.rounding,
        _variance(spec.noise, size),
        None if spec.clip_count is None else _variance(spec.clip_count, size),
    )


def _variance(noise, size):
    if isinstance(noise, SkellamShares):
        return noise.variance
    return float(f"{size * noise.sigma**2:.12g}")


# Releases.


@dataclass(frozen=True)
class Release:
    """One round's release with all that is public about it."""

    plan: Plan
    number: int
    model: bytes
    vector: np.ndarray
    wrap_k: float
    clip_count: float | None = None


def seeded(seed):
    """Return the entropy of all parties to one round, which ``seed`` determines."""
    key = sha256(str(seed).encode()).digest()
    return lambda context: sk.SeededEntropy(key, context)


def _round(number, model, members, dropouts=()):
    return local.Round(number, model, tuple(members), tuple(dropouts))


def _zeros(made):
    zeros = np.zeros(made.dimension, dtype=np.float32)
    return lambda _: zeros


def _run(engine, made, members, *, seed, number=0, dropouts=(), update=None):
    model = sha256(f"model {seed}".encode()).digest()
    round_ = _round(number, model, members, dropouts)
    result = engine(made, round_, update or _zeros(made), entropy=seeded(seed))
    vector = np.asarray(result.total.values)
    return Release(made, number, model, vector, result.wrap.k, result.clip_count)


def unmasked(made, members, **options):
    """Return the release of one round without masks."""
    return _run(local.unmasked, made, members, **options)


def secure(made, members, **options):
    """Return the release of one round through the whole protocol."""
    return _run(local.secure, made, members, **options)


ENGINES = {"unmasked": unmasked, "secure": secure}


# Flower.

FLOWER_LIMITS = {"round_epsilon": 1e3, "total_epsilon": 1e5, "max_participations": 1000}


def flower(folder, made, *, nodes, rounds, seed, lost=()):
    """Return the rounds of a fleet in this process that released something.

    Each is the release, the clients that take part, and those of them whose vector is in the sum.
    The nodes at the indices ``lost`` drop out before they send their vector.
    """
    from flwr.app import Array, ArrayRecord, Message, RecordDict
    from flwr.serverapp.strategy import FedAvg

    from oracles.flower_fleet import Fleet, client_app

    gone = {2 + i for i in lost}

    def idle(message, context):
        return Message(RecordDict({"arrays": message.content["arrays"]}), reply_to=message)

    def downlink(message):
        late = message.metadata.message_type.endswith("masked_input")
        return None if late and message.metadata.dst_node_id in gone else message

    app = client_app(idle, entropy=fresh(seed))
    fleet = Fleet(folder, made, app, count=nodes, limits=FLOWER_LIMITS, budget=1e6)
    _, reports = fleet.start(
        rounds=rounds,
        strategy=FedAvg(fraction_evaluate=0.0),
        arrays=ArrayRecord({"w": Array(np.zeros(made.dimension, dtype=np.float32))}),
        network={"downlink": downlink},
        entropy=seeded(seed)("server"),
    )
    return [
        (flower_release(made, report), report.result.participants, report.result.survivors)
        for report in reports
        if report.result is not None
    ]


def flower_release(made, report):
    found = report.result
    vector = np.asarray(found.total.values)
    return Release(made, report.number, report.content, vector, found.wrap.k, found.clip_count)


def fresh(seed):
    """Return entropy for clients whose every use has new bits, in every round and stage."""
    calls = count()
    return lambda context: seeded(seed)(f"{context}/{next(calls)}")


# Training.

PUBLIC, OPERATOR = "public", "operator"
FILES = {
    "run.json": PUBLIC,
    "history.jsonl": PUBLIC,
    "history.jsonl.sha256": PUBLIC,
    "ledger": PUBLIC,
    "ledger.tail": PUBLIC,
    "tensorboard": PUBLIC,
    "report.html": PUBLIC,
    "model.pt": PUBLIC,
    "checkpoint.npz": OPERATOR,
    "participations.npz": OPERATOR,
    "operator.jsonl": OPERATOR,
    "operator.jsonl.sha256": OPERATOR,
}
"""Who may see what a run leaves in its folder."""


def train(folder, secrets, *, adaptive=False, rounds=4):
    """Train a tiny model in ``folder`` and return its history; a report is written too.

    Its cohorts and dropouts are ``secrets`` (members and dropouts of every round), and every round
    that runs releases the same sum whoever took part: two runs differ in their secrets alone.
    """
    from oracles import tiny_task
    from skellam import federated as fl
    from skellam import report
    from skellam.federated.sampling import Population

    changes = {"quantile_noise": 0.1} if adaptive else {}
    made = tiny_task.plan(rounds=rounds, **changes)
    drawn = iter(secrets)

    def canned(made_, round_, update, *, entropy, spend=lambda: None):
        local.require_cohort(made_, round_)
        for member in round_.survivors:
            update(member)
        spend()
        rng = np.random.default_rng(round_.number)
        total = Reals(rng.normal(size=made_.dimension).astype(np.float32))
        wrap = WrapEstimate(made_.bits, 100.0 + round_.number, 1.0)
        return local.RoundResult(total, round_.survivors, wrap, 2.0 if adaptive else None)

    def draw(self, number, *, entropy):
        return next(drawn)[0]

    with mock.patch.object(Population, "draw", draw):
        history = fl.train(
            tiny_task.task(),
            made,
            aggregate=fl.Aggregation(
                canned, "secure", {n: gone for n, (_, gone) in enumerate(secrets)}
            ),
            entropy=tiny_task.seeded(),
            clip=fl.AdaptiveClip(clip=0.1) if adaptive else None,
            folder=folder,
        )
    report.write(folder)
    return history


def shown_history(history):
    """Return all that a run's history shows, as text."""
    rows = [history.header, history.records, history.model.tolist(), history.stop]
    return repr([*rows, history.guarantees])


# Messages, and sums of them.


def messages(made, *, cohort, count, number=0):
    """Return a round's codec for ``cohort`` clients, and the messages of ``count`` of them."""
    codec = _round(number, bytes(32), range(cohort)).codec(made)
    source = seeded(f"messages {number}")

    def message(n):
        seed = codec.new_noise_seed(entropy=source(f"seed {n}")) if codec.spec.removable else None
        return codec.encode_zeros(entropy=source(f"client {n}"), noise_seed=seed)

    return codec, [message(n) for n in range(count)]


# What an attacker who guesses the members derives.


def rotation_by_library(release, members):
    """Return the rotation that the library would use for these members."""
    round_ = _round(release.number, release.model, members)
    return round_.codec(release.plan)._rotation


def rotation_of_0_1_0(release, members):
    """Return the rotation that version 0.1.0 used for these members."""
    people = sha256(np.array(sorted(members), dtype="<u8").tobytes()).digest()
    digest = sha256(b"skellam/1/public-seed")
    for part in (people, release.plan.digest, release.model):
        digest.update(len(part).to_bytes(8, "big") + part)
    digest.update(release.number.to_bytes(8, "big"))
    return Rotation(release.plan.padded_dim, digest.digest())


DERIVATIONS = {"library": rotation_by_library, "0.1.0": rotation_of_0_1_0}


def signs(rotation):
    """Return what tells one rotation from another."""
    return rotation._signs.tobytes()


def rotated(release, rotation):
    """Return the release as it lies in the ring, if ``rotation`` is the right one."""
    made = release.plan
    gain = made.scale * made.sent_dim / made.padded_dim
    return rotation.forward(release.vector.astype(np.float32), gain)


def subset(release, members):
    """Return which rotated coordinates travel for these members."""
    round_ = _round(release.number, release.model, members)
    chosen = round_.codec(release.plan)._subset
    return None if chosen is None else tuple(chosen.tolist())


def clip_count(codec, total):
    """Return how many clients were within the clip less how many were not, with noise."""
    return codec.clip_count(total)
