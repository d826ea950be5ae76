import math
from dataclasses import replace

import numpy as np
import pytest

import skellam as sk
from skellam import accounting
from skellam.engines import local
from skellam.errors import DomainError, InfeasibleError
from skellam.plan import AdaptiveClip, Plan, unclipped_fraction
from skellam.plan.clipping import count_variance

D = 16


def plan(**changes):
    settings = {
        "dimension": D,
        "clip": 1.0,
        "cohort": 100,
        "rounds": 10,
        "population": 1000,
        "bits": 14,
        "quantile_noise": 0.05,
    }
    return Plan(**{**settings, **changes})


def seeded(context):
    return sk.SeededEntropy(bytes(32), context)


def vector(norm):
    return np.eye(D)[3] * norm


def round_of(members, **changes):
    return local.Round(**{"number": 0, "model": bytes(32), "members": members, **changes})


def test_the_new_clip_of_the_paper_s_example_is_exp_two_thirds():
    made = plan(noise="none", cohort=3, population=None, sampling="all").with_noise(0)
    norms = {0: 0.5, 1: 1.5, 2: 2.0}
    outcome = local.unmasked(made, round_of((0, 1, 2)), lambda n: vector(norms[n]), entropy=seeded)
    assert outcome.clip_count == -1
    clip = AdaptiveClip(clip=1, target=1, learning_rate=1).updated(
        unclipped_fraction(outcome.clip_count, 3)
    )
    assert clip.clip == pytest.approx(math.exp(2 / 3), rel=1e-15)


@pytest.mark.parametrize("run", [local.unmasked, local.secure])
def test_the_clip_count_comes_through_the_same_secure_sum(run):
    """The noise deviates by 2 to 3: thirty of them have a chance below 1e-30."""
    made = plan(
        cohort=20,
        sampling="all",
        population=None,
        dropout=0.2,
        quantile_noise=0.05,
    ).with_noise(0.01)
    outcome = run(
        made,
        round_of(tuple(range(20)), dropouts=(0, 1)),
        lambda n: vector(0.5 if n < 12 else 3.0),
        entropy=lambda _: sk.SystemEntropy(),
    )
    assert abs(outcome.clip_count - (10 - 8)) <= 30 * 2.5
    assert len(outcome.total) == D
    assert outcome.total.values[3] == pytest.approx(10 * 0.5 + 8 * 1.0, abs=1)


def test_unmasked_and_secure_sums_agree_bit_for_bit():
    made = plan(cohort=10, sampling="all", population=None).with_noise(0.5)
    sums = [
        run(made, round_of(tuple(range(10))), lambda n: vector(n / 5), entropy=seeded)
        for run in (local.unmasked, local.secure)
    ]
    assert sums[0].clip_count == sums[1].clip_count
    assert np.array_equal(sums[0].total.values, sums[1].total.values)


def test_a_client_that_sits_out_counts_on_neither_side():
    made = plan(noise="none", cohort=3, population=None, sampling="all").with_noise(0)
    bad = {0: None, 1: np.full(D, np.nan), 2: vector(0.5)}
    assert local.unmasked(made, round_of((0, 1, 2)), bad.get, entropy=seeded).clip_count == 1


def test_the_noise_on_the_share_is_as_planned():
    """Seeded. The deviation of 2000 draws is within 8 % but for 1e-6 (five standard errors)."""
    made = plan(cohort=4, sampling="all", population=None, quantile_noise=0.5).with_noise(1.0)
    codec = made.codec(public_seed=bytes(32))
    entropy = seeded("noise on the share")
    zeros = (codec.add(codec.encode_zeros(entropy=entropy) for _ in range(4)) for _ in range(2000))
    shares = [unclipped_fraction(codec.clip_count(total), 4) for total in zeros]
    assert np.std(shares) == pytest.approx(0.5, rel=0.08)
    assert np.mean(shares) == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(2000))


def test_the_budget_is_split_in_squares():
    both, alone = plan().with_noise(0.8), plan(quantile_noise=None).with_noise(0.8)
    bit = accounting.gdp_parameter(accounting.Skellam(count_variance(both), 1.0))
    whole = math.hypot(1 / alone.effective_multiplier, bit)
    assert 1 / both.effective_multiplier == pytest.approx(whole, rel=1e-9)
    assert 1 / both.effective_multiplier >= whole


def test_noise_of_a_count_that_cannot_be_drawn_is_refused():
    with pytest.raises(InfeasibleError, match="change quantile_noise"):
        plan(quantile_noise=1e6).calibrated(epsilon=8, delta=1e-5)


def test_the_split_is_explained():
    made = plan().with_noise(0.8)
    bit = accounting.gdp_parameter(accounting.Skellam(count_variance(made), 1.0))
    part = (bit * made.effective_multiplier) ** 2
    assert made.explain().as_dict()["quantile's part"]["value"] == f"{part:.2%}"


def test_calibration_pays_for_the_bit_out_of_the_same_budget():
    both = plan().calibrated(epsilon=2.0, delta=1e-5)
    alone = plan(quantile_noise=None).calibrated(epsilon=2.0, delta=1e-5)
    assert both.privacy().epsilon <= 2.0
    assert alone.noise_multiplier < both.noise_multiplier < 1.05 * alone.noise_multiplier


@pytest.mark.parametrize("variances", [(1.0, 4.0), (0.3, 0.3), (20.0, 1.5)])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_the_joint_bound_holds_for_the_exact_product(variances, epsilon):
    """Two coordinates of unlike variance, both moved by one, summed over all outcomes."""
    from scipy.stats import skellam

    k = np.arange(-80, 81)
    laws = [skellam(v / 2, v / 2) for v in variances]
    shifted = np.outer(*(law.pmf(k - 1) for law in laws))
    plain = np.outer(*(law.pmf(k) for law in laws))
    exact = np.maximum(shifted - math.exp(epsilon) * plain, 0).sum()
    bound = accounting.Joint(tuple(accounting.Skellam(v, 1.0) for v in variances))
    assert exact <= accounting.delta(bound, epsilon=epsilon, method="gdp") * (1 + 1e-9)


def test_the_clip_tracks_a_moving_quantile_under_noise():
    """Seeded. Norms are log-normal; their median triples and falls back. After 40 rounds at each
    level the clip is within a quarter of the median: in log terms its own deviation is below 0.05.
    """
    rng = np.random.default_rng(5)
    made = plan(cohort=100, sampling="all", population=None, noise="skellam").with_noise(1.0)
    codec, clip = made.codec(public_seed=bytes(32)), AdaptiveClip(clip=0.1, learning_rate=0.3)
    entropy = seeded("tracking")
    for median in (1.0, 3.0, 0.5):
        for _ in range(40):
            norms = median * np.exp(0.5 * rng.standard_normal(100))
            total = codec.add(
                codec.encode(vector(norm * clip.factor(made)), entropy=entropy) for norm in norms
            )
            clip = clip.updated(unclipped_fraction(codec.clip_count(total), 100))
        assert clip.clip == pytest.approx(median, rel=0.25)


def test_wild_noise_moves_the_clip_by_no_more_than_its_rate():
    clip = AdaptiveClip(clip=2.0, target=0.5, learning_rate=0.2)
    assert clip.updated(1e9).clip == pytest.approx(2 * math.exp(-0.1))
    assert clip.updated(-1e9).clip == pytest.approx(2 * math.exp(0.1))


def test_the_count_must_fit_the_modulus():
    with pytest.raises(InfeasibleError, match="fewest that can: 10"):
        plan(bits=8).with_noise(1.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"quantile_noise": 0.0},
        {"quantile_noise": math.nan},
        {"noise": "gaussian"},
        {"accountant": "paper"},
    ],
)
def test_what_cannot_be_accounted_is_refused(changes):
    with pytest.raises(DomainError):
        plan(**changes)


@pytest.mark.parametrize(
    "changes", [{"clip": 0}, {"target": 1.5}, {"learning_rate": -1}, {"clip": math.nan}]
)
def test_a_clip_must_make_sense(changes):
    with pytest.raises(DomainError):
        AdaptiveClip(**{"clip": 1.0, **changes})
    with pytest.raises(DomainError):
        AdaptiveClip(clip=1.0).updated("x")


def test_it_survives_json():
    made = plan().with_noise(1.0)
    assert Plan.from_json(made.to_json()) == made
    with pytest.raises(DomainError, match="calibrate again"):
        replace(made, quantile_noise=0.1)
    assert made.spec().message_len == made.spec().sent_dim + 1
