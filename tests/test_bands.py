"""Bands: sensitivities over all patterns, responses, and both against jax_privacy."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import correlated_rounds
from skellam import bands
from skellam.errors import DomainError, ShapeError

HERE = Path(__file__).parent
GOLDEN = json.loads((HERE / "vectors" / "jax_privacy_bands.json").read_text())
NEVER = 1 << 30


@st.composite
def any_band(draw, max_length=6, max_step=4):
    steps = draw(st.lists(st.integers(0, max_step), max_size=max_length - 1))
    tail = np.cumsum(steps)[::-1].tolist()
    first = (tail[0] if tail else 0) + draw(st.integers(1, max_step))
    divisor = math.gcd(first, *tail)
    return tuple(c // divisor for c in (first, *tail))


@pytest.mark.parametrize("band", [(), (1, 1), (3, 1, 2), (4, 2), (0,), (3, -1), (1 << 16, 1)])
def test_what_is_no_band_is_refused(band):
    with pytest.raises((DomainError, ShapeError)):
        bands.require_band(band)


@given(
    band=any_band(),
    rounds=st.integers(1, 9),
    participations=st.integers(1, 5),
    separation=st.integers(1, 7),
)
def test_the_sensitivity_is_the_largest_over_all_patterns(band, rounds, participations, separation):
    found = bands.squared_sensitivity(
        band, participations=participations, separation=separation, rounds=rounds
    )
    assert found == correlated_rounds.max_squared_norm(band, rounds, participations, separation)


@given(band=any_band(), participations=st.integers(1, 5), separation=st.integers(1, 7))
def test_without_a_last_round_every_participation_counts_in_full(band, participations, separation):
    asked = {"participations": participations, "separation": separation}
    unlimited = bands.squared_sensitivity(band, **asked)
    enough = (participations - 1) * separation + len(band)
    assert unlimited == bands.squared_sensitivity(band, **asked, rounds=enough)
    assert unlimited == bands.squared_sensitivity(band, **asked, rounds=NEVER)
    if separation >= len(band):
        assert unlimited == participations * sum(c * c for c in band)
    shorter = [bands.squared_sensitivity(band, **asked, rounds=t) for t in range(1, enough + 1)]
    assert shorter == sorted(shorter)


@given(
    band=any_band(),
    rounds=st.integers(1, 9),
    participations=st.integers(1, 4),
    separation=st.integers(1, 7),
    seed=st.integers(0, 1 << 30),
)
def test_unequal_vectors_in_unequal_rounds_move_the_sums_by_less(
    band, rounds, participations, separation, seed
):
    """Vectors of both signs in three dimensions, at random rounds that keep the separation."""
    rng = np.random.default_rng(seed)
    shift = np.zeros((rounds + len(band), 3))
    t, moved = int(rng.integers(rounds)), 0
    while t < rounds and moved < participations:
        vector = rng.normal(size=3)
        shift[t : t + len(band)] += np.outer(band, vector / np.linalg.norm(vector))
        t, moved = t + separation + int(rng.integers(3)), moved + 1
    shift = shift[:rounds]
    asked = {"participations": participations, "separation": separation}
    bound = bands.squared_sensitivity(band, **asked, rounds=rounds)
    assert (shift**2).sum() <= bound * (1 + 1e-12)
    assert np.linalg.norm(shift, axis=1).max() <= bands.peak(band, **asked) * (1 + 1e-12)
    touched = bands.touched_rounds(band, participations=participations, rounds=rounds)
    assert (np.abs(shift).sum(axis=1) > 0).sum() <= touched


@given(band=any_band(max_length=12), rounds=st.integers(1, 60))
def test_responses_invert_the_band_and_a_round_never_counts_more_than_once(band, rounds):
    response = bands.responses(band, np.eye(1, rounds)[0])
    assert np.allclose(np.convolve(band, response)[:rounds], np.eye(1, rounds)[0], atol=1e-9)
    assert np.abs(band[0] * response).max() <= 1 + 1e-9
    renewals = band[0] * bands.responses(band, bands.workload(rounds))
    assert (renewals > -1e-9).all()
    assert (renewals < 1 + 1e-9).all()


def test_equal_first_coefficients_never_forget():
    response = bands.responses((1, 1), np.eye(1, 100)[0])
    assert np.array_equal(response, (-1.0) ** np.arange(100))


def test_momentum_weighs_an_estimate_as_the_server_does():
    from skellam.federated import fedavg

    server = fedavg(momentum=0.7)
    zeros, one = np.zeros(1, dtype=np.float32), np.ones(1, dtype=np.float32)
    state = server.init(zeros)
    models = []
    for t in range(12):
        state = server.apply(state, one if t == 0 else zeros)
        models.append(float(state.model[0]))
    assert bands.workload(12, 0.7) == pytest.approx(models, rel=1e-5)
    assert np.array_equal(bands.workload(5), np.ones(5))


def test_variances_are_those_of_the_inverse_matrix():
    band, rounds = (5, 3, 2, 2), 20
    matrix = sum(c * np.eye(rounds, k=-j) for j, c in enumerate(band))
    inverse = np.linalg.inv(matrix)
    weights = bands.workload(rounds, 0.5)
    server = sum(weights[j] * np.eye(rounds, k=-j) for j in range(rounds))
    assert bands.estimate_variances(band, rounds=rounds) == pytest.approx((inverse**2).sum(axis=1))
    assert bands.model_variances(band, rounds=rounds, momentum=0.5) == pytest.approx(
        ((server @ inverse) ** 2).sum(axis=1)
    )


def compare(found):
    for row in found["bands"]:
        band, rounds = tuple(row["band"]), row["rounds"]
        squared = bands.squared_sensitivity(
            band,
            participations=row["participations"],
            separation=row["separation"],
            rounds=rounds,
        )
        assert math.sqrt(squared) == pytest.approx(row["sensitivity"], rel=1e-12)
        variances = bands.model_variances(band, rounds=rounds)
        assert [variances.mean(), variances[-1]] == pytest.approx(row["errors"], rel=1e-9)


def test_sensitivities_and_errors_are_those_of_jax_privacy():
    assert len(GOLDEN["bands"]) == 12
    compare(GOLDEN)


@pytest.mark.slow
def test_jax_privacy_still_gives_the_golden_values(tmp_path):
    """In an environment of its own: about a minute, most of it for the installation."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path], check=True, timeout=60)
    python = tmp_path / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", "jax-privacy==2.0.0"]
    environment = {key: os.environ[key] for key in os.environ if key != "PYTHONPATH"}
    subprocess.run(install, check=True, timeout=300, env=environment)
    program = [python, HERE / "oracles" / "jax_privacy_bands.py", "--quick"]
    printed = subprocess.run(
        program, check=True, timeout=200, capture_output=True, text=True, env=environment
    ).stdout
    found = json.loads(printed)
    assert found["jax-privacy"] == GOLDEN["jax-privacy"]
    compare(found)
    for row, golden in zip(found["optimised"], GOLDEN["optimised"], strict=False):
        assert row["toeplitz"] == pytest.approx(golden["toeplitz"], rel=1e-3)
