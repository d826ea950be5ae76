import numpy as np
import pytest

from skellam.errors import DomainError
from skellam.federated.data import Clients
from skellam.tasks.preparation import by_label, divided, shuffled

LABELS = np.repeat(np.arange(10), 60)


def split(**changes):
    return by_label(
        LABELS, **{"clients": 100, "each": 5, "concentration": 1.0, "context": "test"} | changes
    )


def test_every_row_goes_to_one_client_at_most():
    rows = np.concatenate(split())
    assert rows.shape == (500,)
    assert len(set(rows.tolist())) == 500
    assert len(set(np.concatenate(split(clients=120)).tolist())) == 600


def test_a_split_is_a_function_of_its_context():
    np.testing.assert_array_equal(np.stack(split()), np.stack(split()))
    assert not np.array_equal(np.stack(split()), np.stack(split(context="other")))
    assert sorted(shuffled(50, "a")) == list(range(50))
    assert list(shuffled(50, "a")) != list(shuffled(50, "b"))


def test_a_small_concentration_gives_few_classes_and_a_large_one_many():
    few, many = (
        np.mean([len(set(LABELS[rows])) for rows in split(concentration=c)]) for c in (0.01, 100.0)
    )
    assert few < 1.5 < 3.5 < many


@pytest.mark.parametrize(
    "wrong", [{"clients": 121}, {"clients": 0}, {"each": 0}, {"concentration": 0.0}]
)
def test_a_split_that_cannot_be_is_refused(wrong):
    with pytest.raises(DomainError):
        split(**wrong)


def test_divided_clients_are_all_there_and_in_one_group_each():
    clients = Clients(map(str, range(40)), str)
    groups = divided(clients, "test", validation=0.1, test=0.2)
    assert [len(group) for group in groups] == [28, 4, 8]
    assert set().union(*groups) == set(clients)
    with pytest.raises(DomainError, match="too few"):
        divided(clients.only(["1", "2"]), "test", validation=0.1, test=0.1)
