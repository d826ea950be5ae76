"""What does it save to train many clients at once, against one after the other?

Both are the library's own (`fl.Task(vmap=...)`); the updates agree to 1e-5, which the tests show.
CPU time of one thread, 64 clients.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from benchmarks.timing import Report, interleave
from torch import Tensor, nn

import skellam as sk
from skellam import federated as fl
from skellam import tasks
from skellam.tasks import models

CLIENTS = 64
ENTROPY = sk.SystemEntropy()


def main() -> None:
    report = Report(
        "Local training", "what", "ms a client", "peer", "its ms", peers=("peer", "its ms")
    )
    for name, task, floor in cases():
        worker, start = rehearsed(task)
        names = list(task.clients)[:CLIENTS]
        timing = interleave(
            {"one": alone(worker, start, names), "many": together(worker, start, names)}, repeats=2
        )
        one, many = (1000 * timing.least(rival) / CLIENTS for rival in ("one", "many"))
        cells = (name, f"{many:.3g}", "one by one / at once", f"{one:.3g}")
        report.row(*cells, ratio=timing.ratio("one", "many"), floor=floor)
    report.print()


def cases() -> list[tuple[str, fl.Task, float]]:
    """Return tasks with the ratio that each must reach."""
    rng = np.random.default_rng(1)
    shape, classes = (20, 28, 28), 10
    images = {
        str(n): (rng.normal(size=shape).astype(np.float32), rng.integers(0, classes, 20))
        for n in range(CLIENTS)
    }
    texts = {
        str(n): (rng.integers(0, 30, (16, 16)), rng.integers(0, classes, 16))
        for n in range(CLIENTS)
    }
    settings = {"optimizer": fl.sgd(0.1), "batch_size": 20}
    return [
        ("linear, 2 digits", tasks.digits(), 2.0),
        ("small CNN, 20 images", fl.Task(models.small_cnn(classes), images, **settings), 1.2),
        ("transformer, 16 texts", fl.Task(Transformer(classes), texts, **settings), 2.0),
    ]


class Transformer(nn.Module):
    """One layer of a transformer, and a class for each text."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(30, 16), nn.Linear(16, classes)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores of the classes."""
        return self.out(self.layer(self.embed(tokens)).mean(1))


def rehearsed(task: fl.Task) -> tuple[fl.GroupWorker, np.ndarray]:
    """Return a worker that knows that clients can be trained at once, and the first weights."""
    worker, start = task.worker(), task.initial(entropy=ENTROPY)
    worker.rehearse(start, entropy=ENTROPY)
    if worker.at_once < CLIENTS:
        raise SystemExit(f"{task.name} is trained one by one")
    return worker, start


def alone(worker: fl.GroupWorker, start: np.ndarray, names: list[str]) -> Callable[[], object]:
    return lambda: [worker.update(start, name, 0, entropy=ENTROPY) for name in names]


def together(worker: fl.GroupWorker, start: np.ndarray, names: list[str]) -> Callable[[], object]:
    return lambda: worker.updates(start, names, 0, entropy=[ENTROPY] * len(names))


if __name__ == "__main__":
    main()
