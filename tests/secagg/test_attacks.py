"""Lies, one a test: by the server, by the network, by dealers and holders of shares.

None makes a wrong sum pass, none makes a client open both secrets of a peer, and where somebody
can be blamed, it is by name.
"""

from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.rounds import SEED, cohort
from oracles.transcript import dealt, step, transcript
from skellam.entropy import SeededEntropy, SystemEntropy
from skellam.errors import ProtocolError, TamperError, ThresholdError
from skellam.secagg import Identity, Party, Roster, RoundParameters, SeenRounds, client
from skellam.secagg.channel import seal
from skellam.secagg.messages import (
    Advertisement,
    Agreement,
    Agreements,
    Delivery,
    KeyShares,
    MaskedVector,
    Opening,
    ParticipantList,
    Participants,
    Receipt,
    Survivors,
    extend,
    given_digest,
)
from skellam.secagg.shares import (
    MASK_KEY,
    NOISE_SEED,
    SELF_MASK,
    Held,
    MerkleTree,
    commit_secret,
    deal,
    envelope_bytes,
    proof_bytes,
    verify_envelope,
)
from skellam.secagg.simulation import FaultScript, Stage

HONEST = transcript(cohort(6, 4, dropouts=2, colluders=1, removable=True))
NUMBERS = HONEST.members.numbers
A, B, C, D, E, F = NUMBERS
ROUND = HONEST.members.round
# Points of low order, from https://cr.yp.to/ecdh.html#validate; X25519 does not read the top bit.
LOW_ORDER = [
    bytes.fromhex(text)
    for text in (
        "00" * 32,
        "01" + "00" * 31,
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    )
]


def identity(number: int) -> Identity:
    return HONEST.party(number).identity


def list_without(number: int) -> bytes:
    entries = ParticipantList.decode(HONEST.received[Stage.SHARE_KEYS, A]).rows
    return ParticipantList.of(
        tuple(e for e in entries if Advertisement.decode(e).sender != number)
    ).encode()


def survivors_without(*numbers: int) -> bytes:
    entries = Survivors.decode(HONEST.received[Stage.CONSISTENCY_CHECK, A]).rows
    kept = tuple(e for e in entries if Receipt.decode(e).sender not in numbers)
    return Survivors.of(kept).encode()


# Who takes part


def with_entry(entry: bytes, honest=HONEST) -> bytes:
    """Return the list with ``entry``, in place of its sender's own if that is there."""
    entries = ParticipantList.decode(honest.received[Stage.SHARE_KEYS, A]).rows
    sender = Advertisement.decode(entry).sender
    everybody = (*(e for e in entries if Advertisement.decode(e).sender != sender), entry)
    return ParticipantList.of(
        tuple(sorted(everybody, key=lambda e: Advertisement.decode(e).sender))
    ).encode()


def advertisement(who: Identity, this: RoundParameters, context: str = "sybil") -> bytes:
    roster = Roster({who.number: who.public})
    entropy = SeededEntropy(SEED, context)
    advertise = client.AdvertiseKeys(Party(this, roster, who))
    return advertise.step(seen=SeenRounds(), entropy=entropy)[1]


def test_a_cohort_overstated_by_strangers_is_refused():
    stranger = Identity.generate(1000, entropy=SystemEntropy())
    with pytest.raises(TamperError, match="not on the roster") as caught:
        HONEST.step(Stage.SHARE_KEYS, A, with_entry(advertisement(stranger, ROUND)))
    assert caught.value.culprit == 1000


def test_a_cohort_overstated_with_a_forged_key_is_refused():
    absent = transcript(cohort(7, 4, dropouts=2, colluders=1, min_participants=6, removable=True))
    last = absent.members.numbers[-1]
    forger = Identity.generate(last, entropy=SystemEntropy())
    with pytest.raises(TamperError, match="signature"):
        absent.step(
            Stage.SHARE_KEYS, A, with_entry(advertisement(forger, absent.members.round), absent)
        )


def test_a_cohort_overstated_with_advertisements_of_another_round_is_refused():
    absent = transcript(cohort(7, 4, dropouts=2, colluders=1, min_participants=6, removable=True))
    known = absent.members.identities[-1]
    earlier = replace(absent.members.round, round_id=b"earlier".ljust(32))
    with pytest.raises(TamperError, match="signature"):
        absent.step(Stage.SHARE_KEYS, A, with_entry(advertisement(known, earlier), absent))


def test_a_participant_counted_twice_is_refused():
    entries = ParticipantList.decode(HONEST.received[Stage.SHARE_KEYS, A]).rows
    with pytest.raises(TamperError, match="twice"):
        HONEST.step(Stage.SHARE_KEYS, A, ParticipantList.of((*entries, entries[-1])).encode())


def test_a_list_that_replaces_a_key_is_refused():
    entries = list(ParticipantList.decode(HONEST.received[Stage.SHARE_KEYS, A]).rows)
    ad = Advertisement.decode(entries[1])
    for forged in (replace(ad, mask_key=b"k" * 32), replace(ad, channel_key=b"k" * 32)):
        entries[1] = forged.encode()
        with pytest.raises(TamperError, match="signature"):
            HONEST.step(Stage.SHARE_KEYS, A, ParticipantList.of(tuple(entries)).encode())


def test_a_list_that_leaves_the_client_out_or_changes_its_own_entry_is_refused():
    small = transcript(cohort(6, 4, dropouts=2, min_participants=5))
    others = ParticipantList.of(
        ParticipantList.decode(small.received[Stage.SHARE_KEYS, A]).rows[1:]
    ).encode()
    with pytest.raises(TamperError, match="does not take part"):
        small.step(Stage.SHARE_KEYS, A, others)
    other = advertisement(identity(A), ROUND, context="another advertisement")
    entries = ParticipantList.decode(HONEST.received[Stage.SHARE_KEYS, A]).rows
    with pytest.raises(TamperError, match="another advertisement"):
        HONEST.step(Stage.SHARE_KEYS, A, ParticipantList.of((other, *entries[1:])).encode())


def test_a_list_below_the_least_cohort_is_refused():
    with pytest.raises(ThresholdError, match="at least 6"):
        HONEST.step(Stage.SHARE_KEYS, A, list_without(F))


def test_clients_who_were_shown_different_lists_open_none_of_each_others_envelopes():
    honest = transcript(cohort(7, 4, dropouts=2, colluders=1, min_participants=6))
    entries = ParticipantList.decode(honest.received[Stage.SHARE_KEYS, A]).rows
    shorter = ParticipantList.of(entries[:-1]).encode()
    mask, _ = honest.step(Stage.SHARE_KEYS, A, shorter)
    _, theirs = honest.step(Stage.SHARE_KEYS, B)
    delivery = Delivery.decode(honest.received[Stage.MASKED_INPUT, A])
    with pytest.raises(TamperError):
        mask.step(
            replace(delivery, dealers=delivery.dealers[:-1]).encode(), honest.members.vectors[A]
        )
    assert theirs == honest.sent[Stage.SHARE_KEYS][B]


def test_clients_who_were_shown_different_models_cannot_aggregate():
    members = HONEST.members
    misled = replace(ROUND, model=b"another model".ljust(32))
    party = Party(misled, HONEST.roster, identity(A))
    _, data, _ = client.AdvertiseKeys(party).step(
        seen=SeenRounds(), entropy=SeededEntropy(SEED, "misled")
    )
    with pytest.raises(ThresholdError):
        HONEST.serve(Stage.ADVERTISE_KEYS, {A: data})
    entries = ParticipantList.decode(HONEST.received[Stage.SHARE_KEYS, B]).rows
    with pytest.raises(TamperError, match="signature"):
        HONEST.step(Stage.SHARE_KEYS, B, ParticipantList.of((data, *entries[1:])).encode())
    assert members.round.digest != misled.digest


# Shares


SIZE = envelope_bytes(3)
EACH = SIZE + proof_bytes(5)
CONTEXT = HONEST.client(Stage.MASKED_INPUT, A).context
PEERS = Participants(HONEST.client(Stage.MASKED_INPUT, A).ids, CONTEXT, ROUND)


def boxed(number: int, honest=HONEST) -> list[bytes]:
    """Return the envelopes that came for ``number``, each with what proves it."""
    octets = Delivery.decode(honest.received[Stage.MASKED_INPUT, number]).envelopes
    return [octets[at : at + EACH] for at in range(0, len(octets), EACH)]


def changed_delivery(number: int, change) -> bytes:
    delivery = Delivery.decode(HONEST.received[Stage.MASKED_INPUT, number])
    return replace(delivery, envelopes=b"".join(change(boxed(number)))).encode()


def own_envelope(number: int) -> bytes:
    """Return the envelope that ``number`` dealt to its first neighbour, under their common key."""
    return KeyShares.decode(HONEST.sent[Stage.SHARE_KEYS][number]).envelopes[:SIZE]


def proof_of_own(number: int) -> bytes:
    sent = KeyShares.decode(HONEST.sent[Stage.SHARE_KEYS][number])
    return sent.signature + MerkleTree(sent, SIZE).paths()[0]


def spoilt(row: bytes) -> bytes:
    """Return the row with the last byte of its envelope, which is in the seal, changed."""
    return row[: SIZE - 1] + bytes([row[SIZE - 1] ^ 1]) + row[SIZE:]


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: [rows[1], rows[0], *rows[2:]],
        lambda rows: [rows[1], *rows[1:]],
        lambda rows: rows[1:],
        lambda rows: [*rows, rows[-1]],
        lambda rows: [boxed(C)[1], *rows[1:]],
        lambda rows: [boxed(C)[1][:SIZE] + rows[0][SIZE:], *rows[1:]],
        lambda rows: [rows[1][:SIZE] + rows[0][SIZE:], *rows[1:]],
        lambda rows: [spoilt(rows[0]), *rows[1:]],
        lambda rows: [spoilt(rows[0])[:SIZE] + rows[1][SIZE:], *rows[1:]],
        lambda rows: [spoilt(rows[0])[:-32] + bytes(32), *rows[1:]],
        lambda rows: [*rows[:-1], spoilt(rows[-1])[:-32]],
        lambda rows: [*rows[:-1], rows[-1][:-32]],
        lambda rows: [own_envelope(A) + rows[0][SIZE:], *rows[1:]],
        lambda rows: [own_envelope(A) + proof_of_own(A), *rows[1:]],
    ],
    ids=[
        "swapped",
        "repeated",
        "missing",
        "surplus",
        "another holder's",
        "another holder's with the own proof",
        "another dealer's with the own proof",
        "altered",
        "altered with another dealer's proof",
        "altered with another path",
        "altered with a truncated path",
        "a truncated path",
        "its own to that neighbour",
        "its own to that neighbour with the own proof",
    ],
)
def test_swapped_replayed_altered_and_missing_envelopes_are_refused_and_blame_nobody(change):
    with pytest.raises(TamperError) as caught:
        HONEST.step(Stage.MASKED_INPUT, A, changed_delivery(A, change))
    assert caught.value.culprit is None


def earlier_round():
    members = cohort(6, 4, dropouts=2, colluders=1, removable=True)
    return transcript(replace(members, round=replace(members.round, round_id=b"old".ljust(32))))


def test_an_envelope_of_an_earlier_round_is_refused_and_blames_nobody():
    stale = boxed(A, earlier_round())[0]
    with pytest.raises(TamperError, match="signature") as caught:
        HONEST.step(Stage.MASKED_INPUT, A, changed_delivery(A, lambda rows: [stale, *rows[1:]]))
    assert caught.value.culprit is None


def proved(row: bytes, dealer: int = B, holder: int = A, peers: Participants = PEERS) -> bool:
    """Return whether somebody who knows the roster and the list believes that it was dealt."""
    try:
        verify_envelope(
            row[:SIZE], row[SIZE:], dealer=dealer, holder=holder, peers=peers, roster=HONEST.roster
        )
    except TamperError:
        return False
    return True


def test_every_envelope_is_proved_to_anybody_for_its_dealer_and_holder_alone():
    for holder in NUMBERS:
        for dealer, row in zip([n for n in NUMBERS if n != holder], boxed(holder), strict=True):
            found = [(d, h) for d in NUMBERS for h in NUMBERS if proved(row, d, h)]
            assert found == [(dealer, holder)]


@pytest.mark.parametrize("clients", [2, 3, 4, 5, 8, 9, 130])
def test_envelopes_are_proved_in_trees_of_every_shape(clients):
    honest = transcript(cohort(clients, 1))
    state = honest.client(Stage.MASKED_INPUT, A)
    peers = Participants(state.ids, state.context, honest.members.round)
    size, near = envelope_bytes(2), len(state.near)
    each = size + proof_bytes(near)
    octets = Delivery.decode(honest.received[Stage.MASKED_INPUT, A]).envelopes
    assert len(octets) == near * each
    for at, dealer in enumerate(state.near):
        row = octets[at * each : (at + 1) * each]
        about = {"dealer": dealer.number, "holder": A, "peers": peers, "roster": honest.roster}
        verify_envelope(row[:size], row[size:], **about)
        with pytest.raises(TamperError, match="signature"):
            verify_envelope(row[1:size] + row[:1], row[size:], **about)


@settings(max_examples=200)
@given(data=st.data())
def test_fuzzed_envelopes_and_proofs_are_never_believed(data):
    rows = [row for number in (A, B) for row in boxed(number)]
    one, other = (data.draw(st.sampled_from(rows)) for _ in range(2))
    start, end = sorted(data.draw(st.integers(0, EACH)) for _ in range(2))
    middle = data.draw(st.sampled_from([other[start:end], b"", bytes(end - start)]) | st.binary())
    mixed = one[:start] + middle + one[end:]
    dealer, holder = (data.draw(st.sampled_from(NUMBERS)) for _ in range(2))
    dealers = [n for n in NUMBERS if n != holder]
    honest = dealer != holder and boxed(holder)[dealers.index(dealer)] == mixed
    assert proved(mixed, dealer, holder) == honest


def test_no_proof_with_a_changed_byte_or_of_another_length_is_believed():
    row = boxed(A)[0]
    assert proved(row)
    for at in range(len(row)):
        assert not proved(row[:at] + bytes([row[at] ^ 1]) + row[at + 1 :])
    for other in (row[:-32], row[:-1], row + bytes(32), row[: SIZE + 64], row[:SIZE]):
        assert not proved(other)


def test_a_proof_is_not_believed_in_another_round_or_for_another_list():
    row, earlier = boxed(A)[0], earlier_round()
    assert not proved(boxed(A, earlier)[0])
    assert not proved(
        row, peers=replace(PEERS, context=earlier.client(Stage.MASKED_INPUT, A).context)
    )
    grown = np.append(PEERS.ids, np.uint64(1000))
    assert not proved(row, peers=replace(PEERS, ids=grown))


def test_neither_a_node_of_the_tree_nor_the_commitments_pass_as_an_envelope():
    """With the siblings of B's first envelope, a node's content is no leaf one level above."""
    row = boxed(A)[0]
    leaf = sha256(b"skellam/secagg/envelope" + row[:SIZE]).digest()
    signature, path = row[SIZE : SIZE + 64], row[SIZE + 64 :]
    for inner in (path[:32] + leaf, leaf + path[:32], b"skellam/secagg/node" + path[:32] + leaf):
        assert not proved(inner.ljust(SIZE, b"\0") + signature + path[32:] + bytes(32))
        with pytest.raises(TamperError):
            verify_envelope(
                inner,
                signature + path[32:] + path[:32],
                dealer=B,
                holder=A,
                peers=PEERS,
                roster=HONEST.roster,
            )
    sent = KeyShares.decode(HONEST.sent[Stage.SHARE_KEYS][B])
    first = len(sent.secrets).to_bytes(4, "big") + sent.secrets + sent.own
    assert not proved(first.ljust(SIZE, b"\0") + row[SIZE:])


def test_a_dealer_who_signs_two_trees_proves_each_and_no_mixture_of_them():
    sent = KeyShares.decode(HONEST.sent[Stage.SHARE_KEYS][B])
    other = replace(sent, envelopes=sent.envelopes[::-1])
    octets = Delivery.decode(
        HONEST.serve(Stage.SHARE_KEYS, {B: dealt(other, identity(B), CONTEXT)})[1][A]
    ).envelopes
    first, second = boxed(A)[0], octets[:EACH]
    cuts = (SIZE, SIZE + 64)
    parts = [[row[: cuts[0]], row[cuts[0] : cuts[1]], row[cuts[1] :]] for row in (first, second)]
    mixtures = {
        pick: b"".join(parts[p][i] for i, p in enumerate(pick))
        for pick in product((0, 1), repeat=3)
    }
    assert [pick for pick, row in mixtures.items() if proved(row)] == [(0, 0, 0), (1, 1, 1)]


def dealt_badly(number: int, change) -> bytes:
    """Return A's delivery in which ``number`` sealed a bundle that it did not commit to."""
    mask = HONEST.client(Stage.MASKED_INPUT, number)
    to = next(near for near in mask.near if near.number == A)
    honest = HONEST.client(Stage.CONSISTENCY_CHECK, A)
    bundle = change(next(held.bundle for held in honest.held if held.dealer == number))
    sealed = seal(to.channel, number, A, bundle, nonce=bytes(12))
    sent = KeyShares.decode(HONEST.sent[Stage.SHARE_KEYS][number])
    envelopes = sent.envelopes[:96] + sealed + sent.envelopes[SIZE:]
    lie = dealt(replace(sent, envelopes=envelopes), identity(number), mask.context)
    return HONEST.serve(Stage.SHARE_KEYS, {number: lie})[1][A]


@pytest.mark.parametrize(
    "change",
    [
        lambda bundle: bundle[:40] + bytes([bundle[40] ^ 1]) + bundle[41:],
        lambda bundle: bytes([bundle[0] ^ 1]) + bundle[1:],
        lambda bundle: bundle[:66] + bundle[32:66] + bundle[100:],
    ],
    ids=["share", "blind", "another secret's share"],
)
def test_a_dealer_who_seals_other_shares_than_it_committed_to_is_named(change):
    delivery = dealt_badly(C, change)
    with pytest.raises(TamperError, match="did not commit") as caught:
        HONEST.step(Stage.MASKED_INPUT, A, delivery)
    assert caught.value.culprit == C
    octets = Delivery.decode(delivery).envelopes
    assert proved(octets[EACH : 2 * EACH], dealer=C)


def test_a_dealer_whose_envelope_cannot_be_opened_is_named():
    sent = KeyShares.decode(HONEST.sent[Stage.SHARE_KEYS][C])
    lie = dealt(replace(sent, envelopes=bytes(len(sent.envelopes))), identity(C), CONTEXT)
    _, boxes = HONEST.serve(Stage.SHARE_KEYS, {C: lie})
    for holder in (A, B, D, E, F):
        with pytest.raises(TamperError, match="did not commit") as caught:
            HONEST.step(Stage.MASKED_INPUT, holder, boxes[holder])
        assert caught.value.culprit == C


def test_envelopes_that_were_exchanged_on_their_way_to_the_server_do_not_count():
    """The network swaps two of C's envelopes, or its commitments: C is not to blame for that."""
    sent = KeyShares.decode(HONEST.sent[Stage.SHARE_KEYS][C])
    octets = sent.envelopes
    swapped = octets[SIZE : 2 * SIZE] + octets[:SIZE] + octets[2 * SIZE :]
    lies = [
        replace(sent, envelopes=swapped),
        replace(sent, envelopes=octets[:-SIZE]),
        replace(sent, secrets=sent.secrets + sent.own[:32], own=sent.own[32:]),
        replace(sent, sender=B),
        KeyShares.decode(earlier_round().sent[Stage.SHARE_KEYS][C]),
    ]
    for lie in lies:
        following, boxes = HONEST.serve(Stage.SHARE_KEYS, {C: lie.encode()})
        assert [fault.culprit for fault in following.faults] == [None]
        assert sorted(boxes) == [A, B, D, E, F]


def test_a_holder_whose_dealer_slips_it_another_envelope_on_the_way_is_not_taken_for_a_liar():
    """C seals other shares for A, commits to them in the envelope, and has the network swap it in.

    A finds nothing wrong, so it would open shares that are not in the tree that the server has.
    """
    mask = HONEST.client(Stage.MASKED_INPUT, C)
    channel = next(near.channel for near in mask.near if near.number == A)
    held = Held(C, bytes(32 + 3 * 34))
    sealed = seal(channel, C, A, held.bundle, nonce=bytes(12))
    slipped = held.commitments(CONTEXT, A) + sealed
    lie = changed_delivery(A, lambda rows: [rows[0], slipped + rows[1][SIZE:], *rows[2:]])
    _, data = HONEST.step(Stage.MASKED_INPUT, A, lie)
    following, _ = HONEST.serve(Stage.MASKED_INPUT, {A: data})
    assert following.summed.survivors.tolist() == NUMBERS[1:]
    assert [fault.culprit for fault in following.faults] == [None]


@pytest.mark.parametrize(("liar", "kind"), [(C, SELF_MASK), (F, SELF_MASK), (F, NOISE_SEED)])
def test_a_dealer_whose_shares_do_not_give_its_secret_is_named(liar, kind):
    """It commits to one secret and shares another, consistently: only the opening can tell."""
    context = HONEST.client(Stage.MASKED_INPUT, liar).context
    message = KeyShares.decode(HONEST.sent[Stage.SHARE_KEYS][liar])
    other = commit_secret(context, liar, kind, b"another secret".ljust(32))
    secrets = message.secrets[: 32 * (kind - 1)] + other + message.secrets[32 * kind :]
    lie = dealt(replace(message, secrets=secrets), identity(liar), context)

    def uplink(stage, number, data):
        return lie if (stage, number) == (Stage.SHARE_KEYS, liar) else data

    with pytest.raises(TamperError, match="committed") as caught:
        replay(HONEST.members, uplink)
    assert caught.value.culprit == liar


def test_a_dealer_who_shares_another_mask_key_than_it_advertised_is_named():
    members = HONEST.members

    def lying_deal(secrets, peers, index, *, entropy):
        wrong = (b"another key".ljust(32), *secrets[1:]) if int(peers.ids[index]) == C else secrets
        return deal(wrong, peers, index, entropy=entropy)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("skellam.secagg.client.deal", lying_deal)
        with pytest.raises(TamperError, match="advertised") as caught:
            members.run(FaultScript(dropouts={Stage.MASKED_INPUT: [C]}))
    assert caught.value.culprit == C


def replay(members, uplink):
    """Run the round with the honest transcript's entropy, with messages changed on the way."""
    phases = {number: HONEST.client(Stage.ADVERTISE_KEYS, number) for number in members.numbers}
    phase = HONEST.server(Stage.ADVERTISE_KEYS)
    outgoing = b""
    for stage in Stage:
        sent = []
        for number in members.numbers:
            message = outgoing[number] if isinstance(outgoing, dict) else outgoing
            phases[number], data = step(members, phases[number], stage, number, message)
            sent.append(uplink(stage, number, data))
        result = phase.step(sent)
        if stage is Stage.UNMASK:
            return result
        phase, outgoing = result
    raise AssertionError


def opening_of(number: int, change) -> bytes:
    opening = Opening.decode(HONEST.sent[Stage.UNMASK][number])
    context = HONEST.client(Stage.UNMASK, number).context
    return replace(opening, shares=tuple(change(list(opening.shares)))).signed(
        identity(number), context
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda shares: [shares[0]._replace(share=shares[1].share), *shares[1:]],
        lambda shares: [shares[0]._replace(blind=bytes(32)), *shares[1:]],
        lambda shares: [shares[0]._replace(secret=MASK_KEY), *shares[1:]],
        lambda shares: [shares[0]._replace(dealer=9999), *shares[1:]],
        lambda shares: shares[1:],
        lambda shares: [shares[1], shares[0], *shares[2:]],
        lambda shares: [*shares, shares[-1]],
    ],
    ids=["wrong share", "wrong blind", "other secret", "stranger", "missing", "swapped", "twice"],
)
def test_a_holder_who_opens_wrong_shares_is_named_and_the_sum_still_comes_out(change):
    outcome = HONEST.serve(Stage.UNMASK, {B: opening_of(B, change)})
    assert outcome.total.values.tolist() == HONEST.members.plain_sum(NUMBERS)
    assert [fault.culprit for fault in outcome.faults] == [B]


def test_too_many_wrong_openings_raise():
    wrong = {n: opening_of(n, lambda shares: shares[1:]) for n in (A, B, C)}
    with pytest.raises(ThresholdError):
        HONEST.serve(Stage.UNMASK, wrong)


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize("stage", Stage)
def test_a_step_that_raises_carries_the_faults_of_all_that_did_not_count(stage):
    """One message more than the round bears is false; each names its sender and its index."""
    wrong = {n: flipped(HONEST.sent[stage][n]) for n in (A, B, D)}
    if stage is Stage.MASKED_INPUT:
        wrong = {n: HONEST.sent[stage][n][:-1] for n in (A, B, D)}
    with pytest.raises(ThresholdError) as caught:
        HONEST.serve(stage, wrong)
    assert [fault.index for fault in caught.value.faults] == [0, 1, 3]


@pytest.mark.parametrize("field", ["channel_key", "mask_key"])
@pytest.mark.parametrize("key", LOW_ORDER, ids=bytes.hex)
def test_a_key_of_low_order_does_not_count_and_names_its_sender(field, key):
    advert = Advertisement.decode(HONEST.sent[Stage.ADVERTISE_KEYS][C])
    lie = replace(advert, **{field: key}).signed(identity(C), ROUND.digest)
    with pytest.raises(ThresholdError, match="5 take part") as caught:
        HONEST.serve(Stage.ADVERTISE_KEYS, {C: lie})
    (fault,) = caught.value.faults
    assert (fault.reason, fault.culprit) == ("a public key is of low order", C)


@pytest.mark.parametrize(
    "change",
    [
        lambda sent: replace(sent, envelopes=sent.envelopes[SIZE:]),
        lambda sent: replace(sent, envelopes=sent.envelopes[:-1]),
        lambda sent: replace(sent, envelopes=sent.envelopes + sent.envelopes[:SIZE]),
        lambda sent: replace(sent, envelopes=b""),
        lambda sent: replace(sent, envelopes=b"", own=b"", secrets=b""),
        lambda sent: replace(sent, own=sent.own[32:]),
        lambda sent: replace(sent, secrets=sent.secrets[32:]),
    ],
    ids=[
        "an envelope short",
        "a byte short",
        "an envelope more",
        "no envelope",
        "nothing",
        "own commitments short",
        "secrets short",
    ],
)
def test_key_shares_that_have_not_the_form_of_the_round_count_as_not_sent(change):
    sent = KeyShares.decode(HONEST.sent[Stage.SHARE_KEYS][C])
    lie = dealt(change(sent), identity(C), CONTEXT, secrets=3)
    following, boxes = HONEST.serve(Stage.SHARE_KEYS, {C: lie})
    assert [fault.culprit for fault in following.faults] == [C]
    assert sorted(boxes) == [A, B, D, E, F]
    kept = type(following).from_bytes(following.to_bytes(), following.setting)
    assert kept.faults == following.faults


def test_a_message_out_of_turn_does_not_count():
    """F shared no keys; its vector, however well signed, is in nobody's masks."""
    members = cohort(6, 4, dropouts=2, colluders=1)
    honest = transcript(members, dropouts={Stage.SHARE_KEYS: [F]})
    context = honest.client(Stage.CONSISTENCY_CHECK, A).context
    vector = bytes(8)
    receipt = Receipt(F, sha256(vector).digest(), replayable=False)
    late = MaskedVector(receipt.signed(honest.party(F).identity, context), vector).encode()
    following, _ = honest.serve(Stage.MASKED_INPUT, {F: late})
    assert [fault.culprit for fault in following.faults] == [F]
    assert following.summed.survivors.tolist() == [A, B, C, D, E]


# Vectors


def test_a_message_sent_twice_counts_once_and_names_its_sender():
    for stage in Stage:
        honest = list(HONEST.sent[stage].values())
        result = HONEST.server(stage).step([*honest, honest[0]])
        faults = result.faults if stage is Stage.UNMASK else result[0].faults
        assert [fault.culprit for fault in faults] == [A]


def test_a_second_vector_of_the_same_sender_is_not_added():
    other = replace(HONEST.members.vectors[A], values=HONEST.members.vectors[B].values)
    _, second = HONEST.step(Stage.MASKED_INPUT, A, vector=other)
    following, survivors = HONEST.server(Stage.MASKED_INPUT).step(
        [*HONEST.sent[Stage.MASKED_INPUT].values(), second]
    )
    assert survivors == HONEST.received[Stage.CONSISTENCY_CHECK, A]
    assert following.summed.total == HONEST.server(Stage.CONSISTENCY_CHECK).summed.total


@pytest.mark.parametrize("vector", [b"", bytes(6), bytes(10)])
def test_a_vector_of_the_wrong_length_is_not_added(vector):
    context = HONEST.client(Stage.CONSISTENCY_CHECK, A).context
    receipt = Receipt(A, sha256(vector).digest(), replayable=False)
    lie = MaskedVector(receipt.signed(identity(A), context), vector).encode()
    following, _ = HONEST.serve(Stage.MASKED_INPUT, {A: lie})
    assert [fault.culprit for fault in following.faults] == [A]
    assert following.summed.survivors.tolist() == NUMBERS[1:]


def test_residues_beyond_the_modulus_are_not_added():
    honest = transcript(cohort(4, 3, bits=12, dropouts=1))
    context = honest.client(Stage.CONSISTENCY_CHECK, A).context
    vector = np.array([4096, 0, 0], dtype="<u2").tobytes()
    delivered = honest.server(Stage.MASKED_INPUT).shared.delivered[0]
    receipt = Receipt(A, given_digest(delivered, vector), replayable=False)
    lie = MaskedVector(receipt.signed(honest.party(A).identity, context), vector).encode()
    following, _ = honest.serve(Stage.MASKED_INPUT, {A: lie})
    assert [fault.culprit for fault in following.faults] == [A]


def test_a_vector_exchanged_on_the_way_is_not_added():
    masked = MaskedVector.decode(HONEST.sent[Stage.MASKED_INPUT][A])
    other = MaskedVector.decode(HONEST.sent[Stage.MASKED_INPUT][B])
    following, _ = HONEST.serve(
        Stage.MASKED_INPUT, {A: replace(masked, vector=other.vector).encode()}
    )
    assert following.summed.survivors.tolist() == NUMBERS[1:]
    assert len(following.faults) == 1


# Survivors


def test_a_survivor_that_gave_no_vector_cannot_be_claimed():
    """The server would remove noise that the absent client never added."""
    lacking = transcript(
        cohort(6, 4, dropouts=2, colluders=1, removable=True), dropouts={Stage.MASKED_INPUT: [F]}
    )
    entries = Survivors.decode(lacking.received[Stage.CONSISTENCY_CHECK, A]).rows
    forged = Receipt(F, bytes(32), replayable=False)
    context = lacking.client(Stage.CONSISTENCY_CHECK, A).context
    claims = [forged.encode(), forged.signed(replace(identity(A), number=F), context)]
    lies = [Survivors.of((*entries, claim)).encode() for claim in claims]
    for lie in lies:
        with pytest.raises(TamperError, match="signature"):
            lacking.step(Stage.CONSISTENCY_CHECK, A, lie)


def test_a_survivor_set_below_the_threshold_is_refused():
    HONEST.step(Stage.CONSISTENCY_CHECK, A, survivors_without(E, F))
    with pytest.raises(ThresholdError):
        HONEST.step(Stage.CONSISTENCY_CHECK, A, survivors_without(D, E, F))


def test_a_survivor_set_without_the_client_itself_is_refused():
    with pytest.raises(TamperError, match="survivors are not"):
        HONEST.step(Stage.CONSISTENCY_CHECK, A, survivors_without(A))


def test_a_survivor_who_did_not_deal_is_refused():
    members = cohort(6, 4, dropouts=2, colluders=1)
    honest = transcript(members, dropouts={Stage.SHARE_KEYS: [F]})
    context = honest.client(Stage.CONSISTENCY_CHECK, A).context
    receipt = Receipt(F, bytes(32), replayable=False).signed(honest.party(F).identity, context)
    entries = Survivors.decode(honest.received[Stage.CONSISTENCY_CHECK, A]).rows
    with pytest.raises(TamperError, match="survivors are not"):
        honest.step(Stage.CONSISTENCY_CHECK, A, Survivors.of((*entries, receipt)).encode())


def agreed(context: bytes, numbers) -> bytes:
    return Agreements.of(tuple(Agreement(n).signed(identity(n), context) for n in numbers)).encode()


@pytest.mark.parametrize("shown", range(5))
def test_a_peer_named_alive_to_some_and_dead_to_others_keeps_one_of_its_secrets(shown):
    """The server splits the honest and its colluder E signs both sets: one camp opens at most."""
    alive, dead = survivors_without(), survivors_without(F)
    camps = {n: (alive if at < shown else dead) for at, n in enumerate((A, B, C, D))} | {F: alive}
    camps_that_open = set()
    for number, lie in camps.items():
        unmask, _ = HONEST.step(Stage.CONSISTENCY_CHECK, number, lie)
        voters = sorted([E, *(n for n in camps if camps[n] == lie)])
        with suppress(ThresholdError):
            unmask.step(agreed(unmask.context, voters), entropy=SystemEntropy())
            camps_that_open.add(lie)
    assert len(camps_that_open) <= 1


def test_agreement_to_another_set_of_survivors_is_not_agreement():
    unmask, _ = HONEST.step(Stage.CONSISTENCY_CHECK, A)
    other = extend(HONEST.client(Stage.CONSISTENCY_CHECK, A).context, b"survivors", b"others")
    with pytest.raises(TamperError, match="signature"):
        unmask.step(agreed(other, NUMBERS), entropy=SystemEntropy())


def test_agreements_are_counted_once_and_below_the_threshold_nothing_is_opened():
    context = HONEST.client(Stage.UNMASK, A).context
    entry = Agreement(B).signed(identity(B), context)
    with pytest.raises(TamperError, match="twice"):
        HONEST.step(Stage.UNMASK, A, Agreements.of((entry,) * 4).encode())
    with pytest.raises(ThresholdError, match="agree on the survivors"):
        HONEST.step(Stage.UNMASK, A, agreed(context, NUMBERS[:3]))
    HONEST.step(Stage.UNMASK, A, agreed(context, NUMBERS[:4]))


def test_agreement_by_the_dead_does_not_count():
    unmask, _ = HONEST.step(Stage.CONSISTENCY_CHECK, A, survivors_without(E, F))
    with pytest.raises(TamperError, match="did not survive"):
        unmask.step(agreed(unmask.context, NUMBERS), entropy=SystemEntropy())


def test_a_row_that_its_sender_never_signed_blames_nobody():
    """The server adds a survivor who takes no part, or lets an honest client that is dead agree."""
    rows = Survivors.decode(HONEST.received[Stage.CONSISTENCY_CHECK, A]).rows
    row = Receipt(1000, bytes(32), replayable=False).encode()
    with pytest.raises(TamperError, match="without taking part") as caught:
        HONEST.step(Stage.CONSISTENCY_CHECK, A, Survivors.of((*rows, row)).encode())
    assert caught.value.culprit is None
    unmask, _ = HONEST.step(Stage.CONSISTENCY_CHECK, A, survivors_without(F))
    agreements = Agreements.decode(agreed(unmask.context, NUMBERS[:-1])).rows
    lie = Agreements.of((*agreements, Agreement(F).encode())).encode()
    with pytest.raises(TamperError, match="did not survive") as caught:
        unmask.step(lie, entropy=SystemEntropy())
    assert caught.value.culprit is None


def test_dealers_too_few_out_of_order_or_unknown_are_refused():
    delivery = Delivery.decode(HONEST.received[Stage.MASKED_INPUT, A])
    lies = [[0, 1, 2], [0, 1, 2, 3, 5, 4], [0, 1, 2, 3, 4, 4], [0, 1, 2, 3, 4, 6], [1, 2, 3, 4, 5]]
    for dealers in lies:
        lie = replace(delivery, dealers=np.array(dealers, dtype="<u2"))
        with pytest.raises((TamperError, ThresholdError)):
            HONEST.step(Stage.MASKED_INPUT, A, lie.encode())


def test_clients_who_were_shown_different_dealers_do_not_count_as_survivors_together():
    delivery = Delivery.decode(HONEST.received[Stage.MASKED_INPUT, A])
    fewer = Delivery(delivery.dealers[:-1], delivery.envelopes[:-EACH]).encode()
    _, data = HONEST.step(Stage.MASKED_INPUT, A, fewer)
    following, _ = HONEST.serve(Stage.MASKED_INPUT, {A: data})
    assert following.summed.survivors.tolist() == NUMBERS[1:]
    entries = Survivors.decode(HONEST.received[Stage.CONSISTENCY_CHECK, B]).rows
    mixed = Survivors.of((MaskedVector.decode(data).receipt, *entries[1:])).encode()
    with pytest.raises(TamperError, match="signature"):
        HONEST.step(Stage.CONSISTENCY_CHECK, B, mixed)


def test_an_arc_of_the_ring_declared_dead_is_refused_by_every_client():
    members = cohort(150, 2, dropouts=20, colluders=1)
    honest = transcript(members)
    shape = members.round.topology(150)
    assert not shape.complete
    agree = honest.client(Stage.CONSISTENCY_CHECK, A)
    ring = Participants(agree.ids, agree.participants, members.round).graph
    start = int(ring.positions[members.numbers.index(A)]) + 1
    run = {int(agree.ids[ring.order[(start + i) % 150]]) for i in range(shape.run)}
    assert len(run) <= members.round.tolerance.dropouts(150)
    entries = Survivors.decode(honest.received[Stage.CONSISTENCY_CHECK, A]).rows
    kept = tuple(e for e in entries if Receipt.decode(e).sender not in run)
    with pytest.raises(ThresholdError, match="one part of the ring"):
        honest.step(Stage.CONSISTENCY_CHECK, A, Survivors.of(kept).encode())


# What is opened


def opened(outcome_of):
    """Return, for each dealer, the kinds of all secrets of which any share was opened."""
    kinds = {}
    for data in outcome_of.sent[Stage.UNMASK].values():
        for share in Opening.decode(data).shares:
            kinds.setdefault(share.dealer, set()).add(share.secret)
    return kinds


@pytest.mark.parametrize("dropped", [[], [B], [F], [B, E], [E, F]])
def test_only_what_the_signed_survivors_allow_is_opened(dropped):
    members = cohort(6, 4, dropouts=2, colluders=1, removable=True)
    done = transcript(members, dropouts={Stage.MASKED_INPUT: dropped})
    survivors = [number for number in NUMBERS if number not in dropped]
    removed = survivors[4:]
    for dealer, kinds in opened(done).items():
        if dealer in dropped:
            assert kinds == {MASK_KEY}
        else:
            assert kinds == ({SELF_MASK, NOISE_SEED} if dealer in removed else {SELF_MASK})
    assert done.outcome.noise_seeds == {
        number: done.client(Stage.MASKED_INPUT, number).noise_seed for number in removed
    }
    assert done.outcome.total.messages == len(survivors)


def test_masked_vectors_of_a_round_share_nothing_with_those_of_its_replay():
    """Keys are fresh: the same vector is masked anew, so two rounds' difference says nothing."""
    members = HONEST.members
    first = members.run(context="first")
    second = members.run(context="second")
    assert first.total.values.tolist() == second.total.values.tolist()
    seen = {}

    def keep(context):
        def uplink(stage, number, data):
            if stage is Stage.MASKED_INPUT:
                seen[context, number] = MaskedVector.decode(data).vector
            return data

        return uplink

    members.run(FaultScript(uplink=keep("first")), context="first")
    members.run(FaultScript(uplink=keep("second")), context="second")
    assert len(set(seen.values())) == 12


def test_errors_carry_no_data():
    with pytest.raises(ProtocolError) as caught:
        HONEST.step(Stage.MASKED_INPUT, A, b"\x01\x05" + bytes(8) + b"secret")
    assert "secret" not in str(caught.value)
