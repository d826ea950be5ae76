"""A round through codec and secure aggregation, with noise from one seed a client."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from skellam.codec import Codec, CodecSpec, Integer, NoiseSpec, SkellamShares
from skellam.cohorts import Tolerance
from skellam.entropy import SeededEntropy
from skellam.secagg import Identity, Outcome, RoundParameters, simulation
from skellam.secagg.simulation import FaultScript, Stage

SEED = bytes(range(32))


@dataclass(frozen=True)
class Released:
    """What the server decodes, and what the survivors gave."""

    outcome: Outcome
    decoded: np.ndarray
    true_sum: np.ndarray


def codec_for(noise: NoiseSpec, length: int, bits: int = 16) -> Codec:
    spec = CodecSpec(
        dimension=length,
        clip=float(length),
        scale=1.0,
        bits=bits,
        rounding=Integer(coordinate_bound=1, l1=length),
        noise=noise,
        padded_dim=length,
    )
    return Codec(spec, public_seed=SEED)


def run(
    n: int,
    dropout: str,
    dropped: int,
    *,
    length: int,
    variance: float = 40.0,
    stage: Stage = Stage.MASKED_INPUT,
    context: str = "",
) -> Released:
    """Run a round of ``n`` clients with vectors of -1, 0 and 1, of whom ``dropped`` drop out."""
    tolerance = Tolerance(Fraction(dropout))
    removable = tolerance.dropout > 0
    codec = codec_for(SkellamShares(variance, tolerance.survivors(n), removable), length)
    entropy = SeededEntropy(SEED, f"{n}/{dropout}/{dropped}/{context}")
    identities = [Identity.generate(3 + 5 * i, entropy=entropy) for i in range(n)]
    round_ = RoundParameters(
        round_id=b"round".ljust(32),
        plan=b"plan".ljust(32),
        model=b"model".ljust(32),
        bits=codec.spec.bits,
        length=codec.spec.message_len,
        tolerance=tolerance,
        min_participants=n,
        removable=removable,
        label=codec.label,
    )
    rng = np.random.default_rng(n)
    vectors = {each.number: rng.integers(-1, 2, length) for each in identities}
    gone = rng.permutation([each.number for each in identities])[:dropped].tolist()

    def encode(number, phase):
        return codec.encode(vectors[number], entropy=entropy, noise_seed=phase.noise_seed)

    outcome = simulation.run(
        round_,
        identities,
        encode,
        entropy=entropy,
        faults=FaultScript(dropouts={stage: gone}),
    )
    total = outcome.total
    if removable:
        total = codec.remove(total, outcome.noise_seeds.values())
    true_sum = np.sum([vectors[number] for number in outcome.survivors], axis=0)
    return Released(outcome, codec.decode(total).values, true_sum)
