"""The law of the noise in a fleet's sum is Sk(V), whatever the cohort and whoever drops out.

Updates are zeros, so that a sum, rotated back, is its noise, in integers. All seeded; each
chi-square test fails by chance with 1e-6, some forty of them together with less than 1e-4. On 0.1.0
the variance was up to 1.11 V and depended on both numbers.
"""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.serverapp.strategy import FedAvg
from scipy import stats

from oracles.flower_fleet import Fleet, client_app, plan
from privacy import releases

DIMENSION = 4096
CASES = [
    pytest.param(n, dropout, marks=() if (n, dropout) == (19, 0.1) else pytest.mark.slow)
    for n in (19, 20, 21, 107)
    for dropout in (0.0, 0.07, 0.1, 0.3)
]


def idle(message, context):
    return Message(RecordDict({"arrays": message.content["arrays"]}), reply_to=message)


def reports(folder, made, n, losses):
    """Return the rounds of a fleet of ``n``; in each of them as many drop out as ``losses`` say."""

    def downlink(message):
        late = message.metadata.message_type.endswith("masked_input")
        lost = (
            late and message.metadata.dst_node_id < 2 + losses[int(message.metadata.group_id) - 1]
        )
        return None if lost else message

    app = client_app(idle, entropy=releases.fresh("law"))
    limits = {**releases.FLOWER_LIMITS, "min_colluding": 0.05}
    fleet = Fleet(folder, made, app, count=n, limits=limits, budget=1e6)
    _, found = fleet.start(
        rounds=len(losses),
        strategy=FedAvg(fraction_evaluate=0.0),
        arrays=ArrayRecord({"w": Array(np.zeros(DIMENSION, dtype=np.float32))}),
        network={"downlink": downlink},
        entropy=releases.seeded("law")("server"),
    )
    return found


def noise(made, report):
    """Return the integers that the sum was in the ring."""
    release = releases.flower_release(made, report)
    y = releases.rotated(release, releases.rotation_by_library(release, report.result.participants))
    assert np.abs(y - np.rint(y)).max() < 0.01
    return np.rint(y)


def p_value(values, variance):
    law = stats.skellam(variance / 2, variance / 2)
    edges = np.unique(law.ppf(np.arange(1, 24) / 24))
    expected = np.diff(np.concatenate(([0.0], law.cdf(edges), [1.0])))
    found = np.bincount(np.searchsorted(edges, values), minlength=len(expected))
    return stats.chisquare(found, expected * len(values)).pvalue


@pytest.mark.parametrize(("n", "dropout"), CASES)
def test_the_noise_of_a_fleets_sum_is_skellam_of_the_planned_variance(tmp_path, n, dropout):
    """0 to D drop out of 19, 20 and 21; none and D of 107."""
    made = plan(cohort=n, dimension=DIMENSION, dropout=dropout, colluding=0.05, bits=12)
    most = made.tolerance.dropouts(n)
    losses = range(most + 1) if n < 100 else sorted({0, most})
    for lost, report in zip(losses, reports(tmp_path, made, n, losses), strict=True):
        assert report.failure == ""
        assert len(report.result.survivors) == n - lost
        assert p_value(noise(made, report), made.total_variance) > 1e-6
