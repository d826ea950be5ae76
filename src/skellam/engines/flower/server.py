"""The server: a Flower grid on which nothing but noisy sums arrives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from logging import getLogger
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from flwr.app import Context, Error, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from skellam import _checks
from skellam.accounting.ledger import Ledger
from skellam.engines.flower.messages import common_digest, model_of, record_of
from skellam.engines.flower.node import open_ledger
from skellam.engines.flower.round_config import (
    MetricRanges,
    Ranges,
    RoundConfig,
    UpdateKind,
    ranges_of,
    require_clip,
    run_config_digest,
)
from skellam.engines.flower.rounds import (
    FleetResult,
    NodeFault,
    Progress,
    SecureRound,
    TwoServerRound,
)
from skellam.engines.flower.simulation import (
    simulated_nodes,
    simulated_roster,
    simulation_folder,
)
from skellam.engines.flower.strategies import (
    adapt,
    require_linear,
    require_plans,
    require_servers,
)
from skellam.engines.key_files import read_roster
from skellam.engines.leader import HelperLine, LeaderFiles
from skellam.engines.sampling import invited
from skellam.entropy import Entropy, SystemEntropy, random_bytes
from skellam.errors import (
    BudgetError,
    DomainError,
    InfeasibleError,
    ProtocolError,
    ShapeError,
    SkellamError,
    ThresholdError,
)
from skellam.plan import AdaptiveClip, CalibratedPlan, Plan
from skellam.secagg import Roster
from skellam.secagg.parameters import require_countable
from skellam.vectors import Layout, Reals

EVALUATE_SHARE = 0.2
"""Part of epsilon that evaluations get where `secured` divides it."""
MAX_FAULTS = 2
"""A node that was blamed as often is left out of all further rounds."""
_ROUND_FAILED = 1
_HOUR = 3600.0
_log = getLogger("skellam.flower")


@dataclass(frozen=True, slots=True)
class RoundReport:
    """One round: how many were asked, and its sum, or why there is none and who is to blame."""

    number: int
    invited: int
    result: FleetResult | None
    failure: str = ""
    clip: float | None = None
    """The clip of this round, if it adapts."""
    faults: tuple[NodeFault, ...] = ()
    """Messages that counted as not sent, in rounds that succeeded too."""
    content: bytes = bytes(32)
    """Digest of what the nodes were given; the round's public seed depends on it."""


class SecureGrid(Grid):
    """Runs every train round of a strategy through secure aggregation, under one plan and ledger.

    The strategy gets one reply: the mean of the updates, each with weight one, over ``plan.cohort``
    (never over the actual number, which depends on who took part). A round with too few survivors
    gives an error reply; the next one may succeed. `BudgetError` ends the run. ``run_config`` is
    the ``context.run_config`` of the server app: nodes compare it with theirs.

    ``metrics`` names what is summed beside the updates, with ranges; the plan must pay for it
    (`MetricRanges.planned`). With an ``evaluate_plan`` evaluate rounds sum ``evaluate_metrics``.

    A plan for two servers needs the address of the ``helper`` and the files of its ``leader``,
    which is this server: a round is then one message a node and one request to the helper.

    Where the plan has ``quantile_noise``, ``clip`` moves after every sum. With a ``progress_file``
    a server that is started again goes on with the clip, the number of the round and, where cohorts
    are cyclic, those who had their turn; without one it begins, and spends for, a new cycle.
    """

    def __init__(
        self,
        grid: Grid,
        plan: CalibratedPlan,
        ledger: Ledger,
        *,
        strategy: Strategy,
        roster: Roster,
        entropy: Entropy,
        run_config: Mapping[str, Any] | None = None,
        update: UpdateKind | str = UpdateKind.DIFFERENCE,
        metrics: Ranges = None,
        evaluate_metrics: Ranges = None,
        evaluate_plan: CalibratedPlan | None = None,
        clip: AdaptiveClip | None = None,
        progress_file: str | PathLike[str] | None = None,
        helper: str | HelperLine | None = None,
        leader: LeaderFiles | None = None,
        stage_timeout: float = 300.0,
    ) -> None:
        adapt(strategy, evaluates=evaluate_plan is not None)
        require_linear(strategy, plan)
        self._metrics, self._evaluate_metrics = ranges_of(metrics), ranges_of(evaluate_metrics)
        require_plans(plan, evaluate_plan, self._evaluate_metrics)
        require_servers(plan, evaluate_plan, helper, leader)
        require_clip(plan, clip)
        self._progress_file = None if progress_file is None else Path(progress_file)
        self._progress = Progress.begin(clip, entropy=entropy)
        if self._progress_file is not None:
            self._progress = self._progress.restored(self._progress_file, plan)
        self._grid, self._plan, self._ledger = grid, plan, ledger
        self._evaluate_plan = evaluate_plan
        self._roster, self._entropy = roster, entropy
        self._run_config = run_config_digest(run_config or {})
        self._update = UpdateKind(update)
        self._stage_timeout = _checks.positive("stage_timeout", stage_timeout)
        self._weight = getattr(strategy, "weighted_by_key", "num-examples")
        named = [
            name for ranges in (self._metrics, self._evaluate_metrics) for name in ranges or ()
        ]
        if self._weight in named:
            raise DomainError(
                f"{self._weight!r} is the weight of a client, which is 1 for all; "
                "choose another name for the metric"
            )
        self._leaders = {
            made.digest: leader.open(made, roster, helper, entropy=entropy)
            for made in (plan, evaluate_plan)
            if made is not None and leader is not None and helper is not None
        }
        self._dtypes: dict[str, np.dtype[Any]] = {}
        self._reports: list[RoundReport] = []
        self._blamed: Counter[int] = Counter()

    @property
    def reports(self) -> tuple[RoundReport, ...]:
        """What became of each round so far, evaluations among them."""
        return tuple(self._reports)

    @property
    def clip(self) -> AdaptiveClip | None:
        """The clip of the next round, if it adapts."""
        return self._progress.clip

    @property
    def left_out(self) -> frozenset[int]:
        """The nodes that were blamed too often to be asked again."""
        return frozenset(node for node, count in self._blamed.items() if count >= MAX_FAULTS)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Run one round among the nodes of ``messages`` and return one reply with the mean."""
        asked = list(messages)
        if not asked:
            return []
        kinds = {message.metadata.message_type for message in asked}
        wait = _HOUR if timeout is None else timeout
        if kinds == {MessageType.TRAIN}:
            return [self._train(asked, wait)]
        if kinds == {MessageType.EVALUATE} and self._evaluate_plan is not None:
            return [self._evaluate(asked, self._evaluate_plan, wait)]
        raise DomainError(
            "only train messages go through secure aggregation, and evaluate messages where there "
            "is an evaluate_plan; answers of single nodes to anything else are refused. Evaluate "
            "on the server, with evaluate_fn"
        )

    def _train(self, asked: list[Message], timeout: float) -> Message:
        contents, key, model = self._contents(asked)
        report = self._round(self._plan, self._update, contents, timeout)
        if report.result is None:
            return self._failed(asked[0], report)
        if (wide := self._plan.signal_warning(report.result.wrap)) is not None:
            _log.warning("round %d: %s", report.number, wide)
        self._move_clip(report.result)
        mean = report.result.total / self._plan.cohort
        content = RecordDict(
            {
                key: record_of(self._applied(model, mean)),
                "metrics": MetricRecord({**report.result.metrics, self._weight: 1}),
            }
        )
        return Message(content, reply_to=asked[0])

    def _evaluate(self, asked: list[Message], plan: CalibratedPlan, timeout: float) -> Message:
        contents = {m.metadata.dst_node_id: m.content for m in asked}
        report = self._round(plan, UpdateKind.METRICS, contents, timeout)
        if report.result is None:
            return self._failed(asked[0], report)
        metrics = MetricRecord({**report.result.metrics, self._weight: 1})
        return Message(RecordDict({"metrics": metrics}), reply_to=asked[0])

    def _round(
        self,
        plan: CalibratedPlan,
        update: UpdateKind,
        contents: dict[int, RecordDict],
        timeout: float,
    ) -> RoundReport:
        """Run one round and keep its report."""
        key, barred = self._progress.cycle_key(plan), self._progress.of(plan).barred(plan)
        if self._ledger.account.find(key) is None:
            self._require_budget(plan)
        content = common_digest(contents.values())
        clip = None if update is UpdateKind.METRICS or self.clip is None else self.clip.clip
        report = RoundReport(self._progress.rounds + 1, 0, None, clip=clip, content=content)
        candidates = self._progress.free(plan, contents)
        self._progress = self._progress.begun(plan)
        if plan.correlated:  # so that rounds that fail keep their numbers after a kill, too
            self._keep(self._progress)
        round_: SecureRound | TwoServerRound | None = None
        try:
            nodes = self._asked(plan, candidates, report.number)
            report = replace(report, invited=len(nodes))
            release = partial(self._release, plan, key, report.number)
            round_ = self._secure_round(plan, update, report, timeout, release)
            round_ = replace(round_, barred=barred)
            report = replace(report, result=round_.run({node: contents[node] for node in nodes}))
        except SkellamError as error:
            text = str(error) if round_ is None else round_.failure(error)
            report = replace(report, failure=text)
            if not isinstance(error, ProtocolError | InfeasibleError):
                raise
        finally:
            if round_ is not None:
                report = replace(report, faults=tuple(round_.faults))
                self._progress = self._progress.knowing(round_.clients)
                self._note_faults(round_.faults)
            self._reports.append(report)
        self._end_if_spent(plan)
        return report

    def _end_if_spent(self, plan: CalibratedPlan) -> None:
        """End the run of two servers after its last round: both erase their keys."""
        leader, account = self._leaders.get(plan.digest), self._ledger.account
        if leader is None or account.find(self._progress.cycle_key(plan)) is not None:
            return
        if not account.fits(plan.mechanism):
            try:
                leader.end()
            except SkellamError as error:
                _log.warning("the helper could not be told that the run is over: %s", error)

    def _release(
        self,
        plan: CalibratedPlan,
        key: bytes,
        number: int,
        clients: Mapping[int, int],
        replayable: bool,
    ) -> None:
        """Note who took part, and spend, unless the cycle is spent: both before the sum opens."""
        self._keep(self._progress.knowing(clients).taken(plan, clients.values()))
        if self._ledger.account.find(key) is None:
            note = f"round {number}"
            self._ledger.spend(plan.mechanism, key=key, replayable=replayable, note=note)

    def _keep(self, progress: Progress) -> None:
        self._progress = progress
        if self._progress_file is not None:
            progress.keep(self._progress_file, self._plan)

    def _asked(self, plan: CalibratedPlan, candidates: list[int], number: int) -> list[int]:
        nodes = invited(plan, candidates, round_=number, entropy=self._entropy)
        # Drawn first and left out afterwards: nobody else's chances change.
        nodes = [node for node in nodes if node not in self.left_out]
        if len(nodes) < 2:
            raise ThresholdError(
                f"{len(nodes)} nodes were drawn; a sum needs two at least: connect more nodes, or "
                "plan a larger cohort"
            )
        require_countable(len(nodes))
        if len(nodes) > plan.population_size:
            raise InfeasibleError(
                f"{len(nodes)} nodes are there; the plan is for a population of "
                f"{plan.population_size}, so plan for all of them"
            )
        return nodes

    def _secure_round(
        self,
        plan: CalibratedPlan,
        update: UpdateKind,
        report: RoundReport,
        timeout: float,
        release: Callable[[Mapping[int, int], bool], None],
    ) -> SecureRound | TwoServerRound:
        config = RoundConfig(
            plan,
            report.number,
            random_bytes(32, entropy=self._entropy),
            report.invited,
            update,
            self._run_config,
            None if update is UpdateKind.METRICS else self.clip,
            self._evaluate_metrics if update is UpdateKind.METRICS else self._metrics,
        )
        if (leader := self._leaders.get(plan.digest)) is not None:
            return TwoServerRound(
                self._grid,
                leader,
                config,
                report.content,
                release=release,
                timeout=timeout,
                turn=self._progress.of(plan).rounds - 1 if plan.correlated else 0,
            )
        return SecureRound(
            self._grid,
            self._roster,
            config,
            report.content,
            first_timeout=timeout,
            stage_timeout=self._stage_timeout,
            release=release,
        )

    def _note_faults(self, faults: Iterable[NodeFault]) -> None:
        for fault in faults:
            _log.warning("node %d is to blame at %s: %s", fault.node, fault.stage, fault.reason)
        before = self.left_out
        self._blamed.update({fault.node for fault in faults})
        for node in self.left_out - before:
            _log.warning("node %d was blamed in %d rounds; it is left out", node, MAX_FAULTS)

    def _move_clip(self, result: FleetResult) -> None:
        if self.clip is not None and result.clip_count is not None:
            moved = self.clip.after(result.clip_count, self._plan)
            self._keep(replace(self._progress, clip=moved))

    def _failed(self, message: Message, report: RoundReport) -> Message:
        _log.warning("round %d released nothing: %s", report.number, report.failure)
        return Message(Error(_ROUND_FAILED, report.failure), reply_to=message)

    def _contents(
        self, asked: list[Message]
    ) -> tuple[dict[int, RecordDict], str, dict[str, NDArray[Any]]]:
        """Return what each node is given, the key of the model in it, and the model.

        Each array has the type that it had at first: Flower's averaging turns integer tensors into
        floats, which would make them parameters.
        """
        common_digest(message.content for message in asked)
        key, arrays = model_of(asked[0].content)
        if not self._dtypes:
            self._dtypes = {name: array.dtype for name, array in arrays.items()}
        model = {name: a.astype(self._dtypes.get(name, a.dtype)) for name, a in arrays.items()}
        dimension = Layout.of(model).dimension + len(self._metrics or ())
        if dimension != self._plan.dimension:
            raise ShapeError(
                f"the model has {Layout.of(model).dimension} parameters, with "
                f"{len(self._metrics or ())} metrics; the plan is for {self._plan.dimension}"
            )
        content = RecordDict({**asked[0].content, key: record_of(model)})
        return {message.metadata.dst_node_id: content for message in asked}, key, model

    def _applied(self, model: dict[str, NDArray[Any]], mean: Reals) -> dict[str, NDArray[Any]]:
        layout = Layout.of(model)
        if self._update is UpdateKind.DIFFERENCE:
            return layout.join(layout.flatten(model) + mean.values, like=model)
        return layout.join(mean, like={name: np.zeros_like(a) for name, a in model.items()})

    def _require_budget(self, plan: CalibratedPlan) -> None:
        """Raise `BudgetError` before anybody trains for a round that may not be released."""
        account = self._ledger.account
        if not account.fits(plan.mechanism):
            raise BudgetError(
                f"another round would exceed the budget of epsilon {account.budget.epsilon:g} at "
                f"delta {account.budget.delta:g}; the run ends here"
            )

    def close(self) -> None:
        """Let others write the ledger."""
        self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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


def secured(
    grid: Grid,
    context: Context,
    strategy: Strategy,
    plan: Plan,
    *,
    epsilon: float,
    delta: float,
    ledger: str | PathLike[str] = "",
    roster: str | PathLike[str] = "",
    entropy: Entropy | None = None,
    metrics: Ranges = None,
    evaluate_metrics: Ranges = None,
    **options: Any,  # noqa: ANN401  (those of SecureGrid)
) -> SecureGrid:
    """Return a `SecureGrid` with all that a server app needs; ``options`` are `SecureGrid`'s.

    ``plan`` is not calibrated yet: it pays for the metrics too, and for as many evaluations as
    rounds, if ``evaluate_metrics`` are given; together they cost ``epsilon`` at ``delta``.
    ``ledger`` and ``roster`` are files of the server, of which the ledger is made if need be;
    under Flower's simulation leave both out, and they are made up for the run.
    """
    if bool(ledger) != bool(roster):
        raise DomainError("give both ledger and roster, or neither under simulation")
    if ledger:
        path, known = Path(ledger), read_roster(Path(roster))
    else:
        path = simulation_folder(context.run_id) / "server.ledger"
        known = simulated_roster(context.run_id, simulated_nodes(grid, plan))
    summed, evaluated = ranges_of(metrics), ranges_of(evaluate_metrics)
    trained, evaluation = _calibrated(plan, epsilon, delta, summed, evaluated)
    return SecureGrid(
        grid,
        trained,
        open_ledger(path, epsilon=epsilon, delta=delta),
        strategy=strategy,
        roster=known,
        entropy=SystemEntropy() if entropy is None else entropy,
        run_config=context.run_config,
        metrics=summed,
        evaluate_metrics=evaluated,
        evaluate_plan=evaluation,
        **options,
    )


def _calibrated(
    plan: Plan,
    epsilon: float,
    delta: float,
    metrics: MetricRanges | None,
    evaluated: MetricRanges | None,
) -> tuple[CalibratedPlan, CalibratedPlan | None]:
    """Return the plans of training and of evaluation, which together cost epsilon at delta."""
    planned = plan if metrics is None else metrics.planned(plan)
    if evaluated is None:
        return planned.calibrated(epsilon=epsilon, delta=delta), None
    # Basic composition: epsilons and deltas add up to at most these.
    alone = replace(plan, dimension=len(evaluated), clip=1.0, correlation=None)
    share = EVALUATE_SHARE * epsilon
    return (
        planned.calibrated(epsilon=epsilon - share, delta=delta / 2),
        alone.calibrated(epsilon=share, delta=delta / 2),
    )
