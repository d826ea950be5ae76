"""One round: who takes part, what they send, and what is released."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TypeAlias

from skellam.engines.adaptive import adaptive
from skellam.engines.local import Round, Sum, require_cohort
from skellam.entropy import Entropy
from skellam.errors import ThresholdError
from skellam.federated.aggregate import Aggregation
from skellam.federated.cohort import Population, heads
from skellam.federated.folder import Folder
from skellam.federated.local import Learner
from skellam.federated.models import Vector
from skellam.federated.purse import Purse
from skellam.federated.streams import Streams
from skellam.federated.tasks import Task
from skellam.plan import AdaptiveClip


@dataclass(frozen=True, slots=True)
class Skipped:
    """A round that released nothing, and why."""

    reason: str


Outcome: TypeAlias = tuple[Sum | Skipped, AdaptiveClip | None]


@dataclass(frozen=True, slots=True, eq=False)
class Rounds:
    """Runs rounds of one task; ``learner`` trains one client after the other."""

    task: Task
    population: Population
    aggregate: Aggregation
    streams: Streams
    purse: Purse
    folder: Folder
    learner: Learner
    clients: tuple[str, ...]

    def run(self, number: int, model: Vector, clip: AdaptiveClip | None) -> Outcome:
        """Return what round ``number`` releases, and the clip of the next one.

        It is paid for before, or `BudgetError` stops it. Too small a cohort is found out before the
        payment; clients that vanish, after it. A round that releases nothing leaves the clip.
        """
        entropy = self.streams.within(f"round/{number}")
        this = self._invite(number, model, entropy)
        clients = _Clients(self, model, entropy)
        outcome = self._released(this, clients, clip, entropy)
        self.folder.tell_operator(
            number,
            invited=len(this.members),
            survivors=len(this.survivors),
            failures=clients.failures,
        )
        return outcome

    def _released(
        self, this: Round, clients: _Clients, clip: AdaptiveClip | None, entropy: Streams
    ) -> Outcome:
        plan, run = self.population.plan, self.aggregate.run
        try:
            require_cohort(plan, this)
            self.purse.pay(this.number)
            if clip is None:
                return run(plan, this, clients.update, entropy=entropy), None
            return adaptive(run, plan, this, clients.update, clip, entropy=entropy)
        except ThresholdError:
            return Skipped("too few clients"), clip

    def _invite(self, number: int, model: Vector, entropy: Streams) -> Round:
        members = self.population.draw(entropy=entropy("cohort"))
        silent = self.aggregate.silent(number, members, entropy=entropy("dropout"))
        return Round(number, sha256(model.tobytes()).digest(), members, silent)


class _Clients:
    """The clients of one round."""

    def __init__(self, rounds: Rounds, model: Vector, entropy: Streams) -> None:
        self._rounds = rounds
        self._model = model
        self._entropy = entropy
        self.failures = 0

    def update(self, number: int) -> Vector | None:
        """Return a client's update; none, which counts as zeros, on tails or if training fails.

        Dropping out instead would tell that the client has such data, and lose its share of noise.
        """
        rounds, coin = self._rounds, self._rounds.population.plan.coin
        if coin is not None and not _heads(coin, self._entropy(f"coin/{number}")):
            return None
        try:
            examples = rounds.task.splits.train[rounds.clients[number]]
            return rounds.learner.update(
                self._model,
                examples,
                rounds.task.training,
                entropy=self._entropy(f"training/{number}"),
            )
        except Exception:  # noqa: BLE001  (whatever a client's data does to its training)
            self.failures += 1
            return None


def _heads(coin: float, entropy: Entropy) -> bool:
    return bool(heads(1, coin, entropy=entropy)[0])
