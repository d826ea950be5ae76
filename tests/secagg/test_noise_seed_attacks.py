"""What a lying server can take from the noise: never more than the surplus of one signed set.

The server may name any survivors, deal with halves of the cohort apart, replay what it has, and
read all that its colluders hold. Whatever it opens keeps `Tolerance.survivors` whole shares.
"""

from collections import defaultdict
from functools import cache

import pytest

from oracles.rounds import cohort
from oracles.transcript import Transcript, transcript
from skellam.entropy import SystemEntropy
from skellam.errors import ProtocolError, TamperError, ThresholdError
from skellam.secagg.messages import (
    Agreement,
    Agreements,
    Opening,
    ParticipantList,
    Receipt,
    Survivors,
)
from skellam.secagg.shares import MASK_KEY, NOISE_SEED, SELF_MASK
from skellam.secagg.simulation import Stage

QUICK = (5, 6, 7, 10, 13, 20, 33)
SIZES = [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in range(5, 41)]
RING = 150


@cache
def honest(n: int, dropped: int = 0) -> Transcript:
    """All but the first ``dropped`` send vectors; the last client may collude."""
    dropouts = 20 if n == RING else int(0.3 * n)
    members = cohort(n, 2, dropouts=dropouts, colluders=1, removable=True)
    assert members.round.topology(n).complete == (n != RING)
    return transcript(members, dropouts={Stage.MASKED_INPUT: members.numbers[:dropped]})


def tolerance(done: Transcript):
    n = len(done.members.numbers)
    return n, done.members.round.tolerance


def receipts(done: Transcript, numbers) -> bytes:
    """Return the true receipts of ``numbers`` as a list of survivors."""
    any_client = next(iter(done.sent[Stage.CONSISTENCY_CHECK]))
    rows = Survivors.decode(done.received[Stage.CONSISTENCY_CHECK, any_client]).rows
    return Survivors.of(row for row in rows if Receipt.decode(row).sender in numbers).encode()


def opened_for(done: Transcript, camps: dict[int, bytes]) -> dict[tuple[int, int], set[int]]:
    """Show each client its list of survivors; return who opened which secret of whom.

    The agreements that each camp sees are all that were signed for its list, and the colluder's.
    """
    colluder = done.members.numbers[-1]
    phases, votes = {}, defaultdict(dict)
    for number, lie in camps.items():
        try:
            phases[number], vote = done.step(Stage.CONSISTENCY_CHECK, number, lie)
        except ProtocolError:
            continue
        votes[lie][number] = vote
    holders = defaultdict(set)
    for number, phase in phases.items():
        lie = camps[number]
        own = done.party(colluder).identity
        listed = {**votes[lie], colluder: Agreement(colluder).signed(own, phase.context)}
        if colluder not in Survivors.decode(lie).senders:
            del listed[colluder]
        try:
            rows = Agreements.of(listed[voter] for voter in sorted(listed)).encode()
            _, data = phase.step(rows, entropy=SystemEntropy())
        except ProtocolError:
            continue
        for share in Opening.decode(data).shares:
            holders[share.dealer, share.secret].add(number)
    for held in done.client(Stage.CONSISTENCY_CHECK, colluder).held:
        for kind in (MASK_KEY, SELF_MASK, NOISE_SEED):
            holders[held.dealer, kind].add(colluder)
    return holders


def recovered(done: Transcript, holders) -> dict[int, set[int]]:
    """Return the clients, but for the colluder, whose secret of each kind the server has."""
    n, _ = tolerance(done)
    threshold = done.members.round.topology(n).threshold
    found = {MASK_KEY: set(), SELF_MASK: set(), NOISE_SEED: set()}
    for (dealer, kind), who in holders.items():
        if len(who) >= threshold and dealer != done.members.numbers[-1]:
            found[kind].add(dealer)
    return found


def assert_nothing_but_noise_is_missing(done: Transcript, survivors, found) -> None:
    """The sum over ``survivors`` is opened; of its noise, only the surplus is known."""
    n, tolerated = tolerance(done)
    colluder = done.members.numbers[-1]
    assert found[SELF_MASK] == set(survivors) - {colluder}
    assert not found[MASK_KEY] & set(survivors)
    surplus = sorted(survivors)[tolerated.survivors(n) :]
    assert found[NOISE_SEED] == set(surplus) - {colluder}
    whole = set(survivors) - found[NOISE_SEED] - ({colluder} if colluder in surplus else set())
    assert len(whole) == tolerated.survivors(n)


@pytest.mark.parametrize("n", [*SIZES, pytest.param(RING)])
def test_an_honest_server_with_a_colluder_learns_the_seeds_of_the_surplus_alone(n):
    done = honest(n)
    shown = receipts(done, done.members.numbers)
    found = recovered(done, opened_for(done, dict.fromkeys(done.members.numbers, shown)))
    assert_nothing_but_noise_is_missing(done, done.members.numbers, found)


@pytest.mark.parametrize("n", [*SIZES, pytest.param(RING)])
def test_a_server_that_names_the_fewest_survivors_though_all_sent_opens_no_seed(n):
    done = honest(n)
    n, tolerated = tolerance(done)
    if n == RING:
        order = done.members.numbers[:: RING // tolerated.dropouts(n)][: tolerated.dropouts(n)]
        kept = [number for number in done.members.numbers if number not in order]
    else:
        kept = done.members.numbers[tolerated.dropouts(n) :]
    shown = receipts(done, kept)
    found = recovered(done, opened_for(done, dict.fromkeys(kept, shown)))
    assert_nothing_but_noise_is_missing(done, kept, found)
    assert not found[NOISE_SEED]


@pytest.mark.parametrize("n", [*SIZES, pytest.param(RING)])
def test_a_server_that_names_dropouts_as_survivors_opens_nothing(n):
    """It would remove the noise of the highest for vectors that never came."""
    _, tolerated = tolerance(honest(n))
    done = honest(n, tolerated.dropouts(n))
    numbers, alive = done.members.numbers, list(done.sent[Stage.MASKED_INPUT])
    rows = list(Survivors.decode(receipts(done, alive)).rows)
    context = done.client(Stage.CONSISTENCY_CHECK, alive[0]).context
    colluder = done.party(numbers[-1]).identity
    for absent in set(numbers) - set(alive):
        forged = Receipt(absent, bytes(32), replayable=False)
        rows.append(forged.signed(colluder, context))
    rows.sort(key=lambda row: Receipt.decode(row).sender)
    lie = Survivors.of(rows).encode()
    found = recovered(done, opened_for(done, dict.fromkeys(alive, lie)))
    assert not any(found.values())


@pytest.mark.parametrize("n", SIZES)
def test_two_sets_of_survivors_for_two_halves_open_one_sum_at_most(n):
    """For every split: of each honest client one secret at most, and one set's surplus of seeds."""
    done = honest(n)
    numbers, (_, tolerated) = done.members.numbers, tolerance(done)
    fewer = numbers[tolerated.dropouts(n) :]
    for split in range(0, n, max(1, n // 6)):
        camps = {
            number: receipts(done, numbers if i < split else fewer)
            for i, number in enumerate(numbers[:-1])
            if i < split or number in fewer
        }
        found = recovered(done, opened_for(done, camps))
        assert not found[MASK_KEY] & found[SELF_MASK]
        if not found[SELF_MASK]:
            assert not found[NOISE_SEED]
            continue
        opened = numbers if found[SELF_MASK] == set(numbers[:-1]) else fewer
        assert_nothing_but_noise_is_missing(done, opened, found)


def test_two_halves_of_a_ring_with_other_survivors_open_nothing():
    done = honest(RING)
    numbers = done.members.numbers
    camps = {
        number: receipts(done, numbers if i % 2 else numbers[1:])
        for i, number in enumerate(numbers[:-1])
        if i
    }
    assert not any(recovered(done, opened_for(done, camps)).values())


@pytest.mark.parametrize("n", [6, 20])
def test_survivors_in_another_order_do_not_move_the_rule(n):
    """The highest numbers are the surplus; a list that puts others last is no list."""
    done = honest(n)
    rows = Survivors.decode(receipts(done, done.members.numbers)).rows
    for lie in ((*rows[1:], rows[0]), (*rows, rows[0]), rows[::-1]):
        with pytest.raises(TamperError, match="out of order"):
            done.step(Stage.CONSISTENCY_CHECK, done.members.numbers[0], Survivors.of(lie).encode())


@pytest.mark.parametrize("n", [6, 20])
def test_agreements_to_one_set_do_not_open_another(n):
    done = honest(n)
    _, tolerated = tolerance(done)
    first = done.members.numbers[-2]
    fewer = done.members.numbers[tolerated.dropouts(n) :]
    unmask, _ = done.step(Stage.CONSISTENCY_CHECK, first, receipts(done, fewer))
    replayed = Agreements.decode(done.received[Stage.UNMASK, first])
    with pytest.raises(TamperError, match="did not survive"):
        unmask.step(replayed.encode(), entropy=SystemEntropy())
    unmask, _ = done.step(Stage.CONSISTENCY_CHECK, first, receipts(done, fewer))
    rows = [row for row in replayed.rows if Agreement.decode(row).sender in fewer]
    with pytest.raises(TamperError, match="signature"):
        unmask.step(Agreements.of(rows).encode(), entropy=SystemEntropy())


@pytest.mark.parametrize("n", [6, 20, 33])
def test_one_survivor_fewer_than_the_noise_needs_is_never_signed(n):
    done = honest(n)
    _, tolerated = tolerance(done)
    numbers = done.members.numbers[tolerated.dropouts(n) + 1 :]
    for number in numbers:
        with pytest.raises(ThresholdError, match="survived; that is too few"):
            done.step(Stage.CONSISTENCY_CHECK, number, receipts(done, numbers))


@pytest.mark.parametrize("n", [6, 20])
def test_a_list_of_fewer_participants_than_the_plan_allows_is_refused(n):
    """Fewer participants would make each share larger, but the plan's smallest cohort is n."""
    done = honest(n)
    first = done.members.numbers[0]
    rows = ParticipantList.decode(done.received[Stage.SHARE_KEYS, first]).rows
    with pytest.raises(ThresholdError, match=f"at least {n} must"):
        done.step(Stage.SHARE_KEYS, first, ParticipantList.of(rows[:-1]).encode())
