"""A clip that adapts, on the in-process grid: the local engine's sums and clips, bit for bit."""

import json

import numpy as np
import pytest

from oracles.flower_fleet import Fleet, client_app, model, plan, step
from skellam.engines import local
from skellam.engines.flower.round_config import RoundConfig, UpdateKind
from skellam.engines.flower.rounds import Progress
from skellam.engines.local import adaptive
from skellam.entropy import SeededEntropy, SystemEntropy
from skellam.errors import DataError, DomainError, MessageError
from skellam.plan import AdaptiveClip

PLAN = plan(quantile_noise=0.2, z=4.0)
FIRST = AdaptiveClip(clip=0.1, learning_rate=1.0)


def replay(purpose):
    return SeededEntropy(bytes(32), purpose)


def fleet(folder):
    return Fleet(folder, PLAN, client_app(entropy=replay), limits={"round_epsilon": 10.0})


def by_local_engine(arrays, report, clip):
    """Return what one round among five clients releases, and the next clip."""
    before = np.concatenate([a.ravel() for a in arrays.values()])
    this = local.Round(report.number, report.content, tuple(range(1, 6)))
    return adaptive(
        local.secure,
        PLAN,
        this,
        lambda n: (before + step(n)) - before,
        clip,
        entropy=replay,
        spend=lambda: None,
    )


def test_sums_and_clips_of_some_rounds_are_the_local_engines(tmp_path):
    _, reports = fleet(tmp_path).start(rounds=3, arrays=model(2.0), clip=FIRST)
    arrays, clip = {k: a.numpy() for k, a in model(2.0).items()}, FIRST
    for report in reports:
        expected, following = by_local_engine(arrays, report, clip)
        assert report.clip == clip.clip
        assert report.result.clip_count == expected.clip_count
        assert np.array_equal(report.result.total.values, expected.total.values)
        clip = following
        mean = expected.total.values / PLAN.cohort
        whole = np.concatenate([a.ravel() for a in arrays.values()]) + mean
        cuts = np.split(whole.astype(np.float32), [21])
        arrays = {k: c.reshape(a.shape) for (k, a), c in zip(arrays.items(), cuts, strict=True)}
    assert len({report.clip for report in reports}) > 1


def test_a_server_that_is_started_again_goes_on_with_its_clip(tmp_path):
    run, file = fleet(tmp_path), tmp_path / "progress.json"
    _, whole = run.start(rounds=3, clip=FIRST)
    _, (one,) = run.start(clip=FIRST, progress_file=file)
    _, (two,) = run.start(clip=FIRST, progress_file=file)
    assert [one.clip, two.clip] == [report.clip for report in whole[:2]]
    kept = Progress.begin(FIRST, entropy=SystemEntropy()).restored(file, PLAN)
    assert kept.rounds == 2
    assert kept.clip == FIRST.after(one.result.clip_count, PLAN).after(two.result.clip_count, PLAN)


def test_a_failed_round_leaves_the_clip(tmp_path):
    def downlink(message):
        lost = message.metadata.group_id == "1" and message.metadata.message_type.endswith(
            "masked_input"
        )
        return None if lost else message

    _, (one, two) = fleet(tmp_path).start(rounds=2, clip=FIRST, network={"downlink": downlink})
    assert one.failure
    assert one.clip == two.clip == FIRST.clip


def test_who_was_told_another_clip_is_no_party_to_the_round(tmp_path):
    """A server that tells one node another clip than the others has two rounds, not one."""

    def downlink(message):
        if message.metadata.message_type == "train" and message.metadata.dst_node_id == 3:
            record = message.content["skellam"]
            record["config"] = record["config"].replace('"clip": 0.1', '"clip": 0.2')
        return message

    _, (report,) = fleet(tmp_path).start(clip=FIRST, network={"downlink": downlink})
    assert 2 not in report.result.participants
    assert [(fault.node, fault.stage) for fault in report.faults] == [(3, "advertise_keys")]


@pytest.mark.parametrize("clip", [0.0, -1.0, float("nan"), float("inf"), 1e-300, "x", "1"])
def test_a_clip_beyond_floats_is_no_round_configuration(clip):
    made = RoundConfig(PLAN, 1, bytes(32), 5, UpdateKind.DIFFERENCE, bytes(32), FIRST)
    assert RoundConfig.from_json(made.to_json()).clip.clip == FIRST.clip
    with pytest.raises(MessageError):
        RoundConfig.from_json(json.dumps({**json.loads(made.to_json()), "clip": clip}))


def test_any_clip_leaves_the_price_and_the_integers_as_planned(tmp_path):
    """The smallest clip scales updates by 2**64; the sum has the planned clip's and its noise."""
    _, (report,) = fleet(tmp_path).start(clip=AdaptiveClip(clip=2.0**-64))
    deviation = PLAN.noise_multiplier * PLAN.clip
    assert np.abs(report.result.total.values * 2.0**64).max() < PLAN.cohort + 6 * deviation
    assert report.result.clip_count < 0


@pytest.mark.parametrize(("made", "clip"), [(PLAN, None), (plan(), FIRST)])
def test_a_clip_goes_with_a_plan_that_pays_for_it_and_only_with_it(tmp_path, made, clip):
    with pytest.raises(DomainError, match="quantile_noise"):
        Fleet(tmp_path, made).start(clip=clip)


@pytest.mark.parametrize(
    "damage", [None, {"target": 0.6}, {"learning_rate": 0.5}, {"clip": -1}, {"more": 1}]
)
def test_a_clip_of_another_run_is_refused(tmp_path, damage):
    path, new = tmp_path / "progress.json", Progress.begin(FIRST, entropy=SystemEntropy())
    new.keep(path, PLAN)
    record = json.loads(path.read_text())
    record["clip"] = None if damage is None else {**record["clip"], **damage}
    path.write_text(json.dumps(record))
    with pytest.raises(DataError, match=r"progress\.json"):
        new.restored(path, PLAN)
