"""A server that lies, on the in-process grid: every lie is refused by the clients themselves."""

import json
from dataclasses import replace

import pytest
from flwr.app import ConfigRecord, RecordDict

from oracles.flower_fleet import Fleet, client_app, model, node_files, plan
from oracles.hostile_server import Server, assert_refused, refusals, train_content
from skellam.accounting.ledger import Ledger
from skellam.engines.flower import Limits
from skellam.engines.flower.messages import (
    model_digest,
)
from skellam.entropy import SystemEntropy
from skellam.secagg import Identity
from skellam.secagg.messages import Advertisement, ParticipantList, Survivors

# It overstates the cohort, so that everybody would add less noise.


def test_a_participant_list_below_the_plans_minimum_is_refused(tmp_path):
    server_ = Server.of(Fleet(tmp_path), invited=1000)
    participants = ParticipantList.of(tuple(server_.adverts()[:3])).encode()
    replies = server_.ask("share_keys", dict.fromkeys((2, 3, 4), participants))
    assert_refused(replies, "3 take part; at least 4 must")


def test_strangers_on_the_roll_are_refused(tmp_path):
    made = plan(dropout=0.2, cohort=6)
    server_ = Server.of(Fleet(tmp_path, made), invited=6)
    stranger = Identity.generate(99, entropy=SystemEntropy())
    forged = Advertisement(99, bytes([9] * 32), bytes([8] * 32), bytes(32)).signed(
        stranger, server_.protocol().digest
    )
    roll = ParticipantList.of((*server_.adverts(), forged)).encode()
    assert_refused(server_.ask("share_keys", roll), "client 99 is not on the roster")


def test_a_client_cannot_be_counted_twice(tmp_path):
    server_ = Server.of(Fleet(tmp_path, plan(cohort=6)), invited=6)
    adverts = server_.adverts()
    roll = ParticipantList.of((*adverts, adverts[-1])).encode()
    assert_refused(server_.ask("share_keys", roll), "names a client twice")


def test_more_than_the_plans_population_are_refused(tmp_path):
    """Its share of colluders is one of that population."""
    server_ = Server.of(Fleet(tmp_path, count=6))
    relay, participants = server_.enrolled()
    _, boxes = relay.step(server_.data(server_.ask("share_keys", participants)))
    replies = server_.ask("masked_input", {number + 1: box for number, box in boxes.items()})
    assert_refused(replies, "more take part than the plan's population")


def test_a_cohort_below_a_clients_own_limit_is_refused(tmp_path):
    fleet = Fleet(tmp_path, limits={"min_cohort": 6})
    assert_refused(Server.of(fleet).train(), "limit min_cohort: the sum may hold as few as 4")


def test_the_limit_counts_the_participant_list_and_not_the_server(tmp_path):
    fleet = Fleet(tmp_path, plan(cohort=6), limits={"min_cohort": 5})
    server_ = Server.of(fleet, invited=6)
    adverts = server_.adverts()
    replies = server_.ask("share_keys", ParticipantList.of(tuple(adverts)).encode())
    assert_refused(replies, "limit min_cohort: the sum may hold as few as 4")


# It lies about survivors, to open both halves of a client's mask.


def test_only_one_of_two_sets_of_survivors_is_opened(tmp_path):
    made = plan(cohort=8, dropout=0.25, colluding=0.125)
    server_ = Server.of(Fleet(tmp_path, made, count=8), invited=8)
    confirm, everybody = server_.to_masks()
    entries = Survivors.decode(everybody).rows
    without_the_last = Survivors.of(entries[:-1]).encode()
    shown = {**dict.fromkeys(range(2, 10), everybody), 4: without_the_last, 5: without_the_last}
    agreements = server_.ask("consistency_check", shown)
    _, agreed = confirm.step(server_.data(agreements))
    replies = server_.ask("unmask", agreed)
    assert_refused({node: replies[node] for node in (4, 5)}, "agreed but did not survive")


def test_a_second_set_of_survivors_is_refused_even_from_a_copied_state(tmp_path):
    """Flower starts a process per message, and two of them may begin from the same state."""
    server_ = Server.of(Fleet(tmp_path))
    _, everybody = server_.to_masks()
    files = {path: path.read_bytes() for path in (tmp_path / "nodes").glob("*.spend.state")}
    assert len(files) == 5
    assert not any(r.has_error() for r in server_.ask("consistency_check", everybody).values())
    for path, octets in files.items():
        path.write_bytes(octets)
    fewer = Survivors.of(Survivors.decode(everybody).rows[:-1]).encode()
    assert_refused(
        server_.ask("consistency_check", fewer),
        "stage consistency_check of this round began before",
    )


def test_too_few_survivors_are_refused(tmp_path):
    server_ = Server.of(Fleet(tmp_path))
    _, everybody = server_.to_masks()
    two = Survivors.of(Survivors.decode(everybody).rows[:2]).encode()
    assert_refused(
        server_.ask("consistency_check", {2: two, 3: two}), "2 of 5 survived; that is too few"
    )


# It shows two models.


def test_clients_that_were_shown_different_models_refuse_each_other(tmp_path):
    server_ = Server.of(Fleet(tmp_path))
    roll = ParticipantList.of(tuple(server_.adverts({6: train_content(model(1.0))}))).encode()
    assert_refused(server_.ask("share_keys", roll), "is false")


# It asks for too much epsilon, or too often.


def test_a_plan_that_costs_too_much_is_refused_whatever_it_states(tmp_path):
    server_ = Server.of(Fleet(tmp_path), made=plan(z=0.3))
    assert_refused(server_.train(), "limit round_epsilon: the plan costs")


def test_a_plan_whose_noise_bears_too_few_colluders_is_refused(tmp_path):
    fleet = Fleet(tmp_path, limits={"min_colluding": 0.3})
    assert_refused(Server.of(fleet).train(), "limit min_colluding: the plan bears 20%")


def test_another_model_than_a_client_allows_is_refused(tmp_path):
    allowed = {k: array.numpy() for k, array in model(5.0).items()}
    fleet = Fleet(tmp_path, limits={"models": [model_digest(allowed).hex()]})
    assert_refused(Server.of(fleet).train(), "limit models: this node trains other models")
    _, (report,) = fleet.start(arrays=model(5.0))
    assert report.failure == ""


@pytest.mark.parametrize("noise", ["central-skellam", "central-discrete-gaussian"])
def test_a_plan_without_the_clients_own_noise_is_refused(tmp_path, noise):
    made = plan(noise=noise, dropout=0, colluding=0)
    assert_refused(Server.of(Fleet(tmp_path), made=made).train(), "a fleet needs noise=")


def test_a_plan_for_another_dimension_is_refused(tmp_path):
    server_ = Server.of(Fleet(tmp_path), made=plan(dimension=25))
    assert_refused(server_.train(), "the plan is for 25 parameters and metrics; the model has 24")


def test_more_rounds_than_a_client_allows_are_refused(tmp_path):
    fleet = Fleet(tmp_path, limits={"max_participations": 2})
    _, reports = fleet.start(rounds=2)
    assert [report.failure for report in reports] == ["", ""]
    assert_refused(Server.of(fleet).train(), "limit max_participations: this node took part in 2")


def test_a_fresh_run_brings_no_fresh_budget(tmp_path):
    """Two runs of two rounds each; the total allows three rounds, whatever the run."""
    made = plan(z=2.0)
    fleet = Fleet(tmp_path, made, limits={"total_epsilon": 3.8})
    _, reports = fleet.start(rounds=2)
    assert [report.failure for report in reports] == ["", ""]
    _, reports = fleet.start(rounds=2)
    assert reports[0].failure == ""
    assert "0 take part" in reports[1].failure
    assert_refused(Server.of(fleet).train(), "limit total_epsilon: another round would exceed 3.8")
    account = Ledger.verify(tmp_path / "nodes" / "1.spend")
    assert len(account.spends) == 3
    assert account.guarantee().epsilon <= 3.8


def test_limits_do_not_grow_while_the_spend_file_is_kept(tmp_path):
    fleet = Fleet(tmp_path)
    fleet.start()
    file = tmp_path / "nodes" / "1.toml"
    file.write_text(file.read_text().replace("total_epsilon = 15.0", "total_epsilon = 1000.0"))
    server_ = Server.of(fleet)
    replies = server_.train()
    assert "another total_epsilon or delta" in replies[2].error.reason


def test_what_is_wrong_with_a_nodes_files_stays_on_the_node(tmp_path, caplog):
    fleet = Fleet(tmp_path)
    (tmp_path / "nodes" / "1.key").write_text("{}")
    (tmp_path / "nodes" / "2.spend").write_text("damaged")
    reasons = refusals({n: r for n, r in Server.of(fleet).train().items() if n in (2, 3)})
    assert not any(str(tmp_path) in reason for reason in reasons.values())
    assert all("its log says why" in reason for reason in reasons.values())
    assert "1.key" in caplog.text


def test_the_spend_is_on_disk_before_the_masked_vector_leaves(tmp_path):
    fleet, spent = Fleet(tmp_path), []

    def uplink(message):
        if message.metadata.message_type == "query.skellam_masked_input":
            number = message.metadata.src_node_id - 1
            spent.append(len(Ledger.verify(tmp_path / "nodes" / f"{number}.spend").spends))
        return message

    fleet.start(network={"uplink": uplink})
    assert spent == [1] * 5


# It replays.


def test_a_replayed_round_is_refused(tmp_path):
    fleet = Fleet(tmp_path)
    server_ = Server.of(fleet)
    server_.to_masks()
    again = replace(server_, grid=fleet.grid())
    assert_refused(again.train(), "stage advertise_keys of this round began before")


def test_a_replayed_stage_is_refused(tmp_path):
    server_ = Server.of(Fleet(tmp_path))
    _, everybody = server_.to_masks()
    server_.ask("consistency_check", everybody)
    assert_refused(
        server_.ask("consistency_check", everybody),
        "stage consistency_check of this round began before",
    )


def test_a_letter_of_another_round_is_refused(tmp_path):
    server_ = Server.of(Fleet(tmp_path))
    server_.train()
    other = Server.of(server_.fleet, grid=server_.grid)
    assert_refused(other.ask("share_keys", b""), "not one of this round")


def test_without_a_round_in_progress_every_stage_is_refused(tmp_path):
    server_ = Server.of(Fleet(tmp_path))
    for stage in ("share_keys", "masked_input", "consistency_check", "unmask"):
        assert_refused(server_.ask(stage, b""), "no round is in progress")


@pytest.mark.parametrize("garbage", ["plan", "number", "round", "invited", "update", "metrics"])
def test_a_malformed_round_configuration_is_refused(tmp_path, garbage):
    server_ = Server.of(Fleet(tmp_path))
    fields = json.loads(server_.config.to_json())
    for wrong in ({**fields, garbage: "x"}, {**fields, garbage: -1}, {**fields, "more": 1}):
        record = ConfigRecord({"config": json.dumps(wrong, sort_keys=True)})
        replies = server_.send("train", {2: RecordDict({**train_content(), "skellam": record})})
        assert_refused(replies, "no round configuration of this version")
    spelt = ConfigRecord({"config": server_.config.to_json().replace(", ", ",")})
    replies = server_.send("train", {2: RecordDict({**train_content(), "skellam": spelt})})
    assert_refused(replies, "not its only spelling")


# A node without a file of its own.


def test_a_node_that_names_no_file_takes_part_in_nothing(tmp_path):
    fleet = Fleet(tmp_path)
    fleet.nodes = [{"partition-id": 1, "num-partitions": 5}] * 5
    assert_refused(Server.of(fleet).train(), "must name its file")


def test_no_server_can_put_a_real_node_into_simulation(tmp_path):
    fleet = Fleet(tmp_path, app=client_app(simulated=Limits.for_simulation()))
    fleet.nodes = [{"partition-id": n, "num-partitions": 5} for n in range(5)]
    assert_refused(Server.of(fleet).train(), "must name its file")


def test_noise_is_shared_among_those_that_were_counted(tmp_path):
    """The guaranteed variance is the plan's whatever the server says about the cohort."""
    made = plan(cohort=20, dropout=0.3, colluding=0.1)
    config = Server.of(Fleet(tmp_path, made)).config
    for participants in (made.min_cohort, 15, 20):
        noise = config.codec(bytes(32), participants).spec.noise
        survivors, colluders = config.survivors(participants), config.colluders(participants)
        assert noise.shares == survivors
        assert noise.variance / survivors * (survivors - colluders) >= made.variance * (1 - 1e-12)


def test_another_nodes_roster_is_another_fleet(tmp_path):
    fleet = Fleet(tmp_path)
    fleet.nodes[4] = node_files(tmp_path / "others", numbers=[5])[0]
    server_ = Server.of(fleet)
    roll = ParticipantList.of(tuple(server_.adverts())).encode()
    assert_refused(server_.ask("share_keys", roll), "client")
