"""This module sets up what drives a live cluster of any kind: policies, guard, learner, and people's requests."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dl2_scheduler.cluster.desk import JobDesk
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.forecast import Forecast
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy, Cluster
from dl2_scheduler.cluster.placement.guarded_placement import GuardedPlacement
from dl2_scheduler.cluster.snapshot import Allocation, JobId
from dl2_scheduler.forecasts.process import ForecastObserver
from dl2_scheduler.guard.decision import GuardSettings
from dl2_scheduler.guard.process import Guard
from dl2_scheduler.learning.live.exploring import ExplorationObserver
from dl2_scheduler.learning.live.process import Learner, check_learns
from dl2_scheduler.learning.live.refit import Refitter
from dl2_scheduler.live.deadline import Bounded
from dl2_scheduler.live.exploration.explorer import Explorer
from dl2_scheduler.live.history import History
from dl2_scheduler.live.metrics import ClusterMetrics, exported
from dl2_scheduler.live.policies import Maker, Policies
from dl2_scheduler.live.service import ClusterService, Notes, serving
from dl2_scheduler.live.slot_limits import SlotLimits
from dl2_scheduler.live.slot_loop import SlotLoop, SlotObserver
from dl2_scheduler.policies.learnt_names import DL2, absolute
from dl2_scheduler.policies.registry import make_live_policy
from dl2_scheduler.policies.rules.speed_fit import FittedSpeeds
from dl2_scheduler.policies.user_policy import is_own
from dl2_scheduler.replay.start_seconds import StartSeconds

log = logging.getLogger(__name__)

BASELINE = "drf"
"""The policy that decides where the one that was asked for cannot be trusted; the guard compares with it."""

_FITTED = 1000, 40_000  # slots, and states of jobs in them, whose reports a new policy begins with


@dataclass(frozen=True)
class Driving:
    """`Driving` says how a live cluster is driven.

    Attributes:
        policy: the policy's name; None: the one that was used last in the folder, at first the baseline.
        rule: the rule by which tasks find their node, or are counted where a placement policy decides.
        placement: gives tasks places, which they keep; None: the rule does, slot by slot anew.
        limits: the limits of what may change in a slot.
        guard: how much worse a learnt policy may be; None: there is no guard.
        learn: whether the learnt policy goes on learning.
        metrics: where Prometheus is answered, as [ADDRESS:]PORT; None: nowhere.
        most_moves: tasks that the placement policy may move to another node in a slot.
        refit: folder of the model of speeds that is fitted anew now and then; None: none is.
        learn_cores: cores that learning takes its share of; 0: only what nobody else uses.
        explore: part of the cluster's capacity over time that jobs may run for the sake of learning; 0: none.
        share_with: folder in which clusters tell each other what they learnt; None: this one learns alone.
    """

    policy: str | None
    rule: NodeRule = NodeRule.SPREAD
    placement: GuardedPlacement | None = None
    limits: SlotLimits = field(default_factory=SlotLimits)
    guard: GuardSettings | None = field(default_factory=GuardSettings)
    learn: bool = False
    metrics: str | None = None
    most_moves: int = 0
    refit: Path | None = None
    learn_cores: int = 0
    explore: float = 0.0
    share_with: Path | None = None


class ClosableObserver(SlotObserver, Protocol):
    """A `ClosableObserver` has something to let go of."""

    def close(self) -> None:
        """Let go of it."""


@contextmanager
def driven(
    cluster: Cluster,
    desk: JobDesk,
    history: History,
    folder: Path,
    driving: Driving,
    settle: Callable[[Allocation], Allocation] = lambda allocation: allocation,
    tell_forecasts: Callable[[Mapping[JobId, Forecast]], None] = lambda forecasts: None,
) -> Iterator[SlotLoop]:
    """Set up the loop of a cluster, which people can talk to as long as the context lasts.

    Args:
        cluster: is acted on.
        desk: takes the requests of people.
        history: the history of its decisions.
        folder: the folder of its state.
        driving: how it is driven.
        settle: see `SlotLoop`.
        tell_forecasts: see `ForecastObserver`.

    Raises:
        BadInput: the policy cannot be used, or cannot learn.
    """
    asked = driving.policy and absolute(driving.policy)
    if driving.learn and asked and asked.startswith(DL2):
        check_learns(Path(asked.removeprefix(DL2)))
    policies = Policies(fitted_by(history), BASELINE, folder, asked)
    if driving.learn and policies.in_use(DL2) is None:
        why = f"--learn: {policies.choice.policy} is no network that learns"
        if driving.policy is not None:
            raise BadInput(f"{why}: give --policy dl2:RUN too, or leave --learn out")
        log.warning("%s: nothing learns until `dl2 policy use dl2:RUN`", why)
    if not driving.learn:
        policies.end_stand_in("nobody learns any more, so nobody compares them")
    notes, metrics = Notes(), ClusterMetrics(desk)
    searching, explorer = _exploring(folder, driving, notes, metrics)
    with ExitStack() as stack:
        observers = [
            stack.enter_context(closing(each))
            for each in (*searching, *_observers(policies, folder, driving, notes, metrics, tell_forecasts))
        ]
        stack.enter_context(serving(ClusterService(desk, history, policies, notes), folder))
        if driving.metrics is not None:
            where = stack.enter_context(exported(metrics, driving.metrics))
            log.info("metrics: http://%s/metrics", where)
        watched = metrics.watching(cluster)
        yield SlotLoop(
            watched, policies, driving.rule, history, driving.limits, observers,
            settle=settle, start_seconds=StartSeconds(history), explorer=explorer,
        )  # fmt: skip


def _exploring(
    folder: Path, driving: Driving, notes: Notes, metrics: ClusterMetrics
) -> tuple[Sequence[ClosableObserver], Explorer | None]:
    """Return what looks for configurations worth trying beside the loop, and what lets jobs explore.

    Args:
        folder: the folder of the cluster's state.
        driving: how it is driven.
        notes: is shown to people.
        metrics: is shown to Prometheus.

    Raises:
        BadInput: the budget's counters cannot be used.
    """
    if not driving.explore:
        return (), None
    observer = ExplorationObserver(folder, driving.rule)
    explorer = Explorer(driving.explore, folder, lambda: observer.telling, driving.limits.least_slots)
    notes.exploration = lambda: "; ".join(filter(None, (explorer.summary, observer.trouble)))
    metrics.tell_exploration(explorer)
    return (observer,), explorer


def _observers(
    policies: Policies,
    folder: Path,
    driving: Driving,
    notes: Notes,
    metrics: ClusterMetrics,
    tell_forecasts: Callable[[Mapping[JobId, Forecast]], None],
) -> Iterator[ClosableObserver]:
    """Yield what works beside the loop, each to be closed, and let people see what it finds.

    Args:
        policies: the policies of the cluster.
        folder: the folder of its state.
        driving: how it is driven.
        notes: is shown to people.
        metrics: is shown to Prometheus.
        tell_forecasts: see `ForecastObserver`.
    """
    if driving.guard is not None:
        guard = Guard(policies, driving.guard, folder, driving.rule)
        notes.comparison = lambda: guard.summary
        yield guard
    else:
        notes.comparison = lambda: "off (--guard-slots 0)"
    if driving.learn:
        learner = Learner(policies, folder, driving.rule, driving.learn_cores, driving.share_with)
        notes.learning, notes.updates = lambda: learner.summary, lambda: learner.updates
        metrics.tell_learning(learner)
        if (sharing := learner.sharing) is not None:
            notes.sharing = lambda: sharing.summary
            metrics.tell_sharing(sharing)
        yield learner
    if driving.refit is not None:
        refitter = Refitter(driving.refit, folder)
        notes.refitting = lambda: refitter.summary
        yield refitter
    forecaster = ForecastObserver(folder, driving.rule, tell_forecasts)
    notes.forecasts = lambda: forecaster.forecasts
    yield forecaster


def fitted_by(history: History) -> Maker:
    """Return a maker of policies that begin with the speeds which jobs of the cluster reported of late."""

    def make(name: str) -> AllocationPolicy:
        policy = make_live_policy(name)
        speeds = getattr(policy, "speeds", None)
        if isinstance(speeds, FittedSpeeds):
            speeds.observe(history.reports(*_FITTED))
        return Bounded(policy) if is_own(name) else policy

    return make
