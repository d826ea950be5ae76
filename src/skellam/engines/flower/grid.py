"""A Flower grid on which nothing but noisy sums arrives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from logging import getLogger
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Error, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from skellam import _checks
from skellam.accounting.ledger import Ledger
from skellam.codec.layout import Layout
from skellam.engines.flower import clips
from skellam.engines.flower.cohort import invited
from skellam.engines.flower.invitation import Invitation, Update, model_digest, require_clip
from skellam.engines.flower.letters import model_of, record_of
from skellam.engines.flower.room import has_room
from skellam.engines.flower.rounds import SecureRound, Sum
from skellam.engines.flower.strategies import require_mean_based
from skellam.entropy import Entropy, random_bytes
from skellam.errors import (
    BudgetError,
    DomainError,
    InfeasibleError,
    ProtocolError,
    ShapeError,
    ThresholdError,
)
from skellam.plan import AdaptiveClip, Noise, Plan
from skellam.secagg import Roster
from skellam.vectors import Reals

_ROUND_FAILED = 1
_HOUR = 3600.0
_log = getLogger("skellam.flower")


@dataclass(frozen=True, slots=True)
class Report:
    """One round: how many were invited, and its sum, or why there is none."""

    number: int
    invited: int
    sum: Sum | None
    failure: str = ""
    clip: float | None = None
    """The clip of this round, if it adapts."""


class SecureGrid(Grid):
    """Runs every train round of a strategy through secure aggregation, under one plan and ledger.

    The strategy gets one reply: the mean of the updates, each with weight one, over ``plan.cohort``
    (never over the actual number, which depends on who took part). A round with too few survivors
    gives an error reply; the next one may succeed. `BudgetError` ends the run.

    Where the plan has ``quantile_noise``, ``clip`` moves after every sum; with a ``clip_file`` a
    server that is started again goes on with the clip in it.
    """

    def __init__(
        self,
        grid: Grid,
        plan: Plan,
        ledger: Ledger,
        *,
        strategy: Strategy,
        roster: Roster,
        entropy: Entropy,
        update: Update | str = Update.DIFFERENCE,
        clip: AdaptiveClip | None = None,
        clip_file: str | PathLike[str] | None = None,
        stage_timeout: float = 300.0,
    ) -> None:
        require_mean_based(strategy)
        if plan.noise is not Noise.SKELLAM:
            raise DomainError(f'plan must have noise="skellam" on a fleet, got "{plan.noise}"')
        require_clip(plan, clip)
        self._clip_file = None if clip_file is None else Path(clip_file)
        if clip is not None and self._clip_file is not None:
            clip = clips.restore(self._clip_file, clip, plan)
        self._clip = clip
        self._grid, self._plan, self._ledger = grid, plan, ledger
        self._roster, self._entropy = roster, entropy
        self._update = Update(update)
        self._stage_timeout = _checks.positive("stage_timeout", stage_timeout)
        self._weight = getattr(strategy, "weighted_by_key", "num-examples")
        self._dtypes: dict[str, np.dtype[Any]] = {}
        self._reports: list[Report] = []
        plan.spec()

    @property
    def reports(self) -> tuple[Report, ...]:
        """What became of each round so far."""
        return tuple(self._reports)

    @property
    def clip(self) -> AdaptiveClip | None:
        """The clip of the next round, if it adapts."""
        return self._clip

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Run one round among the nodes of ``messages`` and return one reply with the mean."""
        letters = list(messages)
        if not letters:
            return []
        if {letter.metadata.message_type for letter in letters} != {MessageType.TRAIN}:
            raise DomainError(
                "only train messages go through secure aggregation; answers of single nodes to "
                "anything else are refused. Evaluate on the server, with evaluate_fn"
            )
        return [self._train(letters, _HOUR if timeout is None else timeout)]

    def _train(self, letters: list[Message], timeout: float) -> Message:
        self._require_budget()
        key, model = self._model(letters)
        contents = {m.metadata.dst_node_id: m.content for m in letters}
        number, asked = len(self._reports) + 1, 0
        try:
            nodes = invited(self._plan, list(contents), entropy=self._entropy)
            asked = len(nodes)
            record = record_of(model)
            found = self._round(number, asked, model_digest(model), timeout).run(
                {node: RecordDict({**contents[node], key: record}) for node in nodes}
            )
        except (ProtocolError, InfeasibleError) as error:
            return self._failed(letters[0], self._report(asked, failure=str(error)))
        self._reports.append(self._report(asked, found))
        self._move_clip(found)
        content = RecordDict(
            {
                key: record_of(self._applied(model, found.total / self._plan.cohort)),
                "metrics": MetricRecord({self._weight: 1}),
            }
        )
        return Message(content, reply_to=letters[0])

    def _report(self, asked: int, found: Sum | None = None, failure: str = "") -> Report:
        clip = None if self._clip is None else self._clip.clip
        return Report(len(self._reports) + 1, asked, found, failure, clip)

    def _move_clip(self, found: Sum) -> None:
        if self._clip is None or found.balance is None:
            return
        self._clip = self._clip.after(found.balance, self._plan)
        if self._clip_file is not None:
            clips.keep(self._clip_file, self._clip, self._plan)

    def _failed(self, letter: Message, report: Report) -> Message:
        self._reports.append(report)
        _log.warning("round %d released nothing: %s", report.number, report.failure)
        return Message(Error(_ROUND_FAILED, report.failure), reply_to=letter)

    def _round(self, number: int, asked: int, model: bytes, timeout: float) -> SecureRound:
        if asked < 2:
            raise ThresholdError(f"{asked} nodes were drawn; a sum needs two at least")
        round_id = random_bytes(32, entropy=self._entropy)
        invitation = Invitation(self._plan, number, round_id, asked, self._update, self._clip)
        return SecureRound(
            self._grid,
            self._ledger,
            self._roster,
            invitation,
            model,
            train_timeout=timeout,
            stage_timeout=self._stage_timeout,
        )

    def _model(self, letters: list[Message]) -> tuple[str, dict[str, NDArray[Any]]]:
        """Return the one model of all letters, each array with the type that it had at first.

        Flower's averaging turns integer tensors into floats, which would make them parameters.
        """
        key, arrays = model_of(letters[0].content)
        record = letters[0].content[key]
        for letter in letters[1:]:
            other = letter.content.get(key)
            if other is not record and (
                model_digest(model_of(letter.content)[1]) != model_digest(arrays)
            ):
                raise DomainError("every node must be given the same arrays in a round")
        if not self._dtypes:
            self._dtypes = {name: array.dtype for name, array in arrays.items()}
        model = {name: a.astype(self._dtypes.get(name, a.dtype)) for name, a in arrays.items()}
        dimension = Layout.of(model).dimension
        if dimension != self._plan.dimension:
            raise ShapeError(
                f"the model has {dimension} parameters; the plan is for {self._plan.dimension}"
            )
        return key, model

    def _applied(self, model: dict[str, NDArray[Any]], mean: Reals) -> dict[str, NDArray[Any]]:
        layout = Layout.of(model)
        if self._update is Update.DIFFERENCE:
            return layout.join(layout.flatten(model) + mean.values, like=model)
        return layout.join(mean, like={name: np.zeros_like(a) for name, a in model.items()})

    def _require_budget(self) -> None:
        """Raise `BudgetError` before anybody trains for a round that may not be released."""
        account = self._ledger.account
        if not has_room(account, self._plan.mechanism):
            raise BudgetError(
                f"another round would exceed the budget of epsilon {account.terms.epsilon:g} at "
                f"delta {account.terms.delta:g}; the run ends here"
            )

    # What passes straight through, and what would go around the protocol.

    def set_run(self, run: Any) -> None:  # noqa: ANN401  (Flower's type is private)
        """Set the run of the grid underneath."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:  # noqa: ANN401
        """The run of the grid underneath."""
        return self._grid.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a message of this run."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Return who is connected."""
        return self._grid.get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Refuse: messages outside `send_and_receive` would go around the protocol."""
        del messages
        raise DomainError("use send_and_receive; single messages would go around the protocol")

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Refuse: messages outside `send_and_receive` would go around the protocol."""
        del message_ids
        raise DomainError("use send_and_receive; single messages would go around the protocol")
