"""The ledger holds as many spends as there are releases with one client's data in them, at most."""

import shutil
from collections import Counter

import numpy as np
import pytest

import skellam as sk
from oracles.tiny_task import plan, task
from skellam import federated as fl
from skellam.accounting import epsilon
from skellam.accounting.ledger import Ledger
from skellam.errors import DataError, LedgerError
from skellam.federated.history import read_operator
from skellam.federated.sampling import Participations
from skellam.federated.spending import HIDDEN_FROM_HELPER

CLIENTS = tuple(f"c{n:02d}" for n in range(12))


class CountedTask:
    """Counts each client's updates; is killed after ``releases`` releases, where that is given."""

    name, training, dimension, fixed = "counted", "none", 15, ""
    clients = dict.fromkeys(CLIENTS)

    def __init__(self, releases=None):
        self.counts, self._left = Counter(), releases

    def initial(self, *, entropy):
        return np.zeros(15, dtype=np.float32)

    def worker(self):
        return self

    def rehearse(self, model, *, entropy):
        pass

    def update(self, model, client, number, *, entropy):
        self.counts[client] += 1
        return np.full(15, 0.01, dtype=np.float32)

    def measure(self, model):
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                raise KeyboardInterrupt
        return {}, {}

    def observe(self, record):
        pass

    def torch_model(self, model):
        return None


def run(counted, made, folder, **options):
    options = {"aggregate": fl.unmasked(), **options}
    return fl.train(counted, made, entropy=sk.SystemEntropy(), folder=folder, **options)


def test_rounds_that_were_skipped_leave_later_ones_to_be_spent(tmp_path):
    made = plan(sampling="all", population=None, cohort=12, rounds=6, participations=3)
    counted, few = CountedTask(), range(8)
    skipping = fl.unmasked(dropout={0: few, 1: few, 2: few})
    history = run(counted, made, tmp_path, aggregate=skipping)
    spent = Ledger.verify(tmp_path / "ledger")
    assert [record.skipped is None for record in history.records] == [False] * 3 + [True] * 3
    assert set(counted.counts.values()) == {3}
    true = epsilon(made.server_mechanism, rounds=3, delta=1e-3)
    assert spent.epsilon() == true
    assert {found.epsilon for found in history.guarantees} == {true}


def test_a_cyclic_round_that_was_killed_after_its_release_is_spent_twice(tmp_path):
    made = plan(sampling="cyclic", cohort=6, rounds=8)
    counts = Counter()
    for attempt in range(4):
        killed = CountedTask(releases=1)
        with pytest.raises(KeyboardInterrupt):
            run(killed, made, tmp_path, resume=attempt > 0)
        counts.update(killed.counts)
    spent = Ledger.verify(tmp_path / "ledger")
    assert max(counts.values()) == len(spent.spends) > 1
    assert spent.epsilon() == epsilon(made.server_mechanism, rounds=len(spent.spends), delta=1e-3)


@pytest.mark.parametrize(
    "made",
    [
        plan(sampling="all", population=None, cohort=12, rounds=6, participations=3),
        plan(sampling="poisson", rounds=3),
    ],
    ids=["all", "poisson"],
)
def test_two_runs_from_one_ledger_allow_a_client_twice_as_many_rounds(tmp_path, made):
    with Ledger.create(tmp_path / "ledger", epsilon=1000.0, delta=1e-3) as ledger:
        one = run(CountedTask(), made, tmp_path / "one", ledger=ledger).guarantees
        two = run(CountedTask(), made, tmp_path / "two", ledger=ledger).guarantees
    assert one.server.epsilon == epsilon(made.server_mechanism, rounds=3, delta=1e-3)
    assert two.server.epsilon == epsilon(made.server_mechanism, rounds=6, delta=1e-3)


def test_what_a_helper_knows_of_other_plans_releases_is_an_assumption(tmp_path):
    """A ledger does not say whether the helper drew all the noise of an earlier run."""
    fields = {"sampling": "cyclic", "cohort": 6, "rounds": 2, "aggregation": "two-servers"}
    alone, both = (
        sk.Plan(dimension=15, clip=1.0, population=12, noise_by=by, **fields).with_noise(
            z, delta=1e-3
        )
        for by, z in (("helper", 2.5), ("both", 2.0))
    )
    settings = {"aggregate": fl.two_servers()}
    with Ledger.create(tmp_path / "ledger", epsilon=1000.0, delta=1e-3) as ledger:
        first = run(CountedTask(), alone, tmp_path / "one", ledger=ledger, **settings).guarantees
        second = run(CountedTask(), both, tmp_path / "two", ledger=ledger, **settings).guarantees
    assert first.helper.epsilon == np.inf
    assert HIDDEN_FROM_HELPER in second.helper.assumptions
    assert HIDDEN_FROM_HELPER not in second.leader.assumptions


def test_the_example_task_is_spent_like_any_other(tmp_path):
    made = plan(sampling="cyclic", cohort=6, rounds=4)
    fl.train(task(), made, aggregate=fl.unmasked(), entropy=sk.SystemEntropy(), folder=tmp_path)
    assert len(Ledger.verify(tmp_path / "ledger").spends) == 2


def test_a_self_sampling_client_is_counted_whenever_it_is_asked(tmp_path):
    """Each invitation is a sampled release against the server, whatever the client's coin says."""
    made = plan(sampling="self", participation_probability=0.7, rounds=5)
    run(CountedTask(), made, tmp_path)
    kept = Participations.from_bytes((tmp_path / "participations.npz").read_bytes())
    invited = sum(line["invited"] for line in read_operator(tmp_path))
    assert kept.counts.sum() + len(kept.members) == invited


def stopped_after_three_rounds(made, tmp_path, ledger):
    """Return the folder of a run, and a copy of it after its first round."""
    folder, old = tmp_path / "run", tmp_path / "old"

    def watch(record):
        if record.round == 0:
            shutil.copytree(folder, old)
        if record.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(CountedTask(), made, folder, ledger=ledger, watch=watch)
    return folder, old


@pytest.mark.parametrize("sampling", ["cyclic", "poisson"])
def test_a_folder_that_is_older_than_its_ledger_is_refused(tmp_path, sampling):
    """Rounds would be released again with other noise, and counted once."""
    made = plan(sampling=sampling, cohort=6 if sampling == "cyclic" else 8)
    with Ledger.create(tmp_path / "ledger", epsilon=1000.0, delta=1e-3) as ledger:
        _, old = stopped_after_three_rounds(made, tmp_path, ledger)
        spends = ledger.account.spends
        with pytest.raises(LedgerError, match="old copies"):
            run(CountedTask(), made, old, ledger=ledger, resume=True)
        assert ledger.account.spends == spends


@pytest.mark.parametrize("sampling", ["cyclic", "poisson"])
def test_a_run_that_lost_its_participations_is_refused(tmp_path, sampling):
    made = plan(sampling=sampling, cohort=6 if sampling == "cyclic" else 8)
    with Ledger.create(tmp_path / "ledger", epsilon=1000.0, delta=1e-3) as ledger:
        folder, _ = stopped_after_three_rounds(made, tmp_path, ledger)
        (folder / "participations.npz").unlink()
        with pytest.raises(DataError, match="participations"):
            run(CountedTask(), made, folder, ledger=ledger, resume=True)


def test_a_run_goes_on_with_its_clients_in_their_order_alone(tmp_path):
    """Groups are dealt, and participations counted, by position: of a set, another one each time.

    Reversed, clients of the first groups would be in the next ones as well, within the band.
    """

    class ReversedTask(CountedTask):
        clients = dict.fromkeys(reversed(CLIENTS))

    made = plan(sampling="cyclic", cohort=3, rounds=4)
    assert made.participations == 1
    first, second = CountedTask(releases=3), ReversedTask()
    with pytest.raises(KeyboardInterrupt):
        run(first, made, tmp_path)
    with pytest.raises(DataError, match="other clients or their order"):
        run(second, made, tmp_path, resume=True)
    assert not second.counts
