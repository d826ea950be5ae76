"""Attacks by leader, helper, clients and the network: each is refused, and the culprit named."""

from dataclasses import replace

import numpy as np
import pytest

from oracles.two_servers import (
    INPUT,
    begin,
    constants,
    entropy,
    inputs,
    plain_sum,
    play,
    sign_job,
    vector,
    vectors,
)
from skellam.entropy import random_bytes
from skellam.errors import (
    DomainError,
    MessageError,
    PhaseError,
    ProtocolError,
    TamperError,
    ThresholdError,
)
from skellam.protocol.identity import Identity, Roster
from skellam.twoserver import RunLimits, client, helper, leader, simulation
from skellam.twoserver.chain import Chain
from skellam.twoserver.keys import ServerSecrets, seal
from skellam.twoserver.messages import (
    ENTRY,
    Answer,
    Contribution,
    Forget,
    Job,
    Proposal,
    Refusal,
    Rejection,
    Report,
    RoundStart,
    RunOffer,
    contribution_context,
    helper_context,
    leader_context,
    proposal_context,
    report_info,
    sign_entry,
)

FIRST, SECOND, THIRD, FOURTH = 100, 107, 114, 121


@pytest.fixture(scope="module")
def run():
    return begin(4)


@pytest.fixture(scope="module")
def played(run):
    return play(run, 0, vectors(run, 0))


def job_of(played, **changes):
    """Return the round's job with ``changes``, signed by a leader who cheats."""
    return sign_job(played.run, replace(Job.decode(played.job), **changes))


def rejected(outcome):
    assert isinstance(outcome, helper.Refused)
    return {rejection.sender: rejection.reason for rejection in outcome.rejections}


def join(run, number, start, *, state=None, party=None):
    return client.join(
        state or run.clients[number],
        run.leader.offer,
        start,
        party=party or run.parties[number],
        inputs=inputs(),
    )


# Replays


def test_a_repeated_job_gets_the_same_bytes_and_changes_nothing(played):
    first = played.answer()
    again = helper.handle(first.state, played.job, setting=played.run.helper_setting)
    assert again.reply == first.reply
    assert again.state is first.state
    assert (first.round_, first.participants) == (0, tuple(played.run.clients))
    assert (again.round_, again.participants) == (None, ())


def test_an_answered_round_is_never_answered_for_another_list(played):
    answered = played.answer().state
    entries = Job.decode(played.job).entries[:3]
    for head in (played.run.helper.chain.head, answered.chain.head):
        other = job_of(played, entries=entries, head=head)
        with pytest.raises(PhaseError, match="round 0 is closed"):
            helper.handle(answered, other, setting=played.run.helper_setting)


def test_an_older_round_is_not_answered_after_a_newer_one(run):
    after = simulation.run_round(run, 3, vectors(run, 3), entropy=entropy("newer"))
    old = play(run, 2, vectors(run, 2))
    job = job_of(old, head=after.helper.chain.head)
    with pytest.raises(PhaseError, match="rounds from 4 on"):
        helper.handle(after.helper, job, setting=run.helper_setting)


def test_a_round_beyond_the_run_is_refused(played, run):
    with pytest.raises(ProtocolError, match="rounds 0 to 7, got 8"):
        played.answer(job_of(played, round_=8))
    with pytest.raises(ProtocolError, match="rounds 0 to 7, got 8"):
        run.leader.begin(8, INPUT)


def test_a_client_refuses_a_round_that_it_took_part_in(played):
    with pytest.raises(TamperError, match="send the stored message again"):
        join(played.run, FIRST, played.start, state=played.states[FIRST])


def test_a_report_of_another_round_or_input_is_dropped_and_named(played):
    for collecting in (
        played.run.leader.begin(1, INPUT),
        played.run.leader.begin(0, bytes(32)),
    ):
        found = collecting.add([played.reports[FIRST]], setting=played.run.leader_setting)
        assert found.participants.size == 0
        assert [r.sender for r in found.rejections] == [FIRST]


def test_a_report_that_is_sent_again_counts_once(played):
    reports = [*played.reports.values(), *played.reports.values()]
    collected = played.collecting.add(reports, setting=played.run.leader_setting)
    collected = collected.add(reports, setting=played.run.leader_setting)
    assert collected.close().job(setting=played.run.leader_setting) == played.job
    assert collected.rejections == ()


# Clients


def test_a_retry_with_other_bytes_is_dropped_and_named_and_the_first_counts(played):
    run = played.run
    other = join(run, FIRST, played.start).report(
        vector(run.leader.constants, 5), entropy=entropy("other")
    )
    collected = played.collecting.add(
        [*played.reports.values(), other.message], setting=run.leader_setting
    )
    assert [r.sender for r in collected.rejections] == [FIRST]
    assert "another report" in collected.rejections[0].reason
    assert collected.close().job(setting=run.leader_setting) == played.job


def test_a_joined_round_reports_once(played):
    joined = join(played.run, FIRST, played.start)
    x = vector(played.run.leader.constants, 1)
    joined.report(x, entropy=entropy("once"))
    with pytest.raises(PhaseError, match="reported already"):
        joined.report(x, entropy=entropy("once"))


def test_a_vector_of_another_round_plan_or_shape_is_not_masked(played):
    joined = join(played.run, FIRST, played.start)
    for changes in ({"length": 4}, {"bits": 13}):
        with pytest.raises(DomainError, match="vector must have 5 residues of 12 bits"):
            joined.report(vector(constants(**changes), 1), entropy=entropy("shape"))
    with pytest.raises(TamperError, match="another plan or round"):
        joined.report(vector(constants(), 1, label=b"other"), entropy=entropy("label"))
    with pytest.raises(DomainError, match="must be Residues"):
        joined.report(np.zeros(5), entropy=entropy("kind"))


def test_a_client_that_is_not_on_the_roster_is_dropped_and_named(played):
    run = played.run
    stranger = Identity.generate(999, entropy=entropy("stranger"))
    party = replace(run.parties[FIRST], identity=stranger)
    joined = join(run, FIRST, played.start, party=party)
    report = joined.report(vector(run.leader.constants, 1), entropy=entropy("x")).message
    collected = played.collecting.add([report], setting=run.leader_setting)
    assert [(r.sender, "not on the roster" in r.reason) for r in collected.rejections] == [
        (999, True)
    ]


def test_a_foreign_key_in_the_name_of_a_client_is_dropped_by_the_leader_and_by_the_helper(played):
    run = played.run
    foreign = Identity.generate(FIRST, entropy=entropy("foreign"))
    party = replace(run.parties[FIRST], identity=foreign)
    report = (
        join(run, FIRST, played.start, party=party)
        .report(vector(run.leader.constants, 1), entropy=entropy("x"))
        .message
    )
    collected = played.collecting.add([report], setting=run.leader_setting)
    assert [r.sender for r in collected.rejections] == [FIRST]
    # A leader whose roster was forged puts it into a job: the helper has a roster of its own.
    forged = Roster({**run.leader_setting.roster.keys, FIRST: foreign.public})
    cheating = replace(run.leader_setting, roster=forged)
    reports = [report, *(played.reports[n] for n in (SECOND, THIRD))]
    job = played.collecting.add(reports, setting=cheating).close().job(setting=cheating)
    reasons = rejected(played.answer(job))
    assert list(reasons) == [FIRST]
    assert "signature" in reasons[FIRST]


def test_an_invented_roster_entry_is_refused_by_the_helper(played):
    run = played.run
    invented = Identity.generate(5, entropy=entropy("invented"))
    bound = run.leader.constants.round_digest(0, INPUT)
    row = Job.decode(played.job).entries[0]
    sealed = row["sealed"].tobytes()
    entry = (5).to_bytes(8, "big") + sealed + sign_entry(invented, bound, sealed)
    entries = np.concatenate([np.frombuffer(entry, ENTRY), Job.decode(played.job).entries])
    reasons = rejected(played.answer(job_of(played, entries=entries)))
    assert list(reasons) == [5]
    assert "not on the roster" in reasons[5]


def test_a_client_that_sends_garbage_vectors_or_seals_is_dropped_and_named(played):
    run, me = played.run, played.run.parties[FIRST].identity
    bound = run.leader.constants.round_digest(0, INPUT)
    public = run.leader.run.secrets.key.public
    good = Contribution.decode(
        run.leader.run.secrets.key.unseal(
            Report.decode(played.reports[FIRST]).sealed, report_info(bound, FIRST)
        )
    )
    bad = [
        replace(good, masked=good.masked + b"\x00"),
        replace(good, masked=b"\xff" * len(good.masked)),
        replace(good, masked=b""),
        replace(good, sender=SECOND),
    ]
    reports = []
    for part in bad:
        inner = part.signed(me, contribution_context(bound))
        reports.append(Report(FIRST, seal(public, report_info(bound, FIRST), inner)).encode())
    reports.append(Report(FIRST, seal(public, report_info(bound, FIRST), b"rubbish")).encode())
    reports.append(Report(FIRST, b"").encode())
    collected = played.collecting.add(reports, setting=run.leader_setting)
    assert [r.sender for r in collected.rejections] == [FIRST] * len(reports)
    assert collected.participants.size == 0


def test_bytes_that_are_no_report_are_dropped(played):
    garbage = [b"", b"\x02", random_bytes(300, entropy=entropy("g")), played.job, played.start]
    collected = played.collecting.add(garbage, setting=played.run.leader_setting)
    assert [r.sender for r in collected.rejections] == [None] * len(garbage)


# Participation


def test_a_client_that_takes_part_too_often_is_refused_by_itself_the_leader_and_the_helper():
    run = begin(4, participations=2)
    for t in (0, 1):
        run = simulation.run_round(run, t, vectors(run, t), entropy=entropy(f"often/{t}"))
    with pytest.raises(ProtocolError, match="at most 2 are agreed"):
        simulation.run_round(run, 2, vectors(run, 2), entropy=entropy("often"))
    forgetful = replace(run, clients=dict.fromkeys(run.clients, client.ClientState()))
    with pytest.raises(ThresholdError, match="0 clients"):
        play(forgetful, 2, vectors(run, 2))
    job = _job_of_a_leader_who_does_not_count(forgetful, 2)
    reasons = rejected(helper.handle(run.helper, job, setting=run.helper_setting))
    assert list(reasons) == list(run.clients)
    assert all("took part in 2 rounds already" in reason for reason in reasons.values())


def test_a_client_that_takes_part_too_soon_is_refused_by_itself_the_leader_and_the_helper():
    run = begin(4, separation=3)
    run = simulation.run_round(run, 1, vectors(run, 1), entropy=entropy("soon"))
    with pytest.raises(ProtocolError, match="rounds of one client are 3 apart"):
        simulation.run_round(run, 3, vectors(run, 3), entropy=entropy("soon"))
    forgetful = replace(run, clients=dict.fromkeys(run.clients, client.ClientState()))
    with pytest.raises(ThresholdError, match="0 clients"):
        play(forgetful, 3, vectors(run, 3))
    job = _job_of_a_leader_who_does_not_count(forgetful, 3)
    reasons = rejected(helper.handle(run.helper, job, setting=run.helper_setting))
    assert all("too soon before round 3" in reason for reason in reasons.values())
    assert list(reasons) == list(run.clients)
    run = simulation.run_round(run, 4, vectors(run, 4), entropy=entropy("soon"))
    assert run.release.round_ == 4


def _job_of_a_leader_who_does_not_count(run, round_):
    carried = replace(run.leader.run, participations=leader.Participations.empty())
    cheating = replace(run, leader=leader.Idle(carried))
    return play(cheating, round_, vectors(run, round_)).job


def test_a_clients_limit_counts_the_rounds_of_all_its_runs(run):
    party = replace(run.parties[FIRST], max_participations=1)
    one = play(run, 0, vectors(run, 0))
    other = begin(4, run_id=b"s" * 32, context="run")
    start = other.leader.begin(0, INPUT).start_message(setting=other.leader_setting)
    with pytest.raises(ProtocolError, match="limit max_participations"):
        client.join(one.states[FIRST], other.leader.offer, start, party=party, inputs=inputs())
    party = replace(party, max_participations=2)
    assert client.join(
        one.states[FIRST], other.leader.offer, start, party=party, inputs=inputs()
    ).constants


def test_the_helpers_own_ledger_can_refuse_clients(played):
    asked = []

    def objections(senders):
        asked.append(senders)
        return {SECOND: "its budget is spent"}

    reasons = rejected(played.answer(objections=objections))
    assert reasons == {SECOND: "its budget is spent"}
    assert asked == [tuple(played.run.clients)]


# Jobs


def test_a_client_that_is_named_twice_is_refused(played):
    entries = Job.decode(played.job).entries[[0, 0, 1, 2]]
    reasons = rejected(played.answer(job_of(played, entries=entries)))
    assert list(reasons) == [FIRST]
    assert "twice" in reasons[FIRST]


def test_entries_out_of_order_are_refused(played):
    entries = Job.decode(played.job).entries[[1, 0, 2]]
    assert list(rejected(played.answer(job_of(played, entries=entries)))) == [FIRST]


def test_a_sealed_seed_of_another_client_is_refused(played):
    """Client 107 signs, as its own, the seed that client 100 sealed."""
    run = played.run
    bound = run.leader.constants.round_digest(0, INPUT)
    entries = Job.decode(played.job).entries.copy()
    stolen = entries[0]["sealed"].tobytes()
    signature = sign_entry(run.parties[SECOND].identity, bound, stolen)
    entries[1] = np.frombuffer((SECOND).to_bytes(8, "big") + stolen + signature, ENTRY)[0]
    reasons = rejected(played.answer(job_of(played, entries=entries)))
    assert list(reasons) == [SECOND]
    assert "seal" in reasons[SECOND]


def test_a_sealed_seed_of_another_round_is_refused(played, run):
    later = play(run, 1, vectors(run, 1))
    entries = Job.decode(later.job).entries
    reasons = rejected(played.answer(job_of(played, entries=entries)))
    assert list(reasons) == list(run.clients)


def test_a_seed_that_its_client_sealed_for_another_round_is_refused(played, run):
    """The client signs for this round what it sealed for another one."""
    later = play(run, 1, vectors(run, 1))
    bound = run.leader.constants.round_digest(0, INPUT)
    entries = Job.decode(played.job).entries.copy()
    sealed = Job.decode(later.job).entries[0]["sealed"].tobytes()
    signature = sign_entry(run.parties[FIRST].identity, bound, sealed)
    entries[0] = np.frombuffer((FIRST).to_bytes(8, "big") + sealed + signature, ENTRY)[0]
    reasons = rejected(played.answer(job_of(played, entries=entries)))
    assert list(reasons) == [FIRST]
    assert "seal" in reasons[FIRST]


def test_another_list_than_was_summed_opens_nothing_but_random_numbers(run):
    """The leader leaves one client out of the job, but not out of its own sum."""
    run = begin(4, variance=0.0, length=4000)
    given = vectors(run, 0)
    played = play(run, 0, given)
    job = job_of(played, entries=Job.decode(played.job).entries[:3])
    answer = Answer.decode(played.answer(job).reply)
    with pytest.raises(TamperError, match="another job"):
        played.waiting.open(answer.encode(), setting=run.leader_setting)
    masked = played.waiting.gathered.values(run.leader.constants).astype(np.int64)
    opened = (masked - leader.ring.from_wire(answer.vector, run.leader.constants)) % 4096
    for members in ([100, 107, 114], list(run.clients)):
        expected = plain_sum({n: given[n] for n in members}, 12)
        assert np.mean(opened == expected) < 0.01


def test_a_smaller_job_for_the_same_round_opens_the_smaller_sum_and_only_that(run):
    """The choice of participants is the leader's; the theorem holds for any."""
    run = begin(4, variance=0.0)
    given = vectors(run, 0)
    played = play(run, 0, given)
    fewer = played.collecting.add(
        [played.reports[n] for n in (FIRST, THIRD)], setting=run.leader_setting
    ).close()
    answered = played.answer(fewer.job(setting=run.leader_setting))
    idle = fewer.open(answered.reply, setting=run.leader_setting)
    expected = plain_sum({n: given[n] for n in (FIRST, THIRD)}, 12)
    assert np.array_equal(idle.release.total.values, expected)
    with pytest.raises(PhaseError):
        helper.handle(answered.state, played.job, setting=run.helper_setting)


def test_a_job_below_the_minimum_cohort_is_refused(played):
    job = job_of(played, entries=Job.decode(played.job).entries[:1])
    with pytest.raises(ThresholdError, match="at least 2 are agreed"):
        played.answer(job)
    with pytest.raises(ThresholdError, match="1 clients are in the round"):
        played.collecting.add([played.reports[FIRST]], setting=played.run.leader_setting).close()


def test_a_job_that_is_not_the_leaders_is_refused(played):
    stranger = Identity.generate(0, entropy=entropy("stranger"))
    context = leader_context(played.run.leader.constants)
    for signer in (stranger, played.run.parties[FIRST].identity):
        job = Job.decode(played.job).signed(signer, context)
        with pytest.raises(TamperError, match="in the name of the leader is false"):
            played.answer(job)


def test_a_job_that_is_sent_again_without_the_refused_entries_is_answered(run):
    run = begin(4, variance=0.0)
    given = vectors(run, 0)
    played = play(run, 0, given)
    before = run.helper.to_bytes()
    refused = played.answer(objections=lambda _: {SECOND: "no", FOURTH: "no"})
    assert run.helper.to_bytes() == before
    waiting = played.waiting.refused(refused.reply, played.reports, setting=run.leader_setting)
    assert waiting.participants.tolist() == [FIRST, THIRD]
    answered = played.answer(waiting.job(setting=run.leader_setting))
    idle = waiting.open(answered.reply, setting=run.leader_setting)
    expected = plain_sum({n: given[n] for n in (FIRST, THIRD)}, 12)
    assert np.array_equal(idle.release.total.values, expected)
    assert {r.sender for r in idle.release.rejections} == {SECOND, FOURTH}
    assert answered.participants == (FIRST, THIRD)


def test_refused_entries_need_their_reports_to_be_taken_out(played):
    refused = played.answer(objections=lambda _: {SECOND: "no"})
    for reports in ({}, {SECOND: played.reports[FIRST]}):
        with pytest.raises(DomainError, match="report of client 107"):
            played.waiting.refused(refused.reply, reports, setting=played.run.leader_setting)


def test_a_refusal_that_leaves_too_few_ends_the_round(played):
    refused = played.answer(objections=lambda senders: dict.fromkeys(senders[1:], "no"))
    with pytest.raises(ThresholdError, match="give the round up"):
        played.waiting.refused(refused.reply, played.reports, setting=played.run.leader_setting)


def test_a_refusal_of_another_job_or_of_nobody_or_by_nobody_is_refused(played, run):
    setting = run.leader_setting
    later = play(run, 1, vectors(run, 1))
    other = helper.handle(
        run.helper, later.job, setting=run.helper_setting, objections=lambda _: {FIRST: "no"}
    )
    with pytest.raises(TamperError, match="another job"):
        played.waiting.refused(other.reply, played.reports, setting=setting)
    refusal = Refusal.decode(played.answer(objections=lambda _: {FIRST: "no"}).reply)
    for named in ((), (Rejection(77, "no"),)):
        nobody = replace(refusal, rejections=named).signed(
            run.helper_setting.identity, helper_context(run.leader.constants)
        )
        with pytest.raises(TamperError, match="names nobody"):
            played.waiting.refused(nobody, played.reports, setting=setting)
    forged = refusal.signed(setting.identity, helper_context(run.leader.constants))
    with pytest.raises(TamperError, match="in the name of the helper is false"):
        played.waiting.refused(forged, played.reports, setting=setting)


# Constants


def test_constants_cannot_change_within_a_run(played, run):
    """Not at the helper, which pinned them; not at a client, which saw others before."""
    changed = begin(4, variance=2.0)
    job = replace(Job.decode(played.job), run=changed.leader.constants.digest)
    with pytest.raises(TamperError, match="constants were changed"):
        played.answer(sign_job(run, job))
    proposal = leader.propose(
        constants(variance=2.0), setting=run.leader_setting, entropy=entropy("again")
    )
    with pytest.raises(TamperError, match="constants do not change"):
        helper.handle(run.helper, proposal.message, setting=run.helper_setting)
    start = changed.leader.begin(1, INPUT).start_message(setting=changed.leader_setting)
    with pytest.raises(TamperError, match="constants of this run have changed"):
        client.join(
            played.states[FIRST],
            changed.leader.offer,
            start,
            party=changed.parties[FIRST],
            inputs=inputs(),
        )


def test_a_repeated_proposal_gets_the_same_grant(run):
    proposed = leader.propose(constants(), setting=run.leader_setting, entropy=entropy("twice"))
    state = helper.grant(proposed.message, setting=run.helper_setting, entropy=entropy("grant"))
    again = helper.handle(state, proposed.message, setting=run.helper_setting)
    assert again.reply == state.reply


@pytest.mark.parametrize(
    ("changes", "limits", "text"),
    [
        ({"variance": 1.0}, {"min_noise_multiplier": 0.5}, "min_noise_multiplier"),
        ({"participations": 5}, {}, "max_participations"),
        ({"separation": 1}, {"min_separation": 2}, "min_separation"),
        ({"min_cohort": 2}, {"min_cohort": 3}, "min_cohort"),
        ({"noise_by": "helper"}, {}, "helper_noise_alone"),
        ({"length": 9}, {"max_length": 8}, "max_length"),
        ({"rounds": 9}, {"max_rounds": 8}, "max_rounds"),
        ({"band": (3, 2, 1)}, {"max_band": 2}, "max_band"),
    ],
)
def test_limits_are_kept_by_the_helper_and_by_every_client(changes, limits, text):
    demanded = RunLimits(**{"min_noise_multiplier": 0.0, "max_participations": 4, **limits})
    with pytest.raises(ProtocolError, match=f"limit {text}"):
        begin(2, limits=demanded, **changes)
    lax = begin(2, **changes)
    start = lax.leader.begin(0, INPUT).start_message(setting=lax.leader_setting)
    party = replace(lax.parties[FIRST], limits=demanded)
    with pytest.raises(ProtocolError, match=f"limit {text}"):
        join(lax, FIRST, start, party=party)


def test_a_proposal_is_refused_unless_the_leader_made_it_for_this_helper(run):
    setting = run.helper_setting
    proposed = leader.propose(constants(), setting=run.leader_setting, entropy=entropy("p"))
    proposal = Proposal.decode(proposed.message)
    stranger = Identity.generate(0, entropy=entropy("stranger"))
    with pytest.raises(TamperError, match="in the name of the leader is false"):
        helper.grant(
            proposal.signed(stranger, proposal_context()), setting=setting, entropy=entropy("x")
        )
    key = ServerSecrets.generate(entropy=entropy("other")).key
    for bad, text in [
        (replace(proposal, leader_public=key.public), "sealing key is not"),
        (replace(proposal, constants=run.leader.constants), "leave the helper's key"),
    ]:
        message = bad.signed(run.leader_setting.identity, proposal_context())
        with pytest.raises(TamperError, match=text):
            helper.grant(message, setting=setting, entropy=entropy("x"))
    with pytest.raises(DomainError, match="leave both sealing keys open"):
        leader.propose(run.leader.constants, setting=run.leader_setting, entropy=entropy("x"))


def test_a_grant_of_another_run_or_by_another_helper_is_refused(run):
    setting = run.leader_setting
    proposed = leader.propose(constants(), setting=setting, entropy=entropy("g"))
    good = helper.grant(proposed.message, setting=run.helper_setting, entropy=entropy("h"))
    grant = helper.Grant.decode(good.reply)
    weaker = replace(grant, constants=replace(grant.constants, variance=0.1))
    with pytest.raises(TamperError, match="another run than was proposed"):
        proposed.granted(weaker.encode(), setting=setting)
    other_key = replace(
        grant, helper_public=ServerSecrets.generate(entropy=entropy("k")).key.public
    )
    with pytest.raises(TamperError, match="another run than was proposed"):
        proposed.granted(other_key.encode(), setting=setting)
    foreign = replace(setting, helper=run.parties[FIRST].identity.public)
    with pytest.raises(TamperError, match="in the name of the helper is false"):
        proposed.granted(good.reply, setting=foreign)


def test_a_client_believes_an_offer_only_if_both_servers_that_it_knows_signed_it(run):
    """A helper in the middle, with a sealing key of its own as the leader's, reads nothing."""
    grant = helper.Grant.decode(RunOffer.decode(run.leader.offer).grant)
    start = run.leader.begin(0, INPUT).start_message(setting=run.leader_setting)
    mine = ServerSecrets.generate(entropy=entropy("middle")).key
    changed = replace(grant.constants, leader_key=mine.key_id)
    middle = replace(
        grant,
        constants=changed,
        leader_public=mine.public,
        signature=Chain.of(changed).head.sign(run.helper_setting.identity, changed),
    )
    offer = RunOffer(middle.encode()).signed(run.helper_setting.identity, leader_context(changed))
    with pytest.raises(TamperError, match="in the name of the leader is false"):
        client.join(run.clients[FIRST], offer, start, party=run.parties[FIRST], inputs=inputs())
    swapped = replace(grant, leader_public=mine.public)
    offer = RunOffer(swapped.encode()).signed(
        run.leader_setting.identity, leader_context(grant.constants)
    )
    with pytest.raises(TamperError, match="sealing keys are not those"):
        client.join(run.clients[FIRST], offer, start, party=run.parties[FIRST], inputs=inputs())
    unsigned = replace(grant, signature=bytes(64))
    offer = RunOffer(unsigned.encode()).signed(
        run.leader_setting.identity, leader_context(grant.constants)
    )
    with pytest.raises(TamperError, match="in the name of the helper is false"):
        client.join(run.clients[FIRST], offer, start, party=run.parties[FIRST], inputs=inputs())


def test_a_client_compares_plan_input_and_norm_with_what_it_computed_itself(run, played):
    """A leader that shows clients different models, or claims a small norm, gets nothing."""
    for own, text in [
        (replace(inputs(), plan=b"q" * 32), "another plan"),
        (inputs(b"j" * 32), "another input"),
        (inputs(norm_bound=2.1), "vectors of norm 2.0, this client's reach 2.1"),
    ]:
        with pytest.raises(TamperError, match=text):
            client.join(
                run.clients[FIRST],
                run.leader.offer,
                played.start,
                party=run.parties[FIRST],
                inputs=own,
            )
    assert join(run, FIRST, played.start)


def test_leader_and_helper_must_not_be_one_party(run):
    with pytest.raises(TamperError, match="must not be one party"):
        replace(run.parties[FIRST], helper=run.parties[FIRST].leader)


def test_a_round_start_that_is_not_the_leaders_is_refused(run, played):
    start = RoundStart.decode(played.start)
    context = leader_context(run.leader.constants)
    for identity in (run.helper_setting.identity, run.parties[SECOND].identity):
        with pytest.raises(TamperError, match="in the name of the leader is false"):
            join(run, FIRST, start.signed(identity, context))
    for changes, text in [({"run": bytes(32)}, "another run"), ({"round_": 8}, "rounds 0 to 7")]:
        bad = replace(start, **changes).signed(run.leader_setting.identity, context)
        with pytest.raises(ProtocolError, match=text):
            join(run, FIRST, bad)


# Garbage


def test_garbage_to_the_helper_raises_our_errors(run, played):
    garbage = [b"", b"\x02", b"\x02\x47", random_bytes(2000, entropy=entropy("garbage"))]
    for message in [*garbage, played.start, played.reports[FIRST], played.job[:-1]]:
        with pytest.raises(MessageError):
            helper.handle(run.helper, message, setting=run.helper_setting)
        with pytest.raises(MessageError):
            helper.grant(message, setting=run.helper_setting, entropy=entropy("x"))


def test_garbage_from_the_helper_raises_our_errors(run, played):
    setting = run.leader_setting
    forgetting = played.waiting.abandon()
    for reply in [b"", b"\x02", random_bytes(500, entropy=entropy("garbage")), played.job]:
        for step in (
            lambda data: played.waiting.open(data, setting=setting),
            lambda data: played.waiting.refused(data, played.reports, setting=setting),
            lambda data: forgetting.done(data, setting=setting),
        ):
            with pytest.raises(MessageError):
                step(reply)


def test_an_answer_with_another_vector_is_refused_even_if_the_chain_goes_on(run, played):
    """What the helper signed is bound to the vector through the chain."""
    answer = Answer.decode(played.answer().reply)
    for changes in ({"vector": bytes(8)}, {"vector": b""}, {"replayable": False}):
        with pytest.raises(TamperError, match="in the name of the helper is false"):
            played.waiting.open(replace(answer, **changes).encode(), setting=run.leader_setting)


def test_a_vector_of_the_wrong_length_that_the_helper_signed_is_refused(run, played):
    from skellam.twoserver.chain import answer_link

    answer = Answer.decode(played.answer().reply)
    run_constants = run.leader.constants
    for vector_ in (b"", b"\x00" * 9, b"\xff" * 8):
        link = answer_link(0, answer.job, vector_, answer.replayable)
        head = Chain.of(run_constants).extended(link).head
        signature = head.sign(run.helper_setting.identity, run_constants)
        bad = replace(answer, vector=vector_, signature=signature)
        with pytest.raises(MessageError):
            played.waiting.open(bad.encode(), setting=run.leader_setting)


# A helper that was set back


def test_a_helper_that_was_set_back_refuses_a_leader_that_knows_more(run):
    """An honest leader stops it before it answers."""
    after = simulation.run_round(run, 0, vectors(run, 0), entropy=entropy("back/0"))
    played = play(after, 1, vectors(after, 1))
    with pytest.raises(TamperError, match="set back to an older state"):
        helper.handle(run.helper, played.job, setting=run.helper_setting)
    message = after.leader.forget().message(setting=run.leader_setting)
    with pytest.raises(TamperError, match="set back to an older state"):
        helper.handle(run.helper, message, setting=run.helper_setting)


def test_a_leader_sees_that_an_answer_comes_from_a_helper_that_was_set_back(run):
    """The helper ignores the head in the job and answers from its older state."""
    after = simulation.run_round(run, 0, vectors(run, 0), entropy=entropy("back/0"))
    played = play(after, 1, vectors(after, 1))
    job = job_of(played, head=run.helper.chain.head)
    answered = helper.handle(run.helper, job, setting=run.helper_setting)
    with pytest.raises(TamperError, match="set back to an older state"):
        played.waiting.open(answered.reply, setting=run.leader_setting)


def test_a_client_sees_a_helper_that_was_set_back_by_the_chain(run):
    """The leader profits and hides it: it asks for round 0 twice, of two sets of clients."""
    ahead = simulation.run_round(run, 0, vectors(run, 0), entropy=entropy("back/0"))
    ahead = simulation.run_round(
        ahead, 1, vectors(ahead, 1, members=[FIRST, SECOND]), entropy=entropy("back/1")
    )
    fork = replace(run, clients=ahead.clients)
    given = vectors(fork, 2, members=[THIRD, FOURTH])
    forked = simulation.run_round(replace(run), 2, given, entropy=entropy("back/2"))
    shorter = forked.leader.begin(3, INPUT).start_message(setting=run.leader_setting)
    with pytest.raises(TamperError, match="another one at link 1"):
        join(ahead, FIRST, shorter)
    longer = simulation.run_round(
        replace(forked, clients=fork.clients),
        3,
        vectors(forked, 3, [THIRD, FOURTH]),
        entropy=entropy("b/3"),
    )
    start = longer.leader.begin(4, INPUT).start_message(setting=run.leader_setting)
    with pytest.raises(TamperError, match="another one at link 1"):
        join(ahead, FIRST, start)
    back = run.leader.begin(4, INPUT).start_message(setting=run.leader_setting)
    with pytest.raises(TamperError, match="has 0 links, 1 were seen before"):
        join(ahead, FIRST, back)


def test_a_client_needs_the_links_since_the_head_that_it_knows(run):
    ahead = run
    for t in range(3):
        ahead = simulation.run_round(ahead, t, vectors(ahead, t), entropy=entropy(f"links/{t}"))
    collecting = ahead.leader.begin(3, INPUT)
    known = ahead.clients[FIRST].run(ahead.leader.constants.run_id).head.count
    assert known == 2
    for since in (0, 1, 2):
        start = collecting.start_message(setting=ahead.leader_setting, since=since)
        assert join(ahead, FIRST, start).record.head.count == 3
    start = collecting.start_message(setting=ahead.leader_setting, since=3)
    with pytest.raises(TamperError, match="needs those after 2"):
        join(ahead, FIRST, start)
    newcomer = join(ahead, FIRST, start, state=client.ClientState())
    assert newcomer.record.head == ahead.helper.chain.head
    with pytest.raises(DomainError, match="at most 3, got 4"):
        collecting.start_message(setting=ahead.leader_setting, since=4)


def test_two_answers_of_a_helper_that_was_set_back_have_independent_noise():
    """So the leader gains a second noisy sum, never the difference of two sums without noise."""
    run = begin(4, variance=50.0, length=2000, noise_by="helper")
    given = vectors(run, 0)
    played = play(run, 0, given)
    errors = []
    for members in ([FIRST, SECOND, THIRD, FOURTH], [FIRST, SECOND, THIRD]):
        waiting = played.collecting.add(
            [played.reports[n] for n in members], setting=run.leader_setting
        ).close()
        answered = played.answer(waiting.job(setting=run.leader_setting))
        opened = waiting.open(answered.reply, setting=run.leader_setting).release.total.values
        error = opened.astype(np.int64) - plain_sum({n: given[n] for n in members}, 12)
        errors.append((error + 2048) % 4096 - 2048)
    one, other = errors
    assert abs(np.corrcoef(one, other)[0, 1]) < 5.3 / np.sqrt(2000)  # 1e-7, over seeds
    assert np.var(one - other) == pytest.approx(100, rel=0.2)


# Forgetting


def test_a_request_to_forget_that_is_not_the_leaders_is_refused(run):
    ahead = simulation.run_round(run, 0, vectors(run, 0), entropy=entropy("forget"))
    forget = Forget.decode(ahead.leader.forget().message(setting=run.leader_setting))
    context = leader_context(run.leader.constants)
    with pytest.raises(TamperError, match="in the name of the leader is false"):
        helper.handle(
            ahead.helper,
            forget.signed(run.parties[FIRST].identity, context),
            setting=run.helper_setting,
        )
    beyond = replace(forget, next_round=9).signed(run.leader_setting.identity, context)
    with pytest.raises(TamperError, match="8 rounds"):
        helper.handle(ahead.helper, beyond, setting=run.helper_setting)


def test_forgetting_gives_nobody_back_a_participation():
    run = begin(3, band=(3, 2), participations=1)
    run = simulation.run_round(run, 0, vectors(run, 0), entropy=entropy("spent"))
    forgetting = run.leader.forget(0)
    message = forgetting.message(setting=run.leader_setting)
    answered = helper.handle(run.helper, message, setting=run.helper_setting)
    run = replace(
        run,
        leader=forgetting.done(answered.reply, setting=run.leader_setting),
        helper=answered.state,
        clients=dict.fromkeys(run.clients, client.ClientState()),
    )
    job = _job_of_a_leader_who_does_not_count(run, 1)
    reasons = rejected(helper.handle(run.helper, job, setting=run.helper_setting))
    assert list(reasons) == list(run.clients)


def test_a_repeated_request_to_forget_gets_the_same_bytes_and_a_false_reply_is_refused():
    run = begin(3, band=(3, 2), participations=4)
    run = simulation.run_round(run, 0, vectors(run, 0), entropy=entropy("repeat"))
    forgetting = run.leader.forget(0)
    setting = run.leader_setting
    message = forgetting.message(setting=setting)
    first = helper.handle(run.helper, message, setting=run.helper_setting)
    again = helper.handle(first.state, message, setting=run.helper_setting)
    assert (again.reply, again.state) == (first.reply, first.state)
    reply = helper.Forgotten.decode(first.reply)
    for changes, text in [
        ({"run": bytes(32)}, "another run"),
        ({"kept_rounds": (0,)}, "told to forget"),
        ({"next_round": 5}, "another request"),
        ({"links": b""}, "another request"),
        ({"links": bytes(32) + reply.links}, "in the name of the helper is false"),
    ]:
        with pytest.raises(TamperError, match=text):
            forgetting.done(replace(reply, **changes).encode(), setting=setting)
