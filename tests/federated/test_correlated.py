"""Training with noise that cancels over rounds: spending, resuming, and what is refused."""

import numpy as np
import pytest

import skellam as sk
from oracles import tiny_task as tiny
from skellam import federated as fl
from skellam.errors import DomainError
from skellam.federated.history import Folder

BAND = (2, 1, 1)
WAYS = pytest.mark.parametrize("aggregate", [fl.unmasked, fl.two_servers])


def plan(**changes):
    settings = {
        "cohort": 4,
        "rounds": 8,
        "dropout": 0.0,
        "sampling": "cyclic",
        "aggregation": "two-servers",
        "correlation": BAND,
        "server_momentum": 0.9,
    }
    return tiny.plan(**{**settings, **changes})


def train(aggregate=fl.unmasked, made=None, **changes):
    settings = {"aggregate": aggregate(), "entropy": tiny.seeded()}
    return fl.train(tiny.task(), made or plan(), **{**settings, **changes})


@WAYS
def test_a_run_has_the_epsilon_of_its_plan_against_everybody(aggregate, tmp_path):
    made = plan()
    history = train(aggregate, made, entropy=sk.SystemEntropy(), folder=tmp_path / "run")
    assert [record.skipped for record in history.records] == [None] * 8
    found, planned = history.guarantees, made.guarantees()
    assert found.leader.epsilon == pytest.approx(planned.leader.epsilon)
    assert found.helper.epsilon == pytest.approx(planned.helper.epsilon)
    assert found.public.epsilon == pytest.approx(planned.public.epsilon)


def test_each_participation_is_spent_whole_when_it_happens(tmp_path):
    made = plan()
    history = train(made=made, entropy=sk.SystemEntropy(), folder=tmp_path / "run")
    spent = [record.epsilon_server for record in history.records]
    one, two, three = (made.privacy(rounds=3 * k).epsilon for k in (1, 2, 3))
    assert spent == pytest.approx([one] * 3 + [two] * 3 + [three] * 2)


@pytest.mark.parametrize(
    ("aggregate", "stop"), [(fl.unmasked, 1), (fl.unmasked, 7), (fl.two_servers, 4)]
)
def test_a_seeded_run_that_goes_on_releases_the_same_numbers(aggregate, stop, tmp_path):
    class KilledError(Exception):
        pass

    def kill(record):
        if record.round == stop:
            raise KilledError

    whole = train(aggregate)
    with pytest.raises(KilledError):
        train(aggregate, folder=tmp_path / "run", watch=kill)
    resumed = train(aggregate, folder=tmp_path / "run", resume=True)
    assert np.array_equal(whole.model, resumed.model)
    assert whole.records == resumed.records


@WAYS
def test_a_round_that_was_cut_off_is_not_opened_again_with_other_noise(
    aggregate, tmp_path, monkeypatch
):
    """Its sum has the clients of the whole band in it, and was spent for its own clients alone."""
    keep, opened = Folder.keep, []
    made = plan()

    class KilledError(Exception):
        pass

    def cut_off(self, record, checkpoint):
        opened.append(record.round)
        if record.round == 4 and len(opened) == 5:
            raise KilledError
        keep(self, record, checkpoint)

    monkeypatch.setattr(Folder, "keep", cut_off)
    settings = {"made": made, "folder": tmp_path / "run", "entropy": sk.SystemEntropy()}
    with pytest.raises(KilledError):
        train(aggregate, **settings)
    history = train(aggregate, **settings, resume=True)
    skipped = {r.round: r.skipped for r in history.records if r.skipped}
    assert list(skipped) == [4]
    assert "cut off" in skipped[4]
    assert history.guarantees.leader.epsilon <= made.privacy().epsilon * (1 + 1e-9)


def test_a_seeded_round_that_was_cut_off_is_the_same_again(tmp_path, monkeypatch):
    keep, count = Folder.keep, []

    class KilledError(Exception):
        pass

    def cut_off(self, record, checkpoint):
        count.append(record.round)
        if len(count) == 5:
            raise KilledError
        keep(self, record, checkpoint)

    whole = train()
    monkeypatch.setattr(Folder, "keep", cut_off)
    with pytest.raises(KilledError):
        train(folder=tmp_path / "run")
    assert np.array_equal(whole.model, train(folder=tmp_path / "run", resume=True).model)


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (fl.adam(learning_rate=0.1), "fl.fedavg"),
        (fl.fedavg(momentum=0.5), "server_momentum"),
        (fl.fedavg(), "server_momentum"),
    ],
)
def test_servers_in_whose_model_noise_does_not_cancel_as_planned_are_refused(server, words):
    with pytest.raises(DomainError, match=words):
        train(server=server)


def test_ways_that_run_every_round_by_itself_are_refused():
    for aggregate in (fl.secure(), fl.trusted_sum()):
        with pytest.raises(DomainError, match=r"two_servers|unmasked"):
            train(aggregate=lambda aggregate=aggregate: aggregate)
    assert train(fl.non_private).guarantees is None
