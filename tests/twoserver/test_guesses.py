"""A helper that guesses at vectors from all that it is sent does no better than chance.

It knows every seed, hence every mask: for a guess at a vector it knows the masked vector, byte for
byte. One hash or signature of the masked vector among what it is sent would confirm the guess.
"""

from dataclasses import replace
from hashlib import blake2b, sha256, sha512

import numpy as np
import pytest

from oracles.two_servers import INPUT, begin, entropy, play, vector
from skellam.errors import TamperError
from skellam.twoserver import helper, ring
from skellam.twoserver.messages import (
    Contribution,
    Job,
    Report,
    contribution_context,
    report_info,
    seed_info,
)

RUN = begin(2, variance=4.0)
CONSTANTS = RUN.leader.constants
BOUND = CONSTANTS.round_digest(0, INPUT)
TARGET, OTHER = RUN.clients


def round_with(x, context):
    given = {TARGET: x, OTHER: vector(CONSTANTS, 1)}
    return play(RUN, 0, given, context=context)


def candidate(job, x):
    """Return the contribution that the helper would expect if the target's vector were ``x``."""
    row = job.entries[0]
    sealed, signature = row["sealed"].tobytes(), row["signature"].tobytes()
    seed = RUN.helper.secrets.key.unseal(sealed, seed_info(BOUND, TARGET))
    masked = ring.masked(x.values, [ring.mask_key(seed, BOUND, TARGET)], CONSTANTS)
    packed = ring.to_wire(masked, CONSTANTS)
    return Contribution(TARGET, sealed, signature, True, packed)


def windows(data, size):
    return {data[at : at + size] for at in range(len(data) - size + 1)}


def confirmed(view, part):
    """Return whether anything in ``view`` is a hash of, or a signature under, the candidate."""
    payload = part.encode()[:-64]
    texts = [part.masked, payload, part.encode(), ring.from_wire(part.masked, CONSTANTS).tobytes()]
    texts += [label + text for text in texts for label in (BOUND, TARGET.to_bytes(8, "big"))]
    hashes = {h(text).digest()[:32] for text in texts for h in (sha256, sha512, blake2b)}
    if part.masked in view or hashes & windows(view, 32):
        return True
    return any(verifies(payload, signature) for signature in signatures(view))


def signatures(view):
    """Return what may be signatures: wherever 64 bytes end an entry or the message."""
    return {view[at - 64 : at] for at in range(len(view), 64, -1240)} | {view[-64:]}


def verifies(payload, signature):
    try:
        RUN.helper_setting.roster.verify(TARGET, contribution_context(BOUND), payload, signature)
    except TamperError:
        return False
    return True


def test_the_helpers_guesses_are_no_better_than_chance_and_the_first_drafts_were_all_right():
    """In 200 rounds the target has one of two vectors that the helper itself chose.

    The helper finds no evidence in what it is sent. Given in addition what only the leader is
    sent (the first draft of this protocol sent the helper such a signature) it is always right.
    """
    pair = [vector(CONSTANTS, 2), vector(CONSTANTS, 3)]
    bits = np.random.default_rng(4).integers(0, 2, 200)
    evidence, drafts = 0, 0
    for trial, bit in enumerate(bits):
        played = round_with(pair[bit], f"guess/{trial}")
        job = Job.decode(played.job)
        parts = [candidate(job, x) for x in pair]
        evidence += any(confirmed(played.job, part) for part in parts)
        inner = RUN.leader.run.secrets.key.unseal(
            Report.decode(played.reports[TARGET]).sealed, report_info(BOUND, TARGET)
        )
        guess = [confirmed(played.job + inner[-64:], part) for part in parts]
        drafts += guess == [bit == 0, bit == 1]
    assert (evidence, drafts) == (0, 200)


def test_all_that_the_helper_is_sent_follows_from_seeds_and_coins_of_seals():
    """The same seeds with another vector: the job differs only by the coins of the seals.

    Each sealed seed is replaced by the seed, and each signature, which is over a sealed seed, by
    whether it is true; what is left is equal, bit by bit.
    """
    one = round_with(vector(CONSTANTS, 5), "same")
    other = round_with(vector(CONSTANTS, 6), "same")
    assert one.reports != other.reports
    assert reduced(one.job) == reduced(other.job)


def reduced(data):
    job = Job.decode(data)
    key, roster = RUN.helper.secrets.key, RUN.helper_setting.roster
    entries = []
    for row in job.entries:
        sender, sealed = int(row["sender"]), row["sealed"].tobytes()
        helper.require_entry(roster, BOUND, sender, sealed, row["signature"].tobytes())
        entries.append((sender, key.unseal(sealed, seed_info(BOUND, sender))))
    rest = replace(job, entries=job.entries[:0]).encode()[:-64]
    return entries, rest


def test_the_helper_cannot_open_what_is_sealed_to_the_leader():
    """Whoever ends TLS for the leader and works for the helper reads no vector."""
    played = round_with(vector(CONSTANTS, 5), "tls")
    sealed = Report.decode(played.reports[TARGET]).sealed
    for info in (report_info(BOUND, TARGET), seed_info(BOUND, TARGET)):
        with pytest.raises(TamperError):
            RUN.helper.secrets.key.unseal(sealed, info)


def test_the_leader_cannot_open_what_is_sealed_to_the_helper():
    played = round_with(vector(CONSTANTS, 5), "leader")
    sealed = Job.decode(played.job).entries[0]["sealed"].tobytes()
    for info in (report_info(BOUND, TARGET), seed_info(BOUND, TARGET)):
        with pytest.raises(TamperError):
            RUN.leader.run.secrets.key.unseal(sealed, info)


def test_a_masked_vector_tells_nothing_about_the_vector():
    """The same vector under 400 seeds: every bit of every residue is fair; false alarm 1e-6."""
    x = vector(CONSTANTS, 7)
    rows = []
    for trial in range(400):
        seed = entropy(f"fair/{trial}")
        octets = np.empty(32, np.uint8)
        seed.fill(octets)
        rows.append(ring.masked(x.values, [ring.mask_key(octets.tobytes(), BOUND, 1)], CONSTANTS))
    bits = (np.array(rows)[..., None] >> np.arange(12)) & 1
    z = (bits.mean(axis=0) - 0.5) * 2 * np.sqrt(400)
    assert np.abs(z).max() < 5.7
