import numpy as np
import pytest

from skellam.errors import DataError, DomainError
from skellam.federated.data import Clients, Examples, client_data, pooled

ONE = (np.zeros((3, 4)), [0, 1, 2])
TWO = (np.ones((2, 4)), [1, 1])


def test_any_mapping_from_client_to_inputs_and_targets_is_federated_data():
    data = client_data({"b": ONE, "a": Examples(np.ones((2, 4)), np.array([1, 1]))})
    assert list(data) == ["b", "a"]
    assert len(data) == 2
    assert data["b"].inputs.dtype == np.float32
    assert data["b"].targets.dtype == np.int64
    assert "c" not in data
    with pytest.raises(KeyError):
        data["c"]


def test_pooled_examples_stand_client_after_client():
    together = pooled(client_data({"x": ONE, "y": TWO}))
    assert together.targets.tolist() == [0, 1, 2, 1, 1]
    assert together.inputs.shape == (5, 4)


def test_data_is_loaded_when_it_is_asked_for():
    asked = []
    clients = Clients(["a", "b"], lambda client: asked.append(client) or client.upper())
    doubled = clients.map(lambda held: held * 2).only(["b"])
    assert asked == []
    assert dict(doubled) == {"b": "BB"}
    assert asked == ["b"]


def test_only_clients_that_are_there_can_be_chosen():
    with pytest.raises(DomainError, match="'z'"):
        client_data({"a": ONE}).only(["z"])


@pytest.mark.parametrize(
    "held",
    [
        (np.zeros((3, 4)), [0, 1]),
        (np.zeros((3, 4)), [0.5, 1.0, 2.0]),
        (np.array(["a", "b"]), [0, 1]),
        (np.array([[np.nan]]), [0]),
        (np.zeros(3), 0),
        np.zeros(3),
        None,
    ],
)
def test_examples_that_do_not_fit_together_are_refused_with_their_client(held):
    with pytest.raises(DataError, match="client 'me'"):
        client_data({"me": held})


def test_clients_must_hold_the_same_shape_and_there_must_be_some():
    with pytest.raises(DataError, match="same shape"):
        client_data({"a": ONE, "b": (np.zeros((2, 5)), [0, 1])})
    with pytest.raises(DataError, match="at least one"):
        client_data({})
    with pytest.raises(DomainError, match="mapping"):
        client_data([ONE])
