from dataclasses import replace

from oracles.tiny_task import seeded, task
from skellam import federated as fl
from skellam import tasks

TINY = replace(
    tasks.preset("digits"),
    clips=(0.5, 1.0),
    learning_rates=(0.001, 1.0),
    cohort=9,
    population=12,
    rounds=4,
    delta=1e-3,
)


def sweep(folder):
    return tasks.sweep(
        TINY,
        task(),
        epsilon=50,
        aggregate=fl.unmasked(),
        entropy=seeded(),
        folder=folder,
        last=2,
    )


def test_a_sweep_tries_every_combination_and_chooses_by_validation(tmp_path):
    cells = sweep(tmp_path)
    assert {(cell.clip, cell.learning_rate) for cell in cells} == {
        (clip, rate) for clip in (0.5, 1.0) for rate in (0.001, 1.0)
    }
    chosen = [cell.measures.validation_accuracy for cell in cells]
    assert chosen == sorted(chosen, reverse=True)
    assert cells[0].learning_rate == 1.0
    assert len(list(tmp_path.glob("*/ledger"))) == 4
    assert sweep(tmp_path) == cells
