"""How well a model does on public data."""

from __future__ import annotations

from dataclasses import dataclass

from skellam.federated.data import ClientData, Examples, pooled
from skellam.federated.local import Learner, Measure
from skellam.federated.models import Vector
from skellam.federated.tasks import Task

MOST = 50_000
"""Examples that are measured, and a client's more: Stack Overflow has millions."""


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """The examples that are reported on, and apart from them those that settings are chosen by."""

    learner: Learner
    test: Examples
    validation: Examples

    @classmethod
    def of(cls, task: Task) -> Evaluation:
        """Return the evaluation of ``task``, its data in memory."""
        test, validation = (_first(split) for split in (task.splits.test, task.splits.validation))
        return cls(task.learner(), test, validation)

    def measure(self, model: Vector) -> tuple[Measure, Measure]:
        """Return the measures on test and validation data."""
        return (
            self.learner.evaluate(model, self.test),
            self.learner.evaluate(model, self.validation),
        )


def _first(data: ClientData) -> Examples:
    """Return the examples of as many clients as it takes, in their order."""
    chosen, count = [], 0
    for client, examples in data.items():
        chosen.append(client)
        count += len(examples)
        if count >= MOST:
            break
    return pooled(data.only(chosen))
