import tempfile
from pathlib import Path

import pytest
from torch import nn

import skellam as sk
from oracles.sabotage import SABOTAGES
from oracles.tiny_task import task
from skellam import audit

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def in_memory(monkeypatch):
    """Keep the folders of hundreds of runs where fsync costs nothing."""
    if Path("/dev/shm").is_dir():
        monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")


def examine(trials, aggregate=None, **changes):
    settings = {"dimension": 12, "clip": 1.0, "rounds": 2, "bits": 12, **changes}
    return audit.training(
        task(6, model=nn.Linear(4, 3, bias=False)),
        sk.Plan(**settings).calibrated(epsilon=0.7, delta=0.1),
        trials=trials,
        confidence=0.999,
        entropy=sk.SeededEntropy(bytes(32), "tests/audit"),
        **({} if aggregate is None else {"aggregate": aggregate}),
    )


@pytest.mark.parametrize(
    "sampling", [{"sampling": "all", "cohort": 6}, {"cohort": 5, "population": 6}], ids=str
)
def test_real_training_passes(sampling):
    """A sound run fails with probability 0.001 at most, over all seeds; these pass."""
    found = examine(160, **sampling)
    assert found.verdict is audit.Verdict.CONSISTENT


@pytest.mark.parametrize("kind", SABOTAGES)
def test_sabotaged_training_is_caught(kind):
    found = examine(160, SABOTAGES[kind](2), sampling="all", cohort=6)
    assert found.verdict is audit.Verdict.VIOLATED
