import math

import numpy as np
import pytest

import skellam as sk
from skellam.engines import local
from skellam.engines.local import adaptive
from skellam.errors import DomainError
from skellam.plan import AdaptiveClip, Plan

D = 16


def plan(**changes):
    settings = {
        "dimension": D,
        "clip": 1.0,
        "cohort": 3,
        "rounds": 1,
        "sampling": "all",
        "bits": 20,
        "noise": "none",
        "quantile_noise": 0.1,
    }
    return Plan(**{**settings, **changes}).with_noise(0)


def run(made, clip, norms, aggregate=local.unmasked):
    return adaptive(
        aggregate,
        made,
        local.Round(0, bytes(32), tuple(range(len(norms)))),
        lambda n: None if norms[n] is None else np.eye(D)[2] * norms[n],
        clip,
        entropy=lambda context: sk.SeededEntropy(bytes(32), context),
        spend=lambda: None,
    )


@pytest.mark.parametrize("planned", [0.01, 1.0, 50.0])
def test_whatever_clip_was_planned_the_example_gives_exp_two_thirds(planned):
    outcome, clip = run(
        plan(clip=planned), AdaptiveClip(clip=1.0, target=1.0, learning_rate=1.0), [0.5, 1.5, 2.0]
    )
    assert clip.clip == pytest.approx(math.exp(2 / 3))
    # 0.5 as it is, the others clipped to 1; the scale moved with the clip and is divided out.
    assert outcome.total.values[2] == pytest.approx(2.5, rel=1e-3)


def test_the_integers_on_the_wire_do_not_depend_on_the_clip():
    """Updates and clip doubled together give the very same residues, and twice the sum."""
    one, _ = run(plan(), AdaptiveClip(clip=1.0), [0.25, 0.5, 4.0])
    two, _ = run(plan(), AdaptiveClip(clip=2.0), [0.5, 1.0, 8.0])
    assert np.array_equal(two.total.values, 2 * one.total.values)
    assert one.clip_count == two.clip_count


def test_who_encodes_zeros_leaves_the_clip_alone():
    _, clip = run(plan(), AdaptiveClip(clip=1.0, target=0.5), [None, None, None])
    assert clip.clip == 1.0


def test_it_must_be_planned_for_and_go_through_the_ring():
    with pytest.raises(DomainError, match="quantile_noise"):
        run(plan(quantile_noise=None), AdaptiveClip(clip=1.0), [1.0, 1.0, 1.0])
    with pytest.raises(DomainError, match="ring"):
        run(plan(), AdaptiveClip(clip=1.0), [1.0, 1.0, 1.0], local.non_private)
