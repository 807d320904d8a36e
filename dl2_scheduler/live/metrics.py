"""This module tells Prometheus about a cluster.

Jobs and nodes are asked when it scrapes; decisions are timed as they are made.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from prometheus_client import CollectorRegistry, Gauge, Histogram, MetricsHandler
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from dl2_scheduler.cluster.desk import JobDesk, JobStatus, LiveJobPhase
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.interfaces import Cluster, SlotOutcome
from dl2_scheduler.cluster.snapshot import Allocation, Snapshot
from dl2_scheduler.live.exploration.budget import ExplorationBudget
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.system.http_pages import answered, listening, started

_Gauges = dict[str, tuple[str, Callable[[], float]]]  # by name, with words for people
_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class LearningCounts(Protocol):
    """`LearningCounts` are what a policy that learns has to tell since this process began.

    Attributes:
        updates: that its run has seen beside live clusters.
        accepted: proposals that were.
        refused: proposals that were.
        core_seconds: processor time of learning and judging.
    """

    updates: int
    accepted: int
    refused: int
    core_seconds: float


class ExplorationCounts(Protocol):
    """`ExplorationCounts` are what exploring took of a cluster, over restarts of the scheduler.

    Attributes:
        budget: what was spent, and what is left.
    """

    budget: ExplorationBudget


class SharingCounts(Protocol):
    """`SharingCounts` are what a cluster that shares what it learns has to tell.

    Attributes:
        clusters: others that were read when it looked last.
        speeds: configurations of types that dreams know from them alone.
        ignored: files that were ignored.
        tried: policies of theirs that were tried since this process began.
        accepted: those that were accepted.
    """

    clusters: int
    speeds: int
    ignored: int
    tried: int
    accepted: int


class ClusterMetrics:
    """`ClusterMetrics` hold what Prometheus is told about one cluster.

    Args:
        desk: is asked when somebody scrapes.
    """

    def __init__(self, desk: JobDesk):
        self.registry = CollectorRegistry()
        self.slot = Gauge("dl2_slot", "Number of the slot that runs.", registry=self.registry)
        self.decision = Histogram(
            "dl2_decision_seconds",
            "Time from a slot's snapshot to its allocation, written down.",
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.registry.register(_JobCollector(desk))

    def tell_learning(self, learning: LearningCounts) -> None:
        """Tell of learning too, whenever somebody scrapes."""
        gauges: _Gauges = {
            "dl2_learning_updates": ("Updates of the policy that learns.", lambda: learning.updates),
            "dl2_learning_accepted": ("Proposals that were accepted.", lambda: learning.accepted),
            "dl2_learning_refused": ("Proposals that were refused.", lambda: learning.refused),
            "dl2_learning_core_seconds": ("Processor time that they took.", lambda: learning.core_seconds),
        }
        self._tell(gauges)

    def tell_exploration(self, exploration: ExplorationCounts) -> None:
        """Tell of exploration too, whenever somebody scrapes."""
        gauges: _Gauges = {
            "dl2_exploration_jobs": ("Times that a job explored.", lambda: exploration.budget.jobs),
            "dl2_exploration_spent_seconds": (
                "Seconds of the whole cluster that exploring took.",
                lambda: exploration.budget.spent,
            ),
            "dl2_exploration_lived_seconds": (
                "Seconds of slots with jobs, of which a part may be spent.",
                lambda: exploration.budget.lived,
            ),
        }
        self._tell(gauges)

    def tell_sharing(self, sharing: SharingCounts) -> None:
        """Tell of sharing with other clusters too."""
        gauges: _Gauges = {
            "dl2_sharing_clusters": ("Other clusters that share what they learn.", lambda: sharing.clusters),
            "dl2_sharing_speeds": ("Speeds that are known from them alone.", lambda: sharing.speeds),
            "dl2_sharing_ignored_files": ("Files that were ignored.", lambda: sharing.ignored),
            "dl2_sharing_tried": ("Policies of theirs that were tried.", lambda: sharing.tried),
            "dl2_sharing_accepted": ("Policies of theirs that were accepted.", lambda: sharing.accepted),
        }
        self._tell(gauges)

    def _tell(self, gauges: _Gauges) -> None:
        for name, (words, value) in gauges.items():
            Gauge(name, words, registry=self.registry).set_function(value)

    def watching(self, cluster: Cluster) -> Cluster:
        """Return the same cluster for a loop, so that its slots and decisions are told."""
        return _Watched(cluster, self)


class _JobCollector(Collector):
    """A `_JobCollector` asks the desk at each scrape.

    Nothing is kept between two of them, so that what has gone is gone here too.
    """

    def __init__(self, desk: JobDesk):
        self._desk = desk

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield one reading."""
        jobs = self._desk.jobs()
        phases = Counter(job.phase for job in jobs)
        by_phase = GaugeMetricFamily("dl2_jobs", "Jobs, the last of every name.", labels=["phase"])
        for phase in LiveJobPhase:
            by_phase.add_metric([str(phase)], phases[phase])
        yield by_phase
        yield GaugeMetricFamily("dl2_failures", "Jobs that have failed.", phases[LiveJobPhase.FAILED])
        families: dict[str, tuple[str, Callable[[JobStatus], float]]] = {
            "dl2_job_workers": ("Workers that a job has.", lambda job: job.workers),
            "dl2_job_servers": ("Servers that a job has.", lambda job: job.servers),
            "dl2_job_samples_per_second": (
                "Samples that all its workers train on in a second; 0: not known.",
                lambda job: job.samples_per_second,
            ),
            "dl2_job_epochs": ("Epochs that a job has trained.", lambda job: job.epochs_done),
        }
        for name, (words, value) in families.items():
            family = GaugeMetricFamily(name, words, labels=["job", "type"])
            for job in jobs:
                if not job.phase.ended:
                    family.add_metric([job.name, job.model], value(job))
            yield family
        yield from self._load()

    def _load(self) -> Iterator[GaugeMetricFamily]:
        load = self._desk.load()
        capacity = GaugeMetricFamily("dl2_node_capacity", "What a node has.", labels=["node", "resource"])
        used = GaugeMetricFamily("dl2_node_used", "What tasks claim of it.", labels=["node", "resource"])
        for node in load.nodes:
            for resource, amount in node.capacity.items():
                capacity.add_metric([node.name, resource], amount)
                used.add_metric([node.name, resource], node.used.get(resource, 0.0))
        labels = ["job", "task", "node"]
        cores = GaugeMetricFamily("dl2_task_cores", "Cores that a task has lately used.", labels=labels)
        memory = GaugeMetricFamily("dl2_task_memory_bytes", "Memory that a task uses.", labels=labels)
        for task in load.tasks:
            cores.add_metric([task.job, task.task, task.node], task.cores)
            memory.add_metric([task.job, task.task, task.node], task.memory_bytes)
        yield from (capacity, used, *((cores, memory) if load.is_measured else ()))


class _Watched:
    """A `_Watched` cluster tells the metrics of its slots and decisions; see `ClusterMetrics.watching`."""

    def __init__(self, cluster: Cluster, metrics: ClusterMetrics):
        self._cluster = cluster
        self._metrics = metrics
        self._seen = 0.0

    def snapshot(self) -> Snapshot:
        """See `Cluster.snapshot`."""
        found = self._cluster.snapshot()
        self._metrics.slot.set(found.slot)
        self._seen = time.perf_counter()
        return found

    def apply(self, allocation: Allocation) -> None:
        """See `Cluster.apply`."""
        self._metrics.decision.observe(time.perf_counter() - self._seen)
        self._cluster.apply(allocation)

    def finish_slot(self) -> SlotOutcome:
        """See `Cluster.finish_slot`."""
        return self._cluster.finish_slot()

    @property
    def done(self) -> bool:
        """See `Cluster.done`."""
        return self._cluster.done


@contextmanager
def exported(metrics: ClusterMetrics, where: str) -> Iterator[str]:
    """Answer Prometheus meanwhile; yields ADDRESS:PORT.

    Args:
        metrics: the metrics that are told.
        where: ADDRESS:PORT, or PORT of this machine alone; port 0: a free one.

    Raises:
        BadInput: it is neither, or cannot be had.
    """
    try:
        server, thread = listening(
            where, lambda host, port: started(host, port, MetricsHandler.factory(metrics.registry))
        )
    except ConfigurationError as error:
        raise BadInput(f"--metrics {error}") from error
    with answered(server, thread) as found:
        yield f"{server.socket.getsockname()[0]}:{found}"
