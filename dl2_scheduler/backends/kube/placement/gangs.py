"""This module says of jobs' gangs what of a minimum is bound, what is missing, and since when. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dl2_scheduler.backends.kube.apiserver.objects import ROLES, SCHEDULER, JobInfo, PodInfo, RoleInfo
from dl2_scheduler.backends.kube.apiserver.quantities import PODS, most_of
from k8s.foundation.names import COORDINATOR, ROLE_LABEL, SERVER, WORKER

COORDINATOR_REQUESTS: Mapping[str, float] = {"cpu": 0.05, "memory": 128.0 * 2**20, PODS: 1.0}
"""Of a coordinator's pod, as the operator makes it: its room is kept before the pod is there."""

_TRAINS = ("Running", "Suspending")


@dataclass(frozen=True)
class Gang:
    """A `Gang` sets a job's pods against its minimum.

    Attributes:
        job: whose.
        minimum: of each role.
        pods: of the job, that are not about to go.
        pending: those that this scheduler is to bind, by role.
    """

    job: JobInfo
    minimum: Mapping[str, int]
    pods: Sequence[PodInfo]
    pending: Mapping[str, Sequence[PodInfo]]

    @cached_property
    def bound(self) -> list[PodInfo]:
        """Pods with a node."""
        return [pod for pod in self.pods if pod.node]

    @cached_property
    def missing(self) -> dict[str, int]:
        """Return how many pods of its minimum are not bound, by role."""
        had = [pod.role for pod in self.bound]
        return {role: max(0, self.minimum[role] - had.count(role)) for role in ROLES}

    @property
    def waiting(self) -> list[PodInfo]:
        """Pods to bind, in the order of binding."""
        return [pod for role in ROLES for pod in self.pending[role]]

    @property
    def waits_since(self) -> float | None:
        """Since when its oldest unbound pod waits, in unix seconds; None: it has none, or may not be bound."""
        return None if self.refusal else min((pod.created for pod in self.waiting), default=None)

    @property
    def begun(self) -> bool:
        """Return whether some of it is bound, and some of its minimum is not."""
        return bool(self.bound) and any(self.missing.values())

    @property
    def late_at(self) -> float | None:
        """When it gives its room back, in unix seconds; None: it is whole, holds nothing, trains, or no pod waits.

        One that was whole and lost a pod has waited no longer than the pod in its place.
        """
        waiting = min((pod.created for pod in self.waiting), default=None)
        if waiting is None or not self.begun or self.job.status.phase in _TRAINS or self.job.status.trained:
            return None
        return max(waiting, min(pod.bound or 0.0 for pod in self.bound)) + self.job.gang_seconds

    def is_late(self, now: float) -> bool:
        """Return whether the gang has to give its room back."""
        return self.late_at is not None and self.late_at <= now

    @property
    def held_up(self) -> bool:
        """Return whether some of it cannot be bound now, whatever is free: a volume is not there, say."""
        return bool(self.refusal) or any(pod.unmade for pod in self.waiting)

    @property
    def refusal(self) -> str:
        """Why nothing of it may be bound, for people; "": it may."""
        asking = [pod for pod in self.waiting if pod.constraints.unknown]
        if asking:
            return unknown(asking[0])
        held = [pod for role in ROLES for pod in self.pending[role][: self.missing[role]] if pod.refusal]
        if held:
            return f"{self.job.id} starts whole ({self.words}); {held[0].name}: {held[0].refusal}"
        if not self.bound and not self.pending[COORDINATOR]:
            return f"{self.job.id} starts whole ({self.words}); its coordinator has no pod yet"
        return ""

    @property
    def words(self) -> str:
        """The gang's minimum, for people."""
        counts = [(self.minimum[WORKER], WORKER), (self.minimum[SERVER], SERVER)]
        return "coordinator, " + ", ".join(f"{count} {role}{'s' * (count != 1)}" for count, role in counts)

    @property
    def resources(self) -> set[str]:
        """The names of all resources that its pods to come may ask for."""
        return {name for role in ROLES for name in self.template(role).requests}

    def template(self, role: str) -> RoleInfo:
        """Return what a pod of the gang will be made of that does not exist yet."""
        if role == COORDINATOR:  # made of the servers' template
            return coordinator_of(self.job, COORDINATOR_REQUESTS)
        return self.job.servers if role == SERVER else self.job.workers


def coordinator_of(job: JobInfo, requests: Mapping[str, float]) -> RoleInfo:
    """Return what a job's coordinator is made of: it goes where servers may, and begins as they do."""
    taken = most_of(requests, job.servers.initial)
    labels = {**job.servers.labels, ROLE_LABEL: COORDINATOR}
    return RoleInfo(1, 1, 1, taken, job.servers.constraints, labels, job.namespace)


@dataclass(frozen=True)
class Groups:
    """`Groups` are what is to be bound, sorted by whose it is.

    Attributes:
        gangs: of jobs that are to have pods and lack some, by the jobs' creation.
        leaving: pods of jobs that are about to have nothing: what they still need, to save themselves.
        singles: pods of no job, by their own creation.
        orphans: pods whose label names a job that is not known (yet).
    """

    gangs: list[Gang]
    leaving: list[PodInfo]
    singles: list[PodInfo]
    orphans: list[PodInfo]


def unknown(pod: PodInfo) -> str:
    """Return what is said to a pod that asks for what nobody here respects."""
    return (
        f"{pod.name} asks for {' and '.join(pod.constraints.unknown)}, which the scheduler {SCHEDULER} does not know: "
        "leave it out, or name another schedulerName"
    )


def group(jobs: Sequence[JobInfo], pods: Sequence[PodInfo], pending: Sequence[PodInfo]) -> Groups:
    """Sort pods by whose they are.

    A job that is about to have nothing (suspended, ended) has no gang.

    Args:
        jobs: that this scheduler serves.
        pods: all that have not ended.
        pending: of those, the ones to bind.
    """
    known = {job.key: job for job in jobs}
    wants = {key: job for key, job in known.items() if job.wants_pods}
    alive: dict[tuple[str, str], list[PodInfo]] = {key: [] for key in wants}
    waiting: dict[tuple[str, str], list[PodInfo]] = {key: [] for key in wants}
    for pod in pods:
        if pod.job and not pod.deleting and pod.key in alive and pod.role in ROLES:
            alive[pod.key].append(pod)
    leaving, singles, orphans = [], [], []
    for pod in pending:
        if pod.job and pod.key not in known:
            orphans.append(pod)
        elif pod.key in wants and pod.role in ROLES:
            waiting[pod.key].append(pod)
        elif pod.job:
            leaving.append(pod)
        else:
            singles.append(pod)
    gangs = [_gang(job, alive[key], waiting[key]) for key, job in wants.items() if alive[key]]
    return Groups(
        sorted([gang for gang in gangs if waiting[gang.job.key] or gang.begun], key=_age),
        leaving,
        sorted(singles, key=lambda pod: (pod.created, pod.namespace, pod.name)),
        orphans,
    )


def _age(gang: Gang) -> tuple[float, tuple[str, str]]:
    return gang.job.created, gang.job.key


def _gang(job: JobInfo, pods: Sequence[PodInfo], pending: Sequence[PodInfo]) -> Gang:
    least = next((pod.gang for pod in pods if pod.gang), (job.workers.min, job.servers.min))
    by_role = {role: sorted([pod for pod in pending if pod.role == role], key=_order) for role in ROLES}
    return Gang(job, {COORDINATOR: 1, WORKER: least[0], SERVER: least[1]}, pods, by_role)


def _order(pod: PodInfo) -> tuple[float, int, str]:
    """Return a key by which the older pod comes first; of one age the lower number."""
    number = pod.name.rpartition("-")[2]
    return pod.created, int(number) if number.isdigit() else 0, pod.name
