"""Constants of a run: their domain, their digest, and the bound on what one client can change."""

import itertools
import math
import struct
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.two_servers import constants
from skellam.errors import DomainError, MessageError, ProtocolError
from skellam.protocol import wire
from skellam.twoserver import RunLimits
from skellam.twoserver.constants import RunConstants
from skellam.twoserver.messages import Proposal

LAX = {"min_noise_multiplier": 0.0, "max_participations": 8}


@pytest.mark.parametrize(
    "changes",
    [
        {"run_id": b"short"},
        {"plan": b""},
        {"version": 2},
        {"variance": -1.0},
        {"variance": math.nan},
        {"variance": math.inf},
        {"norm_bound": -0.5},
        {"noise_by": "leader"},
        {"band": ()},
        {"band": (1, 1)},
        {"band": (2, 2, 1)},
        {"band": (3, 1, 2)},
        {"band": (4, 2)},
        {"band": (2,)},
        {"band": (0,)},
        {"band": (3, -1)},
        {"band": (70000, 1)},
        {"band": [2, 1]},
        {"bits": 1},
        {"bits": 33},
        {"length": 0},
        {"rounds": 0},
        {"participations": 0},
        {"participations": 9},
        {"separation": 0},
        {"min_cohort": 0},
    ],
)
def test_constants_outside_their_domain_are_refused(changes):
    with pytest.raises(DomainError):
        constants(**changes)


@pytest.mark.parametrize("name", ["min_noise_multiplier", "max_participations", "max_length"])
def test_limits_outside_their_domain_are_refused(name):
    with pytest.raises(DomainError):
        RunLimits(**{**LAX, name: -1})


@pytest.mark.parametrize(
    "changes",
    [
        {"run_id": b"x" * 32},
        {"variance": 3.5},
        {"norm_bound": 1.0},
        {"noise_by": "helper"},
        {"band": (2, 1)},
        {"band": (1, 0)},
        {"participations": 3},
        {"separation": 2},
        {"bits": 13},
        {"length": 6},
        {"rounds": 9},
        {"min_cohort": 3},
        {"plan": b"q" * 32},
        {"leader_key": b"l" * 32},
        {"helper_key": b"h" * 32},
    ],
)
def test_every_constant_is_in_the_digest(changes):
    assert constants(**changes).digest != constants().digest


def test_digests_are_over_the_layout_that_is_documented():
    """The bytes of docs/maths/two_servers.md, written by hand."""
    run = constants(band=(3, 2, 1), leader_key=b"l" * 32, helper_key=b"h" * 32, noise_by="helper")
    layout = b"".join(
        [
            b"r" * 32,
            struct.pack(">Hdd", 1, 3.0, 2.0),
            b"\x01",
            struct.pack(">IHHH", 3, 3, 2, 1),
            struct.pack(">II", 4, 1),
            struct.pack(">BIIH", 12, 5, 8, 2),
            b"p" * 32 + b"l" * 32 + b"h" * 32,
        ]
    )
    digest = sha256(b"skellam/twoserver/run/" + layout).digest()
    assert run.digest == digest
    bound = sha256(b"skellam/twoserver/round/" + digest + struct.pack(">Q", 3) + b"i" * 32).digest()
    assert run.round_digest(3, b"i" * 32) == bound


def test_minus_zero_is_zero():
    assert constants(variance=-0.0).digest == constants(variance=0.0).digest


@pytest.mark.parametrize("bad", ["8000000000000000", "7ff8000000000000", "7ff0000000000000"])
def test_numbers_have_one_encoding_on_the_wire(bad):
    data = Proposal(constants(variance=1.0), bytes(1216)).encode()
    assert data.count(bytes.fromhex("3ff0000000000000")) == 1
    with pytest.raises(MessageError, match="finite and not negative"):
        Proposal.decode(data.replace(bytes.fromhex("3ff0000000000000"), bytes.fromhex(bad)))


def test_constants_on_the_wire_are_checked_like_those_in_memory():
    body = wire.body(constants(bits=12, length=5))
    data = Proposal(constants(bits=12, length=5), bytes(1216)).encode()
    assert body in data
    at = body.index(bytes([12, 0, 0, 0, 5]))
    bad = body[:at] + bytes([99]) + body[at + 1 :]
    with pytest.raises(MessageError, match="bits must be an integer in"):
        Proposal.decode(data.replace(body, bad))


def columns(band, times, rounds):
    total = np.zeros(rounds)
    for t in times:
        for j, c in enumerate(band):
            if t + j < rounds:
                total[t + j] += c
    return float(np.linalg.norm(total))


@given(
    band=st.sampled_from([(1,), (2, 1), (3, 2, 1), (4, 3, 3, 2, 1), (5, 4, 4, 4, 4, 4)]),
    participations=st.integers(1, 4),
    separation=st.integers(1, 6),
)
def test_the_sensitivity_bounds_every_pattern_and_is_exact_for_a_wide_separation(
    band, participations, separation
):
    """All patterns in ten rounds, all vectors of one client alike (the worst, as all c_j >= 0)."""
    rounds = 10
    run = constants(
        band=band,
        participations=participations,
        separation=separation,
        rounds=rounds,
        norm_bound=1.0,
    )
    patterns = [
        times
        for k in range(participations + 1)
        for times in itertools.combinations(range(rounds), k)
        if all(b - a >= separation for a, b in itertools.pairwise(times))
    ]
    worst = max(columns(band, times, rounds) for times in patterns)
    assert worst <= run.sensitivity * (1 + 1e-12)
    if separation >= len(band) and (participations - 1) * separation + len(band) <= rounds:
        assert worst == pytest.approx(run.sensitivity)


def test_the_noise_multiplier_is_deviation_over_sensitivity():
    run = constants(variance=64.0, norm_bound=2.0, participations=4, band=(4, 3), separation=2)
    assert run.sensitivity == pytest.approx(2 * 2 * 5)
    assert run.noise_multiplier == pytest.approx(8 / 20)
    RunLimits(**{**LAX, "min_noise_multiplier": 0.4}).require(run)
    with pytest.raises(ProtocolError, match=r"min_noise_multiplier: the run has 0\.4, 0\.41"):
        RunLimits(**{**LAX, "min_noise_multiplier": 0.41}).require(run)
    assert constants(norm_bound=0.0).noise_multiplier == math.inf
    assert isinstance(run, RunConstants)
