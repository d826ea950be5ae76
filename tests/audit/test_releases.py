import math
import subprocess
import sys

import pytest

import skellam as sk
from oracles.sabotage import SABOTAGES
from skellam import audit
from skellam.engines import local
from skellam.errors import DomainError, InfeasibleError

ENTROPY = "tests/audit"


def plan(**changes):
    settings = {
        "dimension": 4,
        "clip": 1.0,
        "cohort": 3,
        "rounds": 2,
        "bits": 12,
        "sampling": "all",
        **changes,
    }
    return sk.Plan(**settings).calibrated(epsilon=1, delta=0.1)


def examine(made, trials, **options):
    entropy = sk.SeededEntropy(bytes(32), ENTROPY)
    return audit.codec(made, trials=trials, confidence=0.999, entropy=entropy, **options)


def test_the_real_rounds_pass():
    """A sound mechanism fails with probability 0.001 at most, over all seeds; this one passes."""
    found = examine(plan(), 400)
    assert found.verdict is audit.Verdict.CONSISTENT
    assert 0 <= found.lower <= found.claimed <= 1.0001
    assert found.max_epsilon > 3


@pytest.mark.parametrize("kind", SABOTAGES)
def test_sabotage_is_caught(kind):
    """The least of them is a quarter of the noise, for which test_evidence states the power."""
    made = plan()
    found = examine(made, 240, aggregate=SABOTAGES[kind](made.rounds))
    assert found.verdict is audit.Verdict.VIOLATED
    assert found.lower > found.claimed


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"rounding": "unbiased", "bits": 8},
        {"dropout": 0.34},
        {"noise": "central-skellam"},
        {"noise": "distributed-discrete-gaussian", "rounding": "conditional"},
        {"noise": "gaussian"},
        {"dimension": 1, "rounds": 1},
    ],
    ids=str,
)
def test_every_real_mechanism_passes(changes):
    found = examine(plan(**changes), 600)
    assert found.verdict is audit.Verdict.CONSISTENT


@pytest.mark.slow
def test_the_whole_protocol_passes():
    found = examine(plan(rounds=1), 150, aggregate=local.secure)
    assert found.verdict is audit.Verdict.CONSISTENT


def test_an_audit_that_could_not_catch_anything_is_refused():
    with pytest.raises(InfeasibleError, match="take more trials"):
        examine(plan(), 20)


def test_another_delta_asks_another_point_of_the_claim():
    found = examine(plan(rounds=1), 60, delta=0.2)
    assert found.delta == 0.2
    assert found.claimed < 1


@pytest.mark.parametrize(
    "wrong", [{"confidence": 1.0}, {"confidence": math.nan}, {"trials": 1}, {"delta": 0.0}]
)
def test_nonsense_is_refused(wrong):
    options = {"trials": 400, "confidence": 0.999, **wrong}
    with pytest.raises(DomainError, match=next(iter(wrong))):
        audit.codec(plan(), entropy=sk.SystemEntropy(), **options)


def test_an_audit_says_in_one_sentence_what_it_found():
    found = audit.Audit(
        lower=2.0, claimed=1.0, delta=0.1, confidence=0.999, trials=400, max_epsilon=3.05
    )
    assert str(found).startswith("violated: epsilon is at least 2 with confidence 0.999")
    assert found.as_dict()["verdict"] == "violated"


def test_importing_the_audit_imports_nothing_heavy():
    code = (
        "import sys, skellam.audit;"
        "print({'torch', 'scipy', 'matplotlib', 'numba'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
