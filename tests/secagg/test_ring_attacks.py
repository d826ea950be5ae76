"""Lies on the ring, where a client verifies only its neighbours' entries and a sample of the rest.

A lie far away is found by those whom it is near, and without them nobody opens anything.
"""

from contextlib import suppress
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from oracles.rounds import cohort
from oracles.transcript import Transcript, transcript
from skellam.entropy import SeededEntropy, SystemEntropy
from skellam.errors import ProtocolError, TamperError, ThresholdError
from skellam.secagg.graph import graph, sparsest
from skellam.secagg.messages import (
    Agreement,
    Agreements,
    Delivery,
    ParticipantList,
    Participants,
    Receipt,
    Survivors,
    extend,
    participants_of,
)
from skellam.secagg.shares import envelope_bytes, proof_bytes, verify_envelope
from skellam.secagg.simulation import Stage

N, DROPOUTS, FAR = 150, 20, 80
MEMBERS = cohort(N, 2, dropouts=DROPOUTS, colluders=1, min_participants=N - 1)
SHAPE = MEMBERS.round.topology(N)
NUMBERS = MEMBERS.numbers
A = NUMBERS[0]


@cache
def honest() -> Transcript:
    return transcript(MEMBERS)


@cache
def peers() -> Participants:
    agree = honest().client(Stage.CONSISTENCY_CHECK, A)
    return Participants(agree.ids, agree.participants, MEMBERS.round)


def around_ring() -> list[int]:
    return [NUMBERS[place] for place in peers().graph.order]


def taken(stage: Stage, messages_in: dict[int, bytes]) -> tuple[dict, set[int]]:
    """Return what clients do with their messages_in, and who refuses."""
    went_on, refused = {}, set()
    for number, message in messages_in.items():
        try:
            went_on[number] = honest().step(stage, number, message)
        except ProtocolError:
            refused.add(number)
    return went_on, refused


def holders(of: Participants, number: int) -> set[int]:
    return set(of.ids[of.holders(of.index(number))].tolist())


def with_row(listing, number: int, change) -> bytes:
    rows = [change(row) if NUMBERS[i] == number else row for i, row in enumerate(listing.rows)]
    return type(listing).of(rows).encode()


def flipped(row: bytes) -> bytes:
    return row[:20] + bytes([row[20] ^ 1]) + row[21:]


def test_the_cohort_is_a_ring_whose_clients_know_few_others():
    assert not SHAPE.complete
    assert SHAPE.degree < N / 2
    assert SHAPE.sample < N / 2


def test_a_forged_advertisement_is_refused_by_all_its_neighbours_and_then_too_few_deal():
    listed = ParticipantList.decode(honest().received[Stage.SHARE_KEYS, A])
    forged = NUMBERS[FAR]
    lie = with_row(listed, forged, flipped)
    shown, refused = taken(Stage.SHARE_KEYS, dict.fromkeys(NUMBERS, lie))
    assert refused == holders(participants_of(lie, MEMBERS.round), forged)
    left = [NUMBERS.index(number) for number in shown]
    assert len(left) == N - 1 - SHAPE.degree < SHAPE.survivors


def test_one_client_shown_another_entry_far_away_opens_no_envelope_of_the_others():
    listed = ParticipantList.decode(honest().received[Stage.SHARE_KEYS, A])
    for number in NUMBERS[1:]:
        lie = with_row(listed, number, flipped)
        if number not in holders(participants_of(lie, MEMBERS.round), A):
            break
    mask, _ = honest().step(Stage.SHARE_KEYS, A, lie)
    with pytest.raises(TamperError):
        mask.step(honest().received[Stage.MASKED_INPUT, A], MEMBERS.vectors[A])


def test_one_client_shown_a_shorter_list_opens_no_envelope_of_the_others():
    rows = ParticipantList.decode(honest().received[Stage.SHARE_KEYS, A]).rows
    mask, _ = honest().step(Stage.SHARE_KEYS, A, ParticipantList.of(rows[:-1]).encode())
    assert mask.participants == N - 1
    with pytest.raises(TamperError):
        mask.step(honest().received[Stage.MASKED_INPUT, A], MEMBERS.vectors[A])


def test_an_envelope_on_the_ring_is_proved_for_its_own_holder_and_for_none_of_the_others():
    """The holder's place among the dealer's neighbours is the verifier's to compute."""
    dealer = honest().client(Stage.MASKED_INPUT, A).near[0].number
    size, each = envelope_bytes(2), envelope_bytes(2) + proof_bytes(SHAPE.degree)
    row = Delivery.decode(honest().received[Stage.MASKED_INPUT, A]).envelopes[:each]
    believed = []
    for holder in NUMBERS:
        with suppress(TamperError):
            verify_envelope(
                row[:size],
                row[size:],
                dealer=dealer,
                holder=holder,
                peers=peers(),
                roster=honest().roster,
            )
            believed.append(holder)
    assert believed == [A]


def agreements(context: bytes, signers: set[int], named: list[int]) -> bytes:
    """Return agreements in the names of ``named``, those of others than ``signers`` false."""
    entries = []
    for number in sorted(named):
        own = honest().party(number).identity
        true = number in signers
        entries.append(Agreement(number).signed(own, context if true else bytes(32)))
    return Agreements.of(entries).encode()


def test_a_survivor_without_a_vector_is_refused_by_all_its_neighbours_and_then_nobody_opens():
    """Each of the others finds it in its sample of 62 but for 0.75^62 = 2e-8."""
    survivors = Survivors.decode(honest().received[Stage.CONSISTENCY_CHECK, A])
    absent = NUMBERS[FAR]
    lie = with_row(survivors, absent, flipped)
    signing, refused = taken(Stage.CONSISTENCY_CHECK, dict.fromkeys(NUMBERS, lie))
    assert refused == holders(peers(), absent)
    unmask, _ = signing[next(iter(signing))]
    state = unmask.to_bytes()
    few = agreements(unmask.context, set(signing), list(signing))
    padded = agreements(unmask.context, set(signing), NUMBERS)
    for lie, error in ((few, ThresholdError), (padded, TamperError)):
        again = type(unmask).from_bytes(state, unmask.setting)
        with pytest.raises(error):
            again.step(lie, entropy=SystemEntropy())


def test_two_halves_of_the_ring_with_other_survivors_each_open_nothing():
    """Each half has a true signature of every second name; 62 draws miss that but for 2^-61."""
    ring, survivors = around_ring(), Survivors.decode(honest().received[Stage.CONSISTENCY_CHECK, A])
    halves = set(ring[: N // 2]), set(ring[N // 2 :])
    refusals = 0
    for half, others in (halves, halves[::-1]):
        dead = [number for number in ring if number in others][:: N // 2 // DROPOUTS + 1]
        kept = [row for row in survivors.rows if Receipt.decode(row).sender not in dead]
        shown, refused = taken(
            Stage.CONSISTENCY_CHECK, dict.fromkeys(half, Survivors.of(kept).encode())
        )
        assert not refused
        named = [number for number in NUMBERS if number not in dead]
        context = next(iter(shown.values()))[0].context
        lie = agreements(context, half, named)
        for unmask, _ in shown.values():
            assert unmask.context == context
            with pytest.raises(TamperError, match="signature"):
                unmask.step(lie, entropy=SystemEntropy())
            refusals += 1
    assert refusals == N


def test_agreement_withheld_below_the_threshold_opens_nothing():
    context = honest().client(Stage.UNMASK, A).context
    enough = agreements(context, set(NUMBERS), NUMBERS[: SHAPE.survivors])
    honest().step(Stage.UNMASK, A, enough)
    fewer = agreements(context, set(NUMBERS), NUMBERS[: SHAPE.survivors - 1])
    with pytest.raises(ThresholdError, match="agree on the survivors"):
        honest().step(Stage.UNMASK, A, fewer)


def test_which_agreements_a_client_verifies_is_its_own_secret():
    """One false signature of 150 is in some samples and not in others: 24 seeds show both."""
    unmask = honest().client(Stage.UNMASK, A)
    lie, state = agreements(unmask.context, set(NUMBERS[:-1]), NUMBERS), unmask.to_bytes()
    found = set()
    for seed in range(24):
        again = type(unmask).from_bytes(state, unmask.setting)
        try:
            again.step(lie, entropy=SeededEntropy(bytes([seed] * 32), "coins"))
            found.add("missed")
        except TamperError:
            found.add("found")
    assert found == {"missed", "found"}


def test_agreement_in_the_context_of_other_survivors_is_not_agreement():
    unmask = honest().client(Stage.UNMASK, A)
    other = extend(honest().client(Stage.CONSISTENCY_CHECK, A).context, b"survivors", b"others")
    with pytest.raises(TamperError, match="signature"):
        unmask.step(agreements(other, set(NUMBERS), NUMBERS), entropy=SystemEntropy())


# The theorem of docs/maths/ring.md, on rings alone


def reach(n: int, half: int) -> np.ndarray:
    """Return, for each place, the places of its closed neighbourhood."""
    return (np.arange(n)[:, None] + np.arange(-half, half + 1)) % n


def revealed(shape, alive, false, colluding) -> bool:
    """Return whether some part of the true honest survivors is opened and no mask leaves it."""
    n, half = shape.participants, shape.degree // 2
    near = reach(n, half)
    true = alive & ~false & ~colluding
    signs = true & ~false[near].any(axis=1)
    opened = (signs | colluding)[near].sum(axis=1) >= shape.threshold
    places = np.flatnonzero(true)
    cuts = np.flatnonzero(np.diff(places, append=places[0] + n) > half) + 1
    if not len(cuts):
        return bool(opened[places].all())
    parts = np.split(np.listed(opened[places], -cuts[0]), cuts[1:] - cuts[0])
    return any(part.all() for part in parts)


def ring_holds(shape, alive) -> bool:
    ring = replace(graph(shape, bytes(32)), order=np.arange(shape.participants))
    return ring.holds_together(alive)


@pytest.mark.parametrize(("n", "dropouts", "colluders"), [(300, 40, 2), (1000, 50, 10)])
@pytest.mark.parametrize("seed", range(12))
def test_no_false_survivor_leaves_a_part_that_can_be_opened(n, dropouts, colluders, seed):
    """Dead and colluding crowd around the false, as far as honest clients accept the survivors."""
    rng = np.random.default_rng(seed)
    shape = sparsest(n, dropouts=dropouts, colluders=colluders)
    alive, false, colluding = np.ones((3, n), dtype=bool)
    false[:] = colluding[:] = False
    near = rng.permutation(2 * shape.degree) - shape.degree
    false[near[: rng.integers(1, 4)]] = True
    colluding[[i for i in near if not false[i]][:colluders]] = True
    assert revealed(shape, alive, np.zeros(n, dtype=bool), colluding)
    assert not revealed(shape, alive, false, colluding)
    for i in sorted(near, key=lambda i: (abs(i), i)) if seed % 2 else near:
        if not (false[i] or colluding[i]) and (~alive).sum() < dropouts:
            alive[i] = False
            alive[i] = not ring_holds(shape, alive)
            assert not revealed(shape, alive, false, colluding)


def test_with_one_share_fewer_the_last_honest_before_a_false_survivor_would_be_opened():
    """So the bound on the threshold is the least that the proof allows."""
    shape = sparsest(300, dropouts=40, colluders=2)
    n, run, half = 300, shape.run, shape.degree // 2
    alive = np.ones(n, dtype=bool)
    alive[-run + 1 :] = False
    colluding = np.zeros(n, dtype=bool)
    colluding[[-1, -2]] = alive[[-1, -2]] = True
    assert ring_holds(shape, alive)
    signs = alive & ~colluding
    signs[reach(n, half)[0]] = False
    given = int((signs | colluding)[reach(n, half)[-run]].sum())
    assert given == shape.threshold - 1
