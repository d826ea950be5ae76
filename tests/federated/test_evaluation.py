from oracles.tiny_task import examples, task
from skellam.federated import evaluation
from skellam.federated.data import Splits, client_data


def test_a_huge_split_is_measured_by_its_first_clients(monkeypatch):
    monkeypatch.setattr(evaluation, "MOST", 100)
    many = client_data({f"{n:03d}": examples(30, n) for n in range(50)})
    few = client_data({"only": examples(30, 7)})
    splits = Splits(few, few, many, classes=3)
    measured = evaluation.Evaluation.of(task(splits=splits))
    assert len(measured.test) == 120
    assert len(measured.validation) == 30
