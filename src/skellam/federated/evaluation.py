"""How well a model does on public data."""

from __future__ import annotations

from dataclasses import dataclass

from skellam.federated.data import Examples, pooled
from skellam.federated.local import Learner, Measure
from skellam.federated.models import Vector
from skellam.federated.tasks import Task


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """The examples that are reported on, and apart from them those that settings are chosen by."""

    learner: Learner
    test: Examples
    validation: Examples

    @classmethod
    def of(cls, task: Task) -> Evaluation:
        """Return the evaluation of ``task``, its data in memory."""
        return cls(task.learner(), pooled(task.splits.test), pooled(task.splits.validation))

    def measure(self, model: Vector) -> tuple[Measure, Measure]:
        """Return the measures on test and validation data."""
        return (
            self.learner.evaluate(model, self.test),
            self.learner.evaluate(model, self.validation),
        )
