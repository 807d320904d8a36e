"""This module answers what would become of a live cluster's jobs with another policy, other nodes, or one job more.

It is asked by people, once, beside the cluster. It writes nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.forecast import Forecast
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.snapshot import Allocation, JobId, JobState, Snapshot
from dl2_scheduler.forecasts.calibration import Calibration
from dl2_scheduler.forecasts.ensemble import Ensemble, play_futures, with_known_speeds
from dl2_scheduler.forecasts.forecaster import made_forecasts, told
from dl2_scheduler.forecasts.records import EventKind
from dl2_scheduler.live.history import History
from dl2_scheduler.world_model.observed import ObservedCluster, with_samples

_READ = 2000, 80_000  # of the history, the last slots, and the states of jobs in them at most
_SECONDS = 15.0  # of computing, for an answer
_CURRENT_SLOTS = 2  # after which a slot is not the present one any more

Nodes = tuple[Node, ...]


@dataclass(frozen=True)
class Supposition:
    """A `Supposition` says what shall be other than it is.

    Attributes:
        policy: the policy's name; None: the one that decides.
        nodes: makes other nodes of the present ones.
        job: one job more, which comes now; None: none does.
    """

    policy: str | None = None
    nodes: Callable[[Nodes], Nodes] = lambda nodes: nodes
    job: Job | None = None


AS_IT_IS = Supposition()


@dataclass(frozen=True)
class IdleCluster:
    """An `IdleCluster` has decided nothing of late, as no job was there; it may have been started otherwise since.

    Attributes:
        policy: the name of the policy that decides.
        nodes: what jobs that are held leave of them.
        slot_seconds: length of a slot; 0: that of the last one.
    """

    policy: str
    nodes: Nodes
    slot_seconds: float


class Outlook:
    """An `Outlook` is asked about the present of a cluster.

    Args:
        history: the history of the cluster.
        calibrations: what earlier forecasts teach.
        make: a policy of a name.
        active: when the jobs that have not ended were submitted, in unix seconds, by name.
        now: unix seconds.
        idle: returns how the cluster is, which is asked where none of the last slot's jobs is there any more; None:
            as it was then.

    Raises:
        BadInput: nothing has been decided in that cluster yet.
    """

    def __init__(
        self,
        history: History,
        calibrations: Mapping[EventKind, Calibration],
        make: Callable[[str], AllocationPolicy],
        active: Mapping[str, float],
        now: float,
        idle: Callable[[], IdleCluster] | None = None,
    ):
        self._observed = ObservedCluster(history, history.recent(*_READ))
        self._observed.catch_up()
        self._calibrations, self._make = calibrations, make
        if self._observed.last is None:
            raise BadInput("no slot with jobs has been decided there yet: nothing is known that could be forecast")
        self._last = self._observed.last
        # One that was submitted since has the name of another, which has ended.
        self._active = {name for name, submitted in active.items() if not self._last.at < submitted <= now}
        goes_on = any(state.job.id in self._active for state in self._last.snapshot.jobs)
        self._is_current = goes_on and now - self._last.at < _CURRENT_SLOTS * self._observed.slot_seconds
        self._idle = None if goes_on or idle is None else idle()
        self.now = self._last.at if self._is_current else now

    def compared(
        self, supposed: Supposition, rule: NodeRule = NodeRule.SPREAD
    ) -> tuple[dict[JobId, Forecast], dict[JobId, Forecast]]:
        """Return when jobs start and end as it is, and if so, in the same futures.

        Where time did not suffice for all futures of one of the two, those of the other would be others, and so would
        be its medians.

        Args:
            supposed: what is other than it is.
            rule: the rule by which tasks find their node.

        The slot that has been decided stays as it is.

        Raises:
            BadInput: there is no such policy, or no such nodes.
            Exception: whatever the policy raises.
        """
        played = [self._played(each, rule) for each in (AS_IT_IS, supposed)]
        fewest = min((len(ensemble) for ensemble in played if ensemble is not None), default=0)
        before, after = (self._told(None if each is None else each.first(fewest)) for each in played)
        return before, after

    @property
    def _decided(self) -> Allocation | None:
        """The allocation of the slot with which futures begin; None: it is still to be decided."""
        return self._last.allocation.without_exploration if self._is_current else None

    def _played(self, supposed: Supposition, rule: NodeRule) -> Ensemble | None:
        present = self._last.policy if self._idle is None else self._idle.policy
        policy = with_known_speeds(self._make(supposed.policy or present), self._observed.fitted)
        return play_futures(
            self._observed,
            policy,
            rule,
            self._last.snapshot.slot,
            seconds=_SECONDS,
            change=lambda snapshot: self._supposed(snapshot, supposed),
            decided=self._decided,
        )

    def _told(self, ensemble: Ensemble | None) -> dict[JobId, Forecast]:
        if ensemble is None:
            return {}
        return told(list(made_forecasts(ensemble, self._decided or Allocation(), self.now)), self._calibrations)

    def _supposed(self, snapshot: Snapshot, supposed: Supposition) -> Snapshot:
        if (idle := self._idle) is not None:
            seconds = idle.slot_seconds or snapshot.slot_seconds
            snapshot = replace(snapshot, nodes=idle.nodes, slot_seconds=seconds)
        states = [state for state in snapshot.jobs if state.job.id in self._active]
        if supposed.job is not None:
            arrival = max([self._observed.now, *(state.job.arrival for state in states)])
            states.append(JobState(replace(supposed.job, arrival=arrival)))
        changed = replace(snapshot, jobs=tuple(states), nodes=supposed.nodes(snapshot.nodes))
        return with_samples(changed, self._observed.samples, self._observed.fitted)


def later_by(before: Mapping[JobId, Forecast], after: Mapping[JobId, Forecast]) -> dict[JobId, float]:
    """Return by how many seconds jobs end later, of those whose end is known in both.

    Args:
        before: as it is.
        after: as it would be.
    """
    return {
        job: then.end.at - forecast.end.at
        for job, forecast in before.items()
        if forecast.end is not None and (then := after.get(job)) is not None and then.end is not None
    }


def with_nodes(nodes: Nodes, more: Sequence[Node]) -> Nodes:
    """Return the nodes of a cluster that has more."""
    return (*nodes, *more)


def without_nodes(nodes: Nodes, fewer: Sequence[Node]) -> Nodes:
    """Return the nodes of a cluster that has lost some.

    Raises:
        BadInput: there are no such nodes.
    """
    left = list(nodes)
    for node in fewer:
        alike = [each for each in left if each.capacity == node.capacity]
        if not alike:
            raise BadInput(f"--nodes: there are not that many nodes of {dict(node.capacity)}: take fewer away")
        left.remove(alike[-1])
    if not left:
        raise BadInput("--nodes: no node would be left: take fewer away")
    return tuple(left)
