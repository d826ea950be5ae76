import numpy as np
import pytest

from skellam.errors import DataError, DomainError
from skellam.federated.data import Clients, Examples, arrays, as_clients, clients, pooled

ONE = (np.zeros((3, 4)), [0, 1, 2])
TWO = (np.ones((2, 4)), [1, 1])


def test_any_mapping_from_client_to_inputs_and_targets_is_federated_data():
    data = arrays({"b": ONE, "a": Examples(np.ones((2, 4)), np.array([1, 1]))})
    assert list(data) == ["b", "a"]
    assert len(data) == 2
    assert data["b"].inputs.dtype == np.float32
    assert data["b"].targets.dtype == np.int64
    assert "c" not in data
    with pytest.raises(KeyError):
        data["c"]


def test_targets_of_regression_are_float32():
    assert Examples(np.zeros((2, 4)), np.array([0.5, 1.5])).targets.dtype == np.float32


def test_pooled_examples_stand_client_after_client():
    data = arrays({"x": ONE, "y": TWO, "z": TWO})
    assert pooled(data).targets.tolist() == [0, 1, 2, 1, 1, 1, 1]
    assert len(pooled(data, max_examples=4)) == 5


def test_data_is_loaded_when_it_is_asked_for():
    asked = []
    loaded = clients(["a", "b"], lambda client: asked.append(client) or client.upper())
    doubled = loaded.map(lambda held: held * 2).only(["b"])
    assert asked == []
    assert dict(doubled) == {"b": "BB"}
    assert asked == ["b"]


def test_names_become_text_and_must_stay_apart():
    held = as_clients({7: "seven", "x": "ex"})
    assert dict(held) == {"7": "seven", "x": "ex"}
    assert as_clients(held) is held
    with pytest.raises(DataError, match="same name"):
        as_clients({7: 1, "7": 2})
    with pytest.raises(DomainError, match=r"fl\.data\.clients"):
        as_clients([1, 2])


def test_only_clients_that_are_there_can_be_chosen():
    with pytest.raises(DomainError, match="'z'"):
        arrays({"a": ONE}).only(["z"])
    with pytest.raises(DataError, match="at least one"):
        Clients([], str)


@pytest.mark.parametrize(
    "held",
    [
        (np.zeros((3, 4)), [0, 1]),
        (np.zeros((3, 4)), ["a", "b", "c"]),
        (np.array(["a", "b"]), [0, 1]),
        (np.array([[np.nan]]), [0]),
        (np.zeros((1, 1)), [np.inf]),
        (np.zeros(3), 0),
        np.zeros(3),
        None,
    ],
)
def test_examples_that_do_not_fit_together_are_refused_with_their_client(held):
    with pytest.raises(DataError, match="client 'me'"):
        arrays({"me": held})


def test_clients_must_hold_the_same_shape_and_there_must_be_some():
    with pytest.raises(DataError, match="same shape"):
        arrays({"a": ONE, "b": (np.zeros((2, 5)), [0, 1])})
    with pytest.raises(DataError, match="at least one"):
        arrays({})
    with pytest.raises(DomainError, match="mapping"):
        arrays([ONE])
