"""A server that lies, on the in-process grid: every lie is refused by the clients themselves."""

from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import pytest
from flwr.app import Message, RecordDict

from oracles.flower_fleet import Fleet, client_app, model, node_files, plan
from skellam.accounting.ledger import Ledger
from skellam.engines.flower.invitation import Invitation, Update, model_digest
from skellam.engines.flower.letters import letter, opened, opened_masked
from skellam.entropy import SystemEntropy, random_bytes
from skellam.secagg import Identity, Setting, server
from skellam.secagg.messages import Advertisement, Roll, Survivors, signed


@dataclass
class Server:
    """Does what a server does, stage by stage, so that a test can do something else at any."""

    fleet: Fleet
    grid: object
    invitation: Invitation

    @classmethod
    def of(cls, fleet, *, made=None, invited=5, number=1, grid=None):
        round_id = random_bytes(32, entropy=SystemEntropy())
        invitation = Invitation(made or fleet.plan, number, round_id, invited, Update.DIFFERENCE)
        return cls(fleet, grid or fleet.grid(), invitation)

    def protocol(self, arrays=None):
        arrays = {name: array.numpy() for name, array in (arrays or model()).items()}
        return self.invitation.protocol(model_digest(arrays))

    def train(self, models=None):
        """Return the replies to invitations, the model of each node being ``models[node]``."""
        record = self.invitation.to_record()
        contents = {
            node: RecordDict({"arrays": (models or {}).get(node, model()), "skellam": record})
            for node in self.grid.get_node_ids()
        }
        return self.send("train", contents)

    def ask(self, stage, data):
        """Return the replies to ``data``, one for all or by node."""
        nodes = self.grid.get_node_ids()
        data = data if isinstance(data, dict) else dict.fromkeys(nodes, data)
        contents = {node: letter(d, self.protocol()) for node, d in data.items()}
        return self.send(f"query.skellam_{stage}", contents)

    def send(self, kind, contents):
        messages = [Message(content, node, kind) for node, content in contents.items()]
        replies = self.grid.send_and_receive(messages)
        return dict(zip(contents, replies, strict=True))

    def data(self, replies):
        return [opened(reply.content, self.protocol()) for reply in replies.values()]

    def to_masks(self):
        """Run honestly until the masked vectors are in; return the next phase and its letter."""
        desk = server.Enrol(Setting(self.protocol(), self.fleet.roster))
        relay, roll = desk.step(self.data(self.train()))
        gather, boxes = relay.step(self.data(self.ask("share", roll)))
        masked = self.ask("mask", {number + 1: box for number, box in boxes.items()})
        found = [opened_masked(reply.content, self.protocol()) for reply in masked.values()]
        return gather.step(found)


def adverts_of(server_, models=None):
    """Return what the clients advertise, in the order of a roll."""
    return sorted(server_.data(server_.train(models)), key=lambda d: Advertisement.decode(d).sender)


def refusals(replies):
    assert all(reply.has_error() for reply in replies.values())
    return {node: reply.error.reason for node, reply in replies.items()}


def assert_refused(replies, text):
    for reason in refusals(replies).values():
        assert text in reason


# It overstates the cohort, so that everybody would add less noise.


def test_a_stated_cohort_that_is_larger_than_the_real_one_is_refused(tmp_path):
    server_ = Server.of(Fleet(tmp_path, plan(dropout=0.2)), invited=1000)
    adverts = adverts_of(server_)
    assert_refused(server_.ask("share", Roll.of(tuple(adverts)).encode()), "at least 800 must")


def test_strangers_on_the_roll_are_refused(tmp_path):
    made = plan(dropout=0.2, cohort=6)
    server_ = Server.of(Fleet(tmp_path, made), invited=6)
    stranger = Identity.generate(99, entropy=SystemEntropy())
    forged = signed(
        Advertisement(99, bytes([9] * 32), bytes([8] * 32), bytes(32)),
        stranger,
        server_.protocol().digest,
    )
    roll = Roll.of((*adverts_of(server_), forged)).encode()
    assert_refused(server_.ask("share", roll), "client 99 is not on the roster")


def test_a_client_cannot_be_counted_twice(tmp_path):
    server_ = Server.of(Fleet(tmp_path, plan(cohort=6)), invited=6)
    adverts = adverts_of(server_)
    roll = Roll.of((*adverts, adverts[-1])).encode()
    assert_refused(server_.ask("share", roll), "names a client twice")


def test_more_than_were_invited_are_refused(tmp_path):
    """Fewer invited than counted would mean fewer tolerated colluders than the plan says."""
    server_ = Server.of(Fleet(tmp_path, plan(dropout=0.0)), invited=4)
    desk = server.Enrol(Setting(server_.protocol(), server_.fleet.roster))
    relay, roll = desk.step(adverts_of(server_))
    _, boxes = relay.step(server_.data(server_.ask("share", roll)))
    replies = server_.ask("mask", {number + 1: box for number, box in boxes.items()})
    assert_refused(replies, "more take part than were invited")


def test_a_cohort_below_a_clients_own_limit_is_refused(tmp_path):
    fleet = Fleet(tmp_path, limits={"smallest_cohort": 6})
    assert_refused(Server.of(fleet).train(), "limit smallest_cohort: 5 take part")


def test_the_limit_counts_the_roll_and_not_the_invitation(tmp_path):
    fleet = Fleet(tmp_path, plan(dropout=0.25, cohort=8), limits={"smallest_cohort": 6})
    server_ = Server.of(fleet, invited=6)
    adverts = adverts_of(server_)
    replies = server_.ask("share", Roll.of(tuple(adverts)).encode())
    assert_refused(replies, "limit smallest_cohort: 5 take part")


# It lies about survivors, to open both halves of a client's mask.


def test_only_one_of_two_sets_of_survivors_is_opened(tmp_path):
    server_ = Server.of(Fleet(tmp_path))
    confirm, everybody = server_.to_masks()
    entries = Survivors.decode(everybody).rows
    without_the_last = Survivors.of(entries[:-1]).encode()
    shown = {2: everybody, 3: everybody, 4: without_the_last, 5: without_the_last, 6: everybody}
    agreements = server_.ask("agree", shown)
    _, agreed = confirm.step(server_.data(agreements))
    replies = server_.ask("unmask", agreed)
    assert_refused({node: replies[node] for node in (4, 5)}, "agreed but did not survive")


def test_a_second_set_of_survivors_is_refused_even_from_a_copied_state(tmp_path):
    """Flower starts a process per message, and two of them may begin from the same state."""
    server_ = Server.of(Fleet(tmp_path))
    _, everybody = server_.to_masks()
    before = {n: deepcopy(c.state) for n, c in server_.grid.contexts.items()}
    assert not any(r.has_error() for r in server_.ask("agree", everybody).values())
    for number, context in server_.grid.contexts.items():
        context.state = before[number]
    fewer = Survivors.of(Survivors.decode(everybody).rows[:-1]).encode()
    assert_refused(server_.ask("agree", fewer), "stage agree of this round began before")


def test_too_few_survivors_are_refused(tmp_path):
    server_ = Server.of(Fleet(tmp_path))
    _, everybody = server_.to_masks()
    two = Survivors.of(Survivors.decode(everybody).rows[:2]).encode()
    assert_refused(server_.ask("agree", {2: two, 3: two}), "too few survived")


# It shows two models.


def test_clients_that_were_shown_different_models_refuse_each_other(tmp_path):
    server_ = Server.of(Fleet(tmp_path))
    roll = Roll.of(tuple(adverts_of(server_, {6: model(1.0)}))).encode()
    assert_refused(server_.ask("share", roll), "is false")


# It asks for too much epsilon, or too often.


def test_a_plan_that_costs_too_much_is_refused_whatever_it_states(tmp_path):
    costly = replace(plan(z=0.3), epsilon=0.01)
    server_ = Server.of(Fleet(tmp_path), made=costly)
    assert_refused(server_.train(), "limit round_epsilon: the plan costs")


def test_a_plan_whose_noise_bears_too_few_colluders_is_refused(tmp_path):
    fleet = Fleet(tmp_path, limits={"least_colluding": 0.2})
    assert_refused(Server.of(fleet).train(), "limit least_colluding: the plan's noise bears 0%")


def test_another_model_than_a_client_allows_is_refused(tmp_path):
    allowed = {k: array.numpy() for k, array in model(5.0).items()}
    fleet = Fleet(tmp_path, limits={"models": [model_digest(allowed).hex()]})
    assert_refused(Server.of(fleet).train(), "limit models: this node trains other models")
    _, (report,) = fleet.start(arrays=model(5.0))
    assert report.failure == ""


@pytest.mark.parametrize("noise", ["central-skellam", "none"])
def test_a_plan_without_the_clients_own_noise_is_refused(tmp_path, noise):
    made = replace(plan(), noise=noise)
    assert_refused(Server.of(Fleet(tmp_path), made=made).train(), "a fleet needs noise=")


def test_a_plan_for_another_dimension_is_refused(tmp_path):
    server_ = Server.of(Fleet(tmp_path), made=plan(dimension=25))
    assert_refused(server_.train(), "the plan is for 25 parameters; the model has 24")


def test_more_rounds_than_a_client_allows_are_refused(tmp_path):
    fleet = Fleet(tmp_path, limits={"most_participations": 2})
    _, reports = fleet.start(rounds=2)
    assert [report.failure for report in reports] == ["", ""]
    assert_refused(Server.of(fleet).train(), "limit most_participations: this node took part in 2")


def test_a_fresh_run_brings_no_fresh_budget(tmp_path):
    """Two runs of two rounds each; the total allows three rounds, whatever the run."""
    made = plan(z=2.0)
    fleet = Fleet(tmp_path, made, limits={"total_epsilon": 3.8})
    _, reports = fleet.start(rounds=2)
    assert [report.failure for report in reports] == ["", ""]
    _, reports = fleet.start(rounds=2)
    assert reports[0].failure == ""
    assert "only 0 clients take part" in reports[1].failure
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
        if message.metadata.message_type == "query.skellam_mask":
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
    assert_refused(again.train(), "stage train of this round began before")


def test_a_replayed_stage_is_refused(tmp_path):
    server_ = Server.of(Fleet(tmp_path))
    _, everybody = server_.to_masks()
    server_.ask("agree", everybody)
    assert_refused(server_.ask("agree", everybody), "stage agree of this round began before")


def test_a_letter_of_another_round_is_refused(tmp_path):
    server_ = Server.of(Fleet(tmp_path))
    server_.train()
    other = Server.of(server_.fleet, grid=server_.grid)
    assert_refused(other.ask("share", b""), "not a letter of this round")


def test_without_a_round_in_progress_every_stage_is_refused(tmp_path):
    server_ = Server.of(Fleet(tmp_path))
    for stage in ("share", "mask", "agree", "unmask"):
        assert_refused(server_.ask(stage, b""), "no round is in progress")


@pytest.mark.parametrize("garbage", ["plan", "number", "round", "invited", "update"])
def test_a_malformed_invitation_is_refused(tmp_path, garbage):
    server_ = Server.of(Fleet(tmp_path))
    record = server_.invitation.to_record()
    record[garbage] = b"x" if garbage != "round" else "x"
    content = RecordDict({"arrays": model(), "skellam": record})
    replies = server_.send("train", {2: content})
    assert_refused(replies, "no invitation of this version")


# A node without a file of its own.


def test_a_node_that_names_no_file_takes_part_in_nothing(tmp_path):
    fleet = Fleet(tmp_path)
    fleet.nodes = [{"partition-id": 1, "num-partitions": 5}] * 5
    assert_refused(Server.of(fleet).train(), "must name its file")


def test_no_server_can_put_a_real_node_into_simulation(tmp_path):
    from skellam.engines.flower import Limits

    loose = Limits(
        round_epsilon=1e6,
        total_epsilon=1e6,
        delta=0.1,
        smallest_cohort=2,
        most_participations=10**6,
    )
    fleet = Fleet(tmp_path, app=client_app(simulated=loose))
    fleet.nodes = [{"partition-id": n, "num-partitions": 5} for n in range(5)]
    assert_refused(Server.of(fleet).train(), "must name its file")


def test_noise_is_shared_among_those_that_were_counted(tmp_path):
    """The guaranteed variance is the plan's whatever the server says about the cohort."""
    made = plan(dropout=0.4)
    invitation = Server.of(Fleet(tmp_path, made)).invitation
    for members in (4, 5):
        codec = invitation.codec(bytes(32), np.arange(members, dtype=np.uint64))
        left = members - 2
        assert codec.spec.noise.share * left >= made.variance
        assert codec.spec.noise.share * left == pytest.approx(made.variance, rel=1e-9)


def test_another_nodes_roster_is_another_fleet(tmp_path):
    fleet = Fleet(tmp_path)
    fleet.nodes[4] = node_files(tmp_path / "others", numbers=[5])[0]
    server_ = Server.of(fleet)
    roll = Roll.of(tuple(adverts_of(server_))).encode()
    assert_refused(server_.ask("share", roll), "client")
