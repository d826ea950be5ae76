import sys

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from oracles.tiny_task import plan, seeded, task
from skellam import federated as fl


def run(folder):
    return fl.train(
        task(), plan(rounds=2), aggregate=fl.unmasked(), entropy=seeded(), folder=folder
    )


def test_without_tensorboard_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    run(tmp_path)
    assert not (tmp_path / "tensorboard").exists()


def test_with_tensorboard_every_measure_is_an_event(tmp_path):
    history = run(tmp_path)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    shown = [event.value for event in events.Scalars("test_accuracy")]
    assert shown == pytest.approx([record.test_accuracy for record in history.records])
    assert [event.wall_time for event in events.Scalars("test_loss")] == [0, 1]
    assert not {"round", "skipped"} & set(events.Tags()["scalars"])
